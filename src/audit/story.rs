//! What the events of one run tell, read in their order.

use super::report::{Check, Report};
use crate::domain::EventType;
use crate::domain::lifecycle::statuses_after;
use crate::store::Code;
use crate::store::audit::EventRow;

/// A run's ledger, as far as it has been read.
#[derive(Debug, Default)]
pub(super) struct Story {
    /// The ordinal that should come next.
    pub(super) next: i32,
    /// The last event that says what the run is doing.
    pub(super) last: Option<EventType>,
    /// The step that was started last.
    pub(super) step: Option<String>,
    /// Whether that start has no outcome yet.
    started: bool,
    /// The event that ended the run.
    ended: Option<EventType>,
    /// Whether there are types that this version does not know: then the status cannot be told.
    pub(super) unknown: bool,
}

impl Story {
    pub(super) fn read(&mut self, event: &EventRow, report: &mut Report) {
        let subject = || format!("run {}", event.run);
        let kind = EventType::decode(event.kind);
        if event.ordinal != self.next {
            let detail = format!("has event {} where event {} should be", event.ordinal, self.next);
            report.add(Check::OrdinalsGapless, subject, detail);
        }
        self.next = event.ordinal.saturating_add(1);

        match (self.ended, kind) {
            (Some(_), EventType::RunRetried) => self.ended = None,
            (Some(end), _) => {
                let detail = format!("has event {} (`{kind}`) after `{end}`", event.ordinal);
                report.add(Check::NothingAfterTheEnd, subject, detail);
            }
            (None, EventType::RunCompleted | EventType::RunFailed | EventType::RunCanceled) => self.ended = Some(kind),
            (None, _) => {}
        }
        self.pair(event, kind, report);
        self.unknown |= matches!(kind, EventType::Unknown(_));
        if !statuses_after(kind).is_empty() {
            self.last = Some(kind);
        }
    }

    fn pair(&mut self, event: &EventRow, kind: EventType, report: &mut Report) {
        match kind {
            EventType::StepStarted => {
                self.started = true;
                self.step.clone_from(&event.step);
            }
            EventType::StepCompleted => {
                let subject = || format!("run {}", event.run);
                let name = event.step.as_deref().unwrap_or("?");
                if !self.started {
                    let detail = format!("completed step `{name}` at event {} without a start", event.ordinal);
                    report.add(Check::StepsPair, subject, detail);
                } else if self.step != event.step {
                    let started = self.step.as_deref().unwrap_or("?");
                    let detail =
                        format!("completed step `{name}` at event {}, but had started `{started}`", event.ordinal);
                    report.add(Check::StepsPair, subject, detail);
                }
                self.started = false;
            }
            EventType::StepFailed => self.started = false,
            _ => {}
        }
    }
}
