//! Every fault by name, each with the values of an example, and the script that mixes them.

use std::time::Duration;

use super::config::Dialect;
use super::faults::{Fault, Operation, Script, When};
use super::spoil_line::SpoiltLine;
use super::spoil_object::SpoiltObject;

/// Of a thousand requests of an operation, about so many meet a fault of [`Script::all`].
const FAULTY_PER_MILLE: u16 = 300;
/// How long the examples delay what they delay.
const A_MOMENT: Duration = Duration::from_millis(50);

const MIB: usize = 1024 * 1024;

/// A fault with a name, for tests that go through all of them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Named {
    /// Its name, in snake case.
    pub name: &'static str,
    /// The operation whose requests it is for.
    pub operation: Operation,
    /// The API that has it; `None`: both.
    pub dialect: Option<Dialect>,
    /// Whether a client that asks again and reads on gets over it by itself, with every answer in its hands. Where it is false
    /// somebody has to do something (a key, a spend limit), or some answers are lost for good.
    pub heals: bool,
    make: fn() -> Vec<Fault>,
}

impl Named {
    /// The faults that one request meets: one, or several that are worse together.
    pub fn faults(&self) -> Vec<Fault> {
        (self.make)()
    }

    /// Whether an API has it.
    pub fn is_of(&self, dialect: Dialect) -> bool {
        self.dialect.is_none_or(|only| only == dialect)
    }
}

impl Fault {
    /// Every fault, by name, with the values of an example.
    pub const ALL: &'static [Named] = NAMED;
}

impl Script {
    /// A mixture of all faults that heal, at moderate rates: about a third of the requests of each operation meet one, so that
    /// work takes longer and costs more (some requests are paid twice), but ends. The same seed gives the same mixture.
    pub fn all(dialect: Dialect, seed: u64) -> Self {
        Self::all_but(dialect, seed, &[])
    }

    /// As [`Script::all`], without the faults of these names.
    pub fn all_but(dialect: Dialect, seed: u64, names: &[&str]) -> Self {
        let healing =
            || NAMED.iter().filter(|named| named.is_of(dialect) && named.heals && !names.contains(&named.name));
        let mut script = Self::default();
        for (n, named) in (0_u64..).zip(healing()) {
            let of_operation = healing().filter(|other| other.operation == named.operation).count();
            let share = FAULTY_PER_MILLE / u16::try_from(of_operation).unwrap_or(FAULTY_PER_MILLE).max(1);
            let when = When::Rate { per_mille: share.max(1), seed: seed.wrapping_add(n) };
            for fault in named.faults() {
                script = script.on(named.operation, when, fault);
            }
        }
        script
    }
}

macro_rules! named {
    ($($name:ident: $operation:ident, $dialect:ident, $heals:ident, [$($fault:expr),+];)*) => {
        /// See [`Fault::ALL`].
        pub(crate) const NAMED: &[Named] = &[$(Named {
            name: stringify!($name),
            operation: Operation::$operation,
            dialect: dialects::$dialect,
            heals: heal::$heals,
            make: || vec![$($fault),+],
        }),*];
    };
}

/// Words for the table.
mod dialects {
    use super::Dialect;

    pub(super) const BOTH: Option<Dialect> = None;
    pub(super) const ANTHROPIC: Option<Dialect> = Some(Dialect::Anthropic);
    pub(super) const OPENAI: Option<Dialect> = Some(Dialect::OpenAi);
}

/// Words for the table.
mod heal {
    pub(super) const HEALS: bool = true;
    pub(super) const STAYS: bool = false;
}

fn lines(with: SpoiltLine) -> Fault {
    Fault::SpoilLines { every: 2, with }
}

fn object(with: SpoiltObject) -> Fault {
    Fault::SpoilObject(with)
}

fn redirect() -> Fault {
    let headers = vec![("location".to_owned(), "http://elsewhere.invalid/".to_owned())];
    Fault::Status { code: 307, body: None, headers }
}

fn validation(code: &str, message: &str) -> Fault {
    Fault::FailValidation { code: code.to_owned(), message: message.to_owned() }
}

fn guilty() -> Fault {
    let message = "requests.{n}.params: Input should be a valid dictionary".to_owned();
    Fault::GuiltyItem { containing: "guilty".to_owned(), message }
}

