//! The figures of a demo: from the tables, from the provider's ledger, and from the workers.

use super::fleet::Fleet;
use super::stage::Stage;
use super::story::Played;
use crate::args::DemoArgs;
use crate::audit;
use crate::error::CliError;
use longhaul::Client;
use longhaul::audit::Report;
use longhaul::domain::EventType;
use longhaul::store::{Database, audit_plant};
use longhaul_sandbox::provider::PaidLedger;
use serde::Serialize;
use std::collections::BTreeMap;

/// What `--json` prints. The names are part of the command's interface.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// Runs that were enqueued, and how many of them came to which end. Branches are runs of their own and not among them.
    pub runs: i64,
    pub completed: i64,
    pub failed: i64,
    /// Events in the ledger.
    pub events: i64,
    /// Batches that the provider had, and the requests in them.
    pub batches: i64,
    pub items: i64,
    /// Requests at full price.
    pub live_items: usize,
    /// Create calls of which nobody knew whether they had been accepted, and batches found again by listing.
    pub ambiguous_creates: i64,
    pub adopted: i64,
    /// Answers that came when the same request had been answered already.
    pub late_duplicates: i64,
    /// Requests paid more than once, by the provider's own ledger.
    pub items_paid_twice: usize,
    /// Runs taken from a dead node.
    pub takeovers: i64,
    /// Broken rules.
    pub audit_violations: u64,
    /// From the first enqueue to the end of the last run.
    pub seconds: f64,
    /// The most memory that any worker ever had.
    pub worker_peak_rss_mb: f64,
    /// Turns of conversations in which a tool was used, in runs that have forked, and questions that were answered by somebody;
    /// each as the ledger tells.
    pub tool_calls: i64,
    pub forks: i64,
    pub human_answers: i64,
    /// Who answered how many of them: `script` or `terminal`.
    pub answered_by: BTreeMap<&'static str, u64>,
    pub nano_usd_batch: i64,
    pub nano_usd_live: u64,
    /// Enqueued runs completed, as each worker told; the killed one's is what it told last.
    pub runs_per_worker: BTreeMap<String, u64>,
}

/// Plants what is to be planted, audits, and adds up.
pub(super) async fn gather(
    args: &DemoArgs,
    stage: &Stage,
    client: &Client,
    fleet: &Fleet,
    played: &Played,
    answered_by: BTreeMap<&'static str, u64>,
) -> Result<(Figures, Report), CliError> {
    if let Some(plant) = &args.plant {
        audit_plant::plant(&Database::new(&stage.database)?, plant).await?;
    }
    let ledger = audit::read_ledger(stage.sandbox.ledger_path())?;
    let report = audit::audit(&stage.database, Some(&ledger)).await?;
    let paid = PaidLedger::read(stage.sandbox.ledger_path())?;
    let summary = PaidLedger::summary(&paid);
    let totals = client.batch_totals().await?;
    let peak_kb = fleet.heard().map(|(_, heard)| heard.peak_rss_kb).max().unwrap_or(0);
    let figures = Figures {
        runs: played.runs,
        completed: played.counts.completed,
        failed: played.counts.failed,
        events: client.count_events(None).await?,
        batches: totals.batches,
        items: totals.items,
        live_items: paid.iter().filter(|paid| paid.live).count(),
        ambiguous_creates: totals.ambiguous_creates,
        adopted: totals.adopted,
        late_duplicates: totals.late_duplicates,
        items_paid_twice: summary.logical_paid_twice,
        takeovers: client.count_events(Some(EventType::RunTakenOver)).await?,
        audit_violations: report.counts.iter().map(|(_, n)| n).sum(),
        seconds: tenths(played.took.as_secs_f64()),
        worker_peak_rss_mb: tenths(peak_kb as f64 / 1024.0),
        tool_calls: client.count_events(Some(EventType::ToolsCompleted)).await?,
        forks: client.count_events(Some(EventType::ForkOpened)).await?,
        human_answers: client.count_events(Some(EventType::HumanAnswered)).await?,
        answered_by,
        nano_usd_batch: totals.nano_usd,
        nano_usd_live: summary.nano_usd_live,
        runs_per_worker: fleet.heard().map(|(name, heard)| (name.to_owned(), heard.completed)).collect(),
    };
    Ok((figures, report))
}

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
