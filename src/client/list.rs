//! Listing runs: by workflow, status, tag, age and what they wait for; the newest first, page by page.

use super::Client;
use crate::domain::{RunStatus, WaitKind};
use crate::error::Error;
use crate::store::{RunView, Wanted};
use chrono::{DateTime, TimeDelta, Utc};
use std::fmt;
use std::str::FromStr;

/// Keys looked at for one page, at most.
const SCAN: i64 = 5_000;
/// Runs are numbered in the order in which they are made, but for statements that overlap.
const OVERLAP: TimeDelta = TimeDelta::minutes(10);

/// Which runs: those of which everything holds that is said here.
///
/// ```
/// # use longhaul::{Filter, RunStatus};
/// let filter = Filter::new().workflow("speeches").status(RunStatus::Failed).tag("customer-7");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    pub(super) workflow: Option<String>,
    pub(super) statuses: Vec<RunStatus>,
    pub(super) tag: Option<String>,
    pub(super) newer_than: Option<DateTime<Utc>>,
    pub(super) older_than: Option<DateTime<Utc>>,
    pub(super) waits_for: Option<WaitKind>,
    pub(super) roots: bool,
}

impl Filter {
    /// All runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Of a workflow, whatever its version.
    #[must_use]
    pub fn workflow(mut self, name: impl Into<String>) -> Self {
        self.workflow = Some(name.into());
        self
    }

    /// With this status; said more than once, with any of them.
    #[must_use]
    pub fn status(mut self, status: RunStatus) -> Self {
        if !self.statuses.contains(&status) {
            self.statuses.push(status);
        }
        self
    }

    /// With this tag. Runs that were enqueued have tags; their branches are not found by it.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Enqueued after that moment, by the database's clock.
    #[must_use]
    pub fn newer_than(mut self, at: DateTime<Utc>) -> Self {
        self.newer_than = Some(at);
        self
    }

    /// Enqueued before that moment, by the database's clock.
    #[must_use]
    pub fn older_than(mut self, at: DateTime<Utc>) -> Self {
        self.older_than = Some(at);
        self
    }

    /// Waiting for something of this kind.
    #[must_use]
    pub fn waits_for(mut self, kind: WaitKind) -> Self {
        self.waits_for = Some(kind);
        self
    }

    /// Without the branches of forks.
    #[must_use]
    pub fn roots(mut self) -> Self {
        self.roots = true;
        self
    }

    fn check(&self) -> Result<(), Error> {
        let never = |why: &str| Err(Error::InvalidFilter(why.to_owned()));
        if self.waits_for.is_some() && !self.statuses.is_empty() && self.statuses != [RunStatus::Waiting] {
            return never("only waiting runs wait for something: leave the status out");
        }
        if self.statuses.iter().any(|s| matches!(s, RunStatus::Unknown(_)))
            || matches!(self.waits_for, Some(WaitKind::Unknown(_)))
        {
            return never("a status or a kind of wait that this version does not know cannot be looked for");
        }
        match (self.newer_than, self.older_than) {
            (Some(newer), Some(older)) if newer >= older => never("nothing is newer and older at once: exchange them"),
            _ => Ok(()),
        }
    }
}

/// A place in a list: where the next page begins. It may be kept as its text; it stays valid whatever happens to the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub(super) i64);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let key = text.strip_prefix('r').and_then(|key| key.parse().ok());
        key.map(Self).ok_or_else(|| Error::InvalidCursor(text.chars().take(64).collect()))
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The runs, the newest first. May be fewer than asked for, even none, though there are more.
    pub runs: Vec<RunView>,
    /// Where the next page begins; `None` when there is none.
    pub next: Option<Cursor>,
}

