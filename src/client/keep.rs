//! Keeping the records of runs longer than others.

use super::Client;
use crate::error::Error;

impl Client {
    /// Keeps the records of a run, with those of the run at the top of its tree and of all branches, until
    /// [`release_hold`](Self::release_hold). `by` and `why` are for the record. Holding again replaces them.
    ///
    /// # Errors
    /// [`Error::UnknownRun`]; [`Error::Removed`] when they are gone already.
    pub async fn hold(&self, run_id: &str, by: &str, why: &str) -> Result<(), Error> {
        if self.store().hold(run_id, by, why).await? {
            return Ok(());
        }
        self.run(run_id).await?;
        Err(Error::Removed(run_id.to_owned()))
    }

    /// Lets go of records that were held: they are removed when their time is over, which may be at once. Answers whether they were
    /// held.
    ///
    /// # Errors
    /// [`Error::UnknownRun`].
    pub async fn release_hold(&self, run_id: &str) -> Result<bool, Error> {
        self.run(run_id).await?;
        Ok(self.store().release_hold(run_id).await?)
    }
}
