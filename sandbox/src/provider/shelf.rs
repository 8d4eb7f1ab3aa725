//! All batches of a sandbox, in the order of their creation.

use std::collections::{BTreeMap, HashMap};

use super::batch::Batch;
use super::canonical::provider_id;

/// The batches. Each has a number that rises with creation and is never used again.
#[derive(Default)]
pub(crate) struct Shelf {
    batches: BTreeMap<u64, Batch>,
    numbers: HashMap<String, u64>,
    created: u64,
    /// Ids given out: more than batches, while one is still to come to exist.
    named: u64,
}

/// Which part of the list is asked for.
pub(crate) enum Cursor {
    Newest,
    /// Just older than this batch.
    After(String),
    /// Just newer than this batch.
    Before(String),
}

/// One page of the list, newest first.
pub(crate) struct Page<'a> {
    pub(crate) batches: Vec<&'a Batch>,
    pub(crate) has_more: bool,
}

impl Shelf {
    /// An id that no batch has had.
    pub(crate) fn next_id(&mut self, prefix: &str, seed: u64) -> String {
        let id = provider_id(prefix, &format!("{seed}/{}", self.named));
        self.named += 1;
        id
    }

    pub(crate) fn add(&mut self, batch: Batch) {
        self.numbers.insert(batch.id.clone(), self.created);
        self.batches.insert(self.created, batch);
        self.created += 1;
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Batch> {
        self.batches.get(self.numbers.get(id)?)
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut Batch> {
        self.batches.get_mut(self.numbers.get(id)?)
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Batch> {
        self.batches.remove(&self.numbers.remove(id)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Batch> {
        self.batches.values()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.batches.values().map(|batch| batch.id.clone()).collect()
    }

    /// `None` when the cursor's batch is unknown.
    pub(crate) fn page(&self, cursor: &Cursor, limit: usize) -> Option<Page<'_>> {
        let number = |id: &String| self.numbers.get(id).copied();
        let mut batches: Vec<&Batch> = match cursor {
            Cursor::Newest => self.older_than(u64::MAX, limit),
            Cursor::After(id) => self.older_than(number(id)?, limit),
            Cursor::Before(id) => {
                let newer = self.batches.range(number(id)? + 1..).map(|(_, batch)| batch);
                newer.filter(|batch| batch.listed()).take(limit + 1).collect()
            }
        };
        let has_more = batches.len() > limit;
        batches.truncate(limit);
        if matches!(cursor, Cursor::Before(_)) {
            batches.reverse();
        }
        Some(Page { batches, has_more })
    }

    /// One more than the limit, to know whether there are more.
    fn older_than(&self, number: u64, limit: usize) -> Vec<&Batch> {
        let older = self.batches.range(..number).rev().map(|(_, batch)| batch);
        older.filter(|batch| batch.listed()).take(limit + 1).collect()
    }
}
