//! The ledger of a run with all its branches, and what runs wait for.

use super::Client;
use super::list::{Cursor, Filter};
use crate::domain::RunStatus;
use crate::error::Error;
use crate::store::{EventView, TreePlace, WaitView};
use chrono::DateTime;
use std::fmt;
use std::str::FromStr;

/// A place in the ledger of a run and its branches. It may be kept as its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventCursor(TreePlace);

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, run, ordinal) = self.0;
        write!(f, "e{}.{run}.{ordinal}", at.timestamp_micros())
    }
}

impl FromStr for EventCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let place = || {
            let mut parts = text.strip_prefix('e')?.split('.');
            let at = DateTime::from_timestamp_micros(parts.next()?.parse().ok()?)?;
            let place = (at, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            parts.next().is_none().then_some(Self(place))
        };
        place().ok_or_else(|| Error::InvalidCursor(text.chars().take(64).collect()))
    }
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// Each with the id of its run, in the order of time.
    pub events: Vec<(String, EventView)>,
    /// Where the next page begins; `None` when there is none yet.
    pub next: Option<EventCursor>,
}

/// A page of waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitPage {
    /// The waits, those of the newest runs first. May be fewer than asked for, even none, though there are more.
    pub waits: Vec<WaitView>,
    /// Where the next page begins; `None` when there is none.
    pub next: Option<Cursor>,
}

impl Client {
    /// A page of the ledger of a run and of all branches below it, in the order of time, at most `limit` events. Complete for a run
    /// that is over. While it goes on, a commit that took long may write an event that is older than the last one read.
    ///
    /// # Errors
    /// [`Error::UnknownRun`]; [`Error::Store`].
    pub async fn tree_events(&self, run_id: &str, after: Option<EventCursor>, limit: u32) -> Result<EventPage, Error> {
        let root = self.run(run_id).await?.key;
        let limit = i64::from(limit.max(1));
        let events = self.store().tree_events(root, after.map(|after| after.0), limit).await?;
        let last = events.last().filter(|_| events.len() as i64 == limit);
        let next = last.map(|(_, event)| EventCursor((event.at, event.id.run.0, event.id.ordinal)));
        Ok(EventPage { events, next })
    }

    /// A page of what waiting runs wait for, at most `limit`.
    ///
    /// # Errors
    /// As [`Client::list`]; a filter by another status than waiting is an [`Error::InvalidFilter`].
    pub async fn waits(&self, filter: &Filter, after: Option<Cursor>, limit: u32) -> Result<WaitPage, Error> {
        let filter = filter.clone().status(RunStatus::Waiting);
        if filter.statuses != [RunStatus::Waiting] {
            return Err(Error::InvalidFilter("only waiting runs wait for something: leave the status out".into()));
        }
        let page = self.list(&filter, after, limit).await?;
        let runs: Vec<i64> = page.runs.iter().map(|run| run.key.0).collect();
        let waits = if runs.is_empty() { Vec::new() } else { self.store().waits(&runs).await? };
        Ok(WaitPage { waits, next: page.next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_as_text() {
        let place = EventCursor((DateTime::from_timestamp_micros(1_700_000_000_123_456).unwrap(), 7, 3));
        assert_eq!(place.to_string().parse::<EventCursor>().ok(), Some(place));
        for bad in ["", "e1.2", "e1.2.3.4", "r1.2.3", "ex.2.3"] {
            assert_eq!(bad.parse::<EventCursor>().map_err(|e| e.code()), Err("invalid-cursor"), "{bad}");
        }
    }
}