impl Client {
    /// A page of the runs that fit, the newest first, at most `limit`. Each page costs a bounded look into an index, whatever the
    /// size of the tables: when few of the runs that were looked at fit, the page is short and says where to go on.
    ///
    /// ```no_run
    /// # use longhaul::{Client, Filter, RunStatus};
    /// # async fn f(client: Client) -> Result<(), longhaul::Error> {
    /// let (filter, mut after) = (Filter::new().status(RunStatus::Failed), None);
    /// loop {
    ///     let page = client.list(&filter, after, 100).await?;
    ///     page.runs.iter().for_each(|run| println!("{}", run.run_id));
    ///     after = page.next;
    ///     if after.is_none() { break }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidFilter`] when nothing can ever fit; [`Error::UnknownWorkflow`]; [`Error::Store`].
    pub async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: u32) -> Result<Page, Error> {
        let wanted = self.wanted(filter).await?;
        self.page(&wanted, after.unwrap_or(Cursor(i64::MAX)), limit).await
    }

    /// Checks a filter and looks up what it names.
    pub(super) async fn wanted(&self, filter: &Filter) -> Result<Wanted, Error> {
        filter.check()?;
        let workflows = match &filter.workflow {
            Some(name) => Some(self.versions(name).await?),
            None => None,
        };
        let mut statuses = filter.statuses.clone();
        if filter.waits_for.is_some() && statuses.is_empty() {
            statuses.push(RunStatus::Waiting);
        }
        Ok(Wanted {
            workflows,
            statuses,
            tag: filter.tag.clone(),
            newer_than: filter.newer_than,
            older_than: filter.older_than,
            waits_for: filter.waits_for,
            roots: filter.roots,
        })
    }

    /// The keys of a workflow's versions.
    pub(super) async fn versions(&self, name: &str) -> Result<Vec<i32>, Error> {
        match self.store().workflow_keys(Some(name)).await? {
            none if none.is_empty() => Err(Error::UnknownWorkflow(name.to_owned())),
            keys => Ok(keys),
        }
    }

    pub(super) async fn page(&self, wanted: &Wanted, after: Cursor, limit: u32) -> Result<Page, Error> {
        let store = self.store();
        let limit = i64::from(limit.max(1));
        let plain = *wanted == Wanted::default();
        let scan = if plain { limit } else { SCAN.max(limit) };
        let walks = wanted.statuses.is_empty() || wanted.statuses.contains(&RunStatus::Completed);
        let keys = match &wanted.tag {
            Some(tag) => store.tagged(tag, after.0, scan).await?,
            None if walks => store.newest(after.0, scan).await?,
            None => {
                let workflows = match &wanted.workflows {
                    Some(keys) => keys.clone(),
                    None => store.workflow_keys(None).await?,
                };
                store.open_runs(&workflows, &wanted.statuses, after.0, scan).await?
            }
        };
        let runs = store.views(&keys, wanted, limit).await?;
        let last = if runs.len() as i64 == limit {
            runs.last().map(|run| run.key.0)
        } else {
            keys.last().copied().filter(|_| keys.len() as i64 == scan)
        };
        let next = match (last, wanted.newer_than) {
            (Some(key), Some(newer)) => {
                let made = store.made_at(key).await?;
                made.is_none_or(|made| made >= newer - OVERLAP).then_some(key)
            }
            (last, _) => last,
        };
        Ok(Page { runs, next: next.map(Cursor) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_kept_as_text() {
        assert_eq!("r17".parse::<Cursor>().ok(), Some(Cursor(17)));
        assert_eq!(Cursor(17).to_string(), "r17");
        for bad in ["", "17", "r", "rx", "r1.5", "r99999999999999999999"] {
            assert_eq!(bad.parse::<Cursor>().map_err(|e| e.code()), Err("invalid-cursor"), "{bad}");
        }
    }

    #[test]
    fn what_can_never_fit_is_refused() {
        let at = DateTime::<Utc>::UNIX_EPOCH;
        let bad = [
            Filter::new().status(RunStatus::Failed).waits_for(WaitKind::Human),
            Filter::new().status(RunStatus::Unknown(9)),
            Filter::new().newer_than(at).older_than(at),
        ];
        for filter in bad {
            assert_eq!(filter.check().map_err(|e| e.code()), Err("invalid-filter"), "{filter:?}");
        }
        assert!(Filter::new().waits_for(WaitKind::Human).status(RunStatus::Waiting).check().is_ok());
    }
}