named! {
    create_cut: Create, BOTH, HEALS, [Fault::Cut];
    create_accepted_then_cut: Create, BOTH, HEALS, [Fault::AcceptThenCut];
    create_accepted_then_reset: Create, BOTH, HEALS, [Fault::AcceptThenReset];
    create_accepted_then_500: Create, BOTH, HEALS, [Fault::AcceptThenStatus(500)];
    create_accepted_then_504: Create, BOTH, HEALS, [Fault::AcceptThenStatus(504)];
    create_accepted_then_529: Create, BOTH, HEALS, [Fault::AcceptThenStatus(529)];
    create_held: Create, BOTH, HEALS, [Fault::HoldFor(A_MOMENT)];
    create_held_without_end: Create, BOTH, STAYS, [Fault::Hold];
    create_late: Create, BOTH, HEALS, [Fault::LateCommit(A_MOMENT)];
    create_late_after_cut: Create, BOTH, HEALS, [Fault::LateCommit(A_MOMENT), Fault::AcceptThenCut];
    create_late_after_500: Create, BOTH, HEALS, [Fault::LateCommit(A_MOMENT), Fault::AcceptThenStatus(500)];
    create_list_lag: Create, BOTH, HEALS, [Fault::ListLag(A_MOMENT)];
    create_list_lag_after_cut: Create, BOTH, HEALS, [Fault::ListLag(A_MOMENT), Fault::AcceptThenCut];
    create_twin: Create, BOTH, HEALS, [Fault::Twin];
    create_twin_after_cut: Create, BOTH, HEALS, [Fault::Twin, Fault::AcceptThenCut];
    create_foreign_batch: Create, BOTH, HEALS, [Fault::ForeignBatch];
    create_foreign_batch_and_cut: Create, BOTH, HEALS, [Fault::ForeignBatch, Fault::AcceptThenCut];
    create_unreadable_reply: Create, BOTH, HEALS, [object(SpoiltObject::Half)];
    create_empty_reply: Create, BOTH, HEALS, [object(SpoiltObject::Empty)];
    create_web_page: Create, BOTH, HEALS, [object(SpoiltObject::WebPage)];
    create_guilty_item: Create, ANTHROPIC, STAYS, [guilty()];
    create_400: Create, BOTH, STAYS, [Fault::status(400)];
    create_401: Create, BOTH, STAYS, [Fault::status(401)];
    create_402: Create, BOTH, STAYS, [Fault::status(402)];
    create_403: Create, BOTH, STAYS, [Fault::status(403)];
    create_413: Create, BOTH, STAYS, [Fault::status(413)];
    create_413_by_proxy: Create, BOTH, STAYS, [Fault::too_large_by_proxy()];
    create_429: Create, BOTH, HEALS, [Fault::RateLimited { retry_after: None }];
    create_429_retry_after: Create, BOTH, HEALS, [Fault::rate_limited(1)];
    create_spend_cap: Create, BOTH, STAYS, [Fault::SpendCap];
    create_500: Create, BOTH, HEALS, [Fault::status(500)];
    create_529: Create, BOTH, HEALS, [Fault::status(529)];
    create_redirect: Create, BOTH, STAYS, [redirect()];
    items_all_expired: Create, BOTH, HEALS, [Fault::Expire { every: 1 }];
    items_some_expired: Create, BOTH, HEALS, [Fault::Expire { every: 3 }];
    items_canceled: Create, BOTH, HEALS, [Fault::CancelItems { every: 3 }];
    items_overloaded: Create, BOTH, HEALS, [Fault::ErrorItems { error_type: "overloaded_error".to_owned(), every: 2 }];
    items_failed: Create, BOTH, HEALS, [Fault::ErrorItems { error_type: "api_error".to_owned(), every: 2 }];
    items_limited: Create, BOTH, HEALS, [Fault::ErrorItems { error_type: "rate_limit_error".to_owned(), every: 2 }];
    items_invalid: Create, BOTH, STAYS, [Fault::ErrorItems { error_type: "invalid_request_error".to_owned(), every: 2 }];
    items_error_of_tomorrow: Create, BOTH, STAYS, [Fault::ErrorItems { error_type: "tired_error".to_owned(), every: 2 }];
    items_every_outcome: Create, BOTH, STAYS, [Fault::EveryOutcome];
    results_archived: Create, BOTH, STAYS, [Fault::Archive];
    lines_missing_for_ever: Create, BOTH, STAYS, [Fault::MissingLines(1)];
    lines_doubled_for_ever: Create, BOTH, HEALS, [Fault::DuplicateLines];
    lines_unreadable_for_ever: Create, BOTH, STAYS, [lines(SpoiltLine::Half)];
    validation_failed: Create, OPENAI, STAYS, [validation("invalid_json_line", "This line is not parseable as valid JSON.")];
    validation_queue_full: Create, OPENAI, HEALS, [validation("token_limit_exceeded", "Enqueued token limit reached.")];

    upload_cut: Upload, OPENAI, HEALS, [Fault::Cut];
    upload_accepted_then_cut: Upload, OPENAI, HEALS, [Fault::AcceptThenCut];
    upload_accepted_then_500: Upload, OPENAI, HEALS, [Fault::AcceptThenStatus(500)];
    upload_429: Upload, OPENAI, HEALS, [Fault::rate_limited(1)];
    upload_503: Upload, OPENAI, HEALS, [Fault::status(503)];

    retrieve_cut: Retrieve, BOTH, HEALS, [Fault::Cut];
    retrieve_404: Retrieve, BOTH, HEALS, [Fault::NotFoundFlap];
    retrieve_429: Retrieve, BOTH, HEALS, [Fault::rate_limited(1)];
    retrieve_500: Retrieve, BOTH, HEALS, [Fault::status(500)];
    retrieve_529: Retrieve, BOTH, HEALS, [Fault::status(529)];
    retrieve_500_after_end: Retrieve, BOTH, HEALS, [Fault::FailAfterEnd(500)];
    retrieve_404_after_end: Retrieve, BOTH, HEALS, [Fault::FailAfterEnd(404)];
    retrieve_held: Retrieve, BOTH, HEALS, [Fault::HoldFor(A_MOMENT)];
    retrieve_half: Retrieve, BOTH, HEALS, [object(SpoiltObject::Half)];
    retrieve_web_page: Retrieve, BOTH, HEALS, [object(SpoiltObject::WebPage)];
    retrieve_unknown_status: Retrieve, BOTH, HEALS, [object(SpoiltObject::UnknownStatus)];
    retrieve_null_status: Retrieve, BOTH, HEALS, [object(SpoiltObject::NullStatus)];
    retrieve_missing_counts: Retrieve, BOTH, HEALS, [object(SpoiltObject::MissingCounts)];
    retrieve_null_counts: Retrieve, BOTH, HEALS, [object(SpoiltObject::NullCounts)];
    retrieve_missing_count: Retrieve, BOTH, HEALS, [object(SpoiltObject::MissingCount)];
    retrieve_null_expiry: Retrieve, BOTH, HEALS, [object(SpoiltObject::NullExpiry)];
    retrieve_odd_times: Retrieve, BOTH, HEALS, [object(SpoiltObject::OddTimes)];
    retrieve_unknown_fields: Retrieve, BOTH, HEALS, [object(SpoiltObject::UnknownFields)];
    retrieve_null_results: Retrieve, BOTH, HEALS, [object(SpoiltObject::NullResults)];
    retrieve_empty_results: Retrieve, OPENAI, HEALS, [object(SpoiltObject::EmptyResults)];
    retrieve_foreign_results_url: Retrieve, ANTHROPIC, HEALS, [object(SpoiltObject::ForeignResultsUrl)];

    list_cut: List, BOTH, HEALS, [Fault::Cut];
    list_429: List, BOTH, HEALS, [Fault::rate_limited(1)];
    list_500: List, BOTH, HEALS, [Fault::status(500)];
    list_half: List, BOTH, HEALS, [object(SpoiltObject::Half)];
    list_unknown_status: List, BOTH, HEALS, [object(SpoiltObject::UnknownStatus)];
    list_missing_counts: List, BOTH, HEALS, [object(SpoiltObject::MissingCounts)];
    list_reversed: List, OPENAI, HEALS, [object(SpoiltObject::Reversed)];
    list_missing_paging: List, BOTH, HEALS, [object(SpoiltObject::MissingPaging)];

    cancel_cut: Cancel, BOTH, HEALS, [Fault::Cut];
    cancel_accepted_then_cut: Cancel, BOTH, HEALS, [Fault::AcceptThenCut];
    cancel_500: Cancel, BOTH, HEALS, [Fault::status(500)];
    cancel_finishes_some: Cancel, BOTH, HEALS, [Fault::FinishBeforeCancel(1)];
    delete_500: Delete, BOTH, HEALS, [Fault::status(500)];

    results_cut: Results, BOTH, HEALS, [Fault::CutResultsAt(100)];
    results_reset: Results, BOTH, HEALS, [Fault::ResetResultsAt(100)];
    results_end_early: Results, BOTH, HEALS, [Fault::EndResultsAt(100)];
    results_empty: Results, BOTH, HEALS, [Fault::EndResultsAt(0)];
    results_stall: Results, BOTH, HEALS, [Fault::StallResultsAt { bytes: 100, time: A_MOMENT }];
    results_404: Results, BOTH, HEALS, [Fault::NotFoundFlap];
    results_500: Results, BOTH, HEALS, [Fault::FailAfterEnd(500)];
    results_429: Results, BOTH, HEALS, [Fault::rate_limited(1)];
    results_no_reply: Results, BOTH, HEALS, [Fault::Cut];
    lines_missing: Results, BOTH, HEALS, [Fault::MissingLines(1)];
    lines_doubled: Results, BOTH, HEALS, [Fault::DuplicateLines];
    lines_reordered: Results, BOTH, HEALS, [Fault::ReorderLines];
    lines_foreign: Results, BOTH, HEALS, [Fault::ForeignLines(2)];
    line_is_text: Results, BOTH, HEALS, [Fault::BadLine(0, "upstream connect error".to_owned())];
    line_is_half: Results, BOTH, HEALS, [lines(SpoiltLine::Half)];
    line_is_blank: Results, BOTH, HEALS, [lines(SpoiltLine::Blank)];
    line_has_bom: Results, BOTH, HEALS, [lines(SpoiltLine::ByteOrderMark)];
    line_is_not_utf8: Results, BOTH, HEALS, [lines(SpoiltLine::NotUtf8)];
    line_is_a_list: Results, BOTH, HEALS, [lines(SpoiltLine::NotAnObject)];
    line_without_custom_id: Results, BOTH, HEALS, [lines(SpoiltLine::MissingCustomId)];
    line_with_null_custom_id: Results, BOTH, HEALS, [lines(SpoiltLine::NullCustomId)];
    line_with_foreign_custom_id: Results, BOTH, HEALS, [lines(SpoiltLine::ForeignCustomId)];
    line_without_result: Results, BOTH, STAYS, [lines(SpoiltLine::MissingResult)];
    line_without_outcome: Results, BOTH, STAYS, [lines(SpoiltLine::MissingOutcome)];
    line_of_unknown_outcome: Results, BOTH, STAYS, [lines(SpoiltLine::UnknownOutcome)];
    line_with_null_message: Results, BOTH, STAYS, [lines(SpoiltLine::NullMessage)];
    answer_has_lone_surrogate: Results, BOTH, STAYS, [lines(SpoiltLine::LoneSurrogate)];
    answer_has_nul: Results, BOTH, HEALS, [lines(SpoiltLine::Nul)];
    answer_has_huge_number: Results, BOTH, STAYS, [lines(SpoiltLine::HugeNumber)];
    answer_has_infinite_number: Results, BOTH, STAYS, [lines(SpoiltLine::InfiniteNumber)];
    answer_is_deep: Results, BOTH, STAYS, [lines(SpoiltLine::Deep(200))];
    answer_is_long: Results, BOTH, STAYS, [Fault::SpoilLines { every: 3, with: SpoiltLine::Long(64 * MIB) }];
    answer_has_unknown_block: Results, BOTH, HEALS, [lines(SpoiltLine::UnknownBlock)];
    answer_has_unknown_stop_reason: Results, BOTH, HEALS, [lines(SpoiltLine::UnknownStopReason)];
    answer_has_null_stop_reason: Results, BOTH, HEALS, [lines(SpoiltLine::NullStopReason)];
    answer_has_unknown_fields: Results, BOTH, HEALS, [lines(SpoiltLine::UnknownFields)];
    answer_has_null_content: Results, BOTH, STAYS, [lines(SpoiltLine::NullContent)];
    answer_has_null_usage: Results, BOTH, STAYS, [lines(SpoiltLine::NullUsage)];
    answer_has_no_usage: Results, BOTH, STAYS, [lines(SpoiltLine::MissingUsage)];
    answer_has_null_tokens: Results, BOTH, STAYS, [lines(SpoiltLine::NullTokens)];
    error_is_null: Results, BOTH, STAYS, [Fault::SpoilLines { every: 1, with: SpoiltLine::NullError }];

    live_cut: Live, BOTH, HEALS, [Fault::Cut];
    live_accepted_then_cut: Live, BOTH, HEALS, [Fault::AcceptThenCut];
    live_accepted_then_500: Live, BOTH, HEALS, [Fault::AcceptThenStatus(500)];
    live_429: Live, BOTH, HEALS, [Fault::RateLimited { retry_after: None }];
    live_429_retry_after: Live, BOTH, HEALS, [Fault::rate_limited(1)];
    live_500: Live, BOTH, HEALS, [Fault::status(500)];
    live_529: Live, BOTH, HEALS, [Fault::status(529)];
    live_held: Live, BOTH, HEALS, [Fault::HoldFor(A_MOMENT)];
    live_spend_cap: Live, BOTH, STAYS, [Fault::SpendCap];
}
