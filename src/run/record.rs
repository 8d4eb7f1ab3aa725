//! Events that steps record themselves.

use crate::domain::limits::{EVENT_PAYLOAD_BYTES, NAME_BYTES, RECORDS_PER_STEP};
use crate::domain::{Cause, EventId, EventType, InvalidJson, JsonText, NewEvent, Ordinal, RunKey};
use serde::Serialize;

/// The words that the engine's own event types begin with.
const RESERVED: [&str; 11] =
    ["run", "step", "model", "human", "external", "tools", "fork", "timer", "job", "partition", "custom"];

/// Why an event was not recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The type is not made of words.
    #[error(
        "`{0}` is no event type: use lower-case words with dots between them, such as `ticket.loaded`, in at most \
         {NAME_BYTES} bytes"
    )]
    InvalidType(String),
    /// The type begins with a word that the engine's own types begin with.
    #[error("the event type `{0}` begins with a word that the engine keeps for its own events")]
    ReservedType(String),
    /// The payload is too large, too deep or no JSON.
    #[error(transparent)]
    Payload(#[from] InvalidJson),
    /// The step has recorded as many events as it may in one execution.
    #[error("a step may record at most {RECORDS_PER_STEP} events in one execution")]
    TooMany,
    /// The cause would be an event of this run that does not exist.
    #[error("the cause {0} is no event of this run")]
    UnknownCause(EventId),
}

/// What a step has recorded so far.
#[derive(Debug)]
pub(super) struct Recorder {
    run: RunKey,
    cursor: Ordinal,
    pending: Vec<NewEvent>,
}

impl Recorder {
    /// Its first event gets the ordinal `cursor`.
    pub(super) fn new(run: RunKey, cursor: Ordinal) -> Self {
        Self { run, cursor, pending: Vec::new() }
    }

    /// What was recorded, for the transition.
    pub(super) fn take(&mut self) -> Vec<NewEvent> {
        std::mem::take(&mut self.pending)
    }

    pub(super) fn record<T: Serialize + ?Sized>(
        &mut self,
        kind: &str,
        data: &T,
        cause: Cause,
    ) -> Result<EventId, RecordError> {
        check_type(kind)?;
        if let Cause::Event(id) = cause {
            self.check_cause(id)?;
        }
        if self.pending.len() >= RECORDS_PER_STEP {
            return Err(RecordError::TooMany);
        }
        let payload = JsonText::of(&Payload { kind, data }, "the payload of an event", EVENT_PAYLOAD_BYTES)?;
        let ordinal = self.next_ordinal();
        let id = EventId::new(self.run, ordinal);
        self.pending.push(NewEvent { kind: EventType::Custom, nonce: id.nonce, cause, payload });
        Ok(id)
    }

    fn next_ordinal(&self) -> Ordinal {
        // At most RECORDS_PER_STEP are pending.
        self.cursor.saturating_add(self.pending.len() as Ordinal)
    }

    /// A cause is one of the pending events, or was durable before this execution; the latter is checked with the commit.
    fn check_cause(&self, cause: EventId) -> Result<(), RecordError> {
        if cause.run != self.run || (0..self.cursor).contains(&cause.ordinal) {
            return Ok(());
        }
        let pending = cause.ordinal.checked_sub(self.cursor).and_then(|place| usize::try_from(place).ok());
        match pending.and_then(|place| self.pending.get(place)) {
            Some(event) if event.nonce == cause.nonce => Ok(()),
            Some(_) | None => Err(RecordError::UnknownCause(cause)),
        }
    }
}

#[derive(Serialize)]
struct Payload<'a, T: ?Sized> {
    #[serde(rename = "type")]
    kind: &'a str,
    data: &'a T,
}

fn check_type(kind: &str) -> Result<(), RecordError> {
    let is_word = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_lowercase())
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
    };
    if kind.len() > NAME_BYTES || !kind.split('.').all(is_word) {
        return Err(RecordError::InvalidType(crate::domain::failure::cut(kind)));
    }
    match kind.split('.').next() {
        Some(first) if RESERVED.contains(&first) => Err(RecordError::ReservedType(kind.to_owned())),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Recorder {
        Recorder::new(RunKey(7), 5)
    }

    #[test]
    fn types_are_words_of_the_users_own() {
        for good in ["ticket", "ticket.loaded", "ticket.line_3.read", "runner.started", "a-b.c"] {
            assert_eq!(check_type(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "ticket.", ".loaded", "a..b", "Ticket", "ticket loaded", "3.a", "tïcket", &"x".repeat(129)]
        {
            assert!(matches!(check_type(bad), Err(RecordError::InvalidType(_))), "{bad}");
        }
        for reserved in ["run.done", "step.mine", "model", "partition.x", "timer.set", "custom"] {
            assert!(matches!(check_type(reserved), Err(RecordError::ReservedType(_))), "{reserved}");
        }
    }

    #[test]
    fn ids_count_on_from_the_cursor() {
        let mut recorder = recorder();
        let first = recorder.record("a.b", &1, Cause::Previous).unwrap();
        let second = recorder.record("a.c", "x", Cause::Event(first)).unwrap();
        assert_eq!((first.run, first.ordinal, second.ordinal), (RunKey(7), 5, 6));
        let events = recorder.take();
        assert_eq!(events[1].id(RunKey(7), 6), second);
        assert_eq!(events[1].cause, Cause::Event(first));
        assert_eq!(events[0].payload.as_str(), r#"{"type":"a.b","data":1}"#);
    }

    #[test]
    fn a_cause_is_pending_or_was_durable_before() {
        let mut recorder = recorder();
        let own = recorder.record("a.b", &(), Cause::Previous).unwrap();
        let mut try_cause = |cause| recorder.record("a.c", &(), Cause::Event(cause)).map(|_| ());
        assert_eq!(try_cause(EventId::new(RunKey(7), 4)), Ok(()));
        assert_eq!(try_cause(EventId::new(RunKey(8), 400)), Ok(()));
        assert_eq!(try_cause(own), Ok(()));
        for unknown in [
            EventId::new(RunKey(7), 5),
            EventId::new(RunKey(7), 99),
            EventId::new(RunKey(7), -1),
            EventId::new(RunKey(7), i32::MIN),
        ] {
            assert_eq!(try_cause(unknown), Err(RecordError::UnknownCause(unknown)));
        }
    }

    #[test]
    fn number_and_size_are_bounded() {
        let mut recorder = recorder();
        let large = "x".repeat(EVENT_PAYLOAD_BYTES);
        assert!(matches!(recorder.record("a.b", &large, Cause::Previous), Err(RecordError::Payload(_))));
        for _ in 0..RECORDS_PER_STEP {
            recorder.record("a.b", &(), Cause::Previous).unwrap();
        }
        assert_eq!(recorder.record("a.b", &(), Cause::Previous), Err(RecordError::TooMany));
    }
}
