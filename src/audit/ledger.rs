//! What the provider was paid for, against what is booked.

use super::report::{Check, Report};
use crate::domain::{BatchStatus, CustomId, IntentId, ItemStatus};
use crate::store::Code;
use crate::store::audit::{BatchRow, ItemRow};
use serde::Deserialize;
use std::collections::HashMap;

/// One line of a provider's own record of what it was paid for. The sandbox writes such a file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LedgerLine {
    /// The id that the request had; none for a live call, which is not looked at.
    pub custom_id: Option<String>,
    /// The provider's batch.
    #[serde(default)]
    pub batch_id: Option<String>,
    /// What stands for the request itself.
    #[serde(default)]
    pub logical: String,
    /// Tokens that were read.
    pub input_tokens: i64,
    /// Tokens that were written.
    pub output_tokens: i64,
    /// The cost in nano-dollars, if it is known.
    #[serde(default)]
    pub nano_usd: Option<i64>,
    /// Whether it was a live call.
    #[serde(default)]
    pub live: bool,
}

struct Paid<'a> {
    line: &'a LedgerLine,
    seen: bool,
}

/// The paid lines that carry an id of our form, by that id.
pub(super) struct Ledger<'a> {
    paid: HashMap<CustomId, Paid<'a>>,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(lines: &'a [LedgerLine], report: &mut Report) -> Self {
        let mut paid = HashMap::with_capacity(lines.len());
        for line in lines.iter().filter(|line| !line.live) {
            let Some(Ok(id)) = line.custom_id.as_deref().map(str::parse::<CustomId>) else { continue };
            if paid.insert(id, Paid { line, seen: false }).is_some() {
                report.add(Check::LedgerOfProvider, || format!("request {id}"), "was paid more than once under one id");
            }
        }
        report.paid = Some(paid.len() as u64);
        Self { paid }
    }

    /// Compares one item with what was paid under its id.
    pub(super) fn compare(&mut self, batch: &BatchRow, item: &ItemRow, report: &mut Report) {
        let id = CustomId { intent: IntentId(batch.intent), index: item.item };
        let paid = self.paid.get_mut(&id);
        let wrong = match (ItemStatus::decode(item.status), paid) {
            (ItemStatus::Succeeded | ItemStatus::Superseded, Some(paid)) => {
                paid.seen = true;
                difference(item, paid.line)
            }
            (ItemStatus::Succeeded | ItemStatus::Superseded, None) => {
                Some("is booked as paid, but the provider was not paid for it".into())
            }
            (ItemStatus::Pending | ItemStatus::Sent, Some(paid)) => {
                paid.seen = true;
                let over = [BatchStatus::Settled, BatchStatus::Abandoned].contains(&BatchStatus::decode(batch.status));
                over.then(|| format!("was paid, but its batch is {}", BatchStatus::decode(batch.status)))
            }
            (
                status @ (ItemStatus::Errored | ItemStatus::Expired | ItemStatus::Canceled | ItemStatus::Missing),
                Some(paid),
            ) => {
                paid.seen = true;
                Some(format!("was paid, but is booked as {status}"))
            }
            // Known to have cost money, perhaps; that is what these words say.
            (ItemStatus::MissingPaid | ItemStatus::Unreadable | ItemStatus::Unknown(_), Some(paid)) => {
                paid.seen = true;
                None
            }
            (
                ItemStatus::Pending
                | ItemStatus::Sent
                | ItemStatus::Errored
                | ItemStatus::Expired
                | ItemStatus::Canceled
                | ItemStatus::Missing
                | ItemStatus::MissingPaid
                | ItemStatus::Unreadable
                | ItemStatus::Unknown(_),
                None,
            ) => None,
        };
        if let Some(wrong) = wrong {
            report.add(Check::LedgerOfProvider, || format!("batch {} item {} ({id})", item.batch, item.item), wrong);
        }
    }

    /// What is left was paid for nothing that we know.
    pub(super) fn finish(self, report: &mut Report) {
        let mut left: Vec<CustomId> = self.paid.into_iter().filter(|(_, paid)| !paid.seen).map(|(id, _)| id).collect();
        left.sort_unstable();
        for id in left {
            report.add(Check::LedgerOfProvider, || format!("request {id}"), "was paid, but there is no such item");
        }
    }
}

fn difference(item: &ItemRow, line: &LedgerLine) -> Option<String> {
    let tokens = (item.input_tokens, item.output_tokens);
    if tokens != (Some(line.input_tokens), Some(line.output_tokens)) {
        let known = |n: Option<i64>| n.map_or("unknown".to_owned(), |n| n.to_string());
        return Some(format!(
            "is booked with {} + {} tokens, but {} + {} were paid",
            known(tokens.0),
            known(tokens.1),
            line.input_tokens,
            line.output_tokens
        ));
    }
    match (item.nano_usd, line.nano_usd) {
        (Some(booked), Some(paid)) if booked != paid => {
            Some(format!("is booked with {booked} nano-dollars, but {paid} were paid"))
        }
        (None, Some(paid)) => Some(format!("is booked without a cost, but {paid} nano-dollars were paid")),
        _ => None,
    }
}
