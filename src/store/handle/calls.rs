//! The statements of live calls as actors make them: within their time, and again where two may cross.

use super::{Result, Store, live, ms, within};
use crate::domain::NodeId;
use crate::provider::Usage;
use crate::store::live::{CallKey, Caller, DueCall, Fate, LiveTotals, Unanswered};
use std::time::Duration;

impl Store {
    pub(crate) async fn due_calls(&self, of: Caller<'_>, limit: usize) -> Result<Vec<DueCall>> {
        within(live::due(&self.pool, of, limit as i64)).await
    }

    pub(crate) async fn claim_calls(&self, of: Caller<'_>, due: &[DueCall]) -> Result<Vec<CallKey>> {
        within(live::claim(&self.pool, of, due)).await
    }

    /// In how many milliseconds the next live call is due.
    pub(crate) async fn next_call(&self, of: Caller<'_>) -> Result<Option<i64>> {
        within(live::next(&self.pool, of)).await
    }

    pub(crate) async fn unheld_calls(
        &self,
        node: NodeId,
        account: Option<i32>,
        held: &[CallKey],
    ) -> Result<Vec<CallKey>> {
        within(live::unheld(&self.pool, node, account, held)).await
    }

    /// As the statement, and again when nobody seemed to wait: a retry of the run may have crossed it.
    pub(crate) async fn answer_call(
        &self,
        call: CallKey,
        body: &str,
        model: Option<&str>,
        usage: Option<Usage>,
        nano_usd: Option<i64>,
    ) -> Result<bool> {
        let once = async || within(live::answer(&self.pool, call, body, model, usage, nano_usd)).await;
        Ok(once().await? || once().await?)
    }

    /// As the statement, and again when nobody seemed to wait: a retry of the run may have crossed it.
    pub(crate) async fn call_unanswered(
        &self,
        call: CallKey,
        what: &Unanswered,
        budget: u32,
        delay: Duration,
    ) -> Result<Fate> {
        let budget = i16::try_from(budget).unwrap_or(i16::MAX);
        let once = async || within(live::unanswered(&self.pool, call, what, budget, ms(delay))).await;
        match once().await? {
            Fate::Nothing => once().await,
            fate => Ok(fate),
        }
    }

    pub(crate) async fn pause_calls(&self, account: i32, asked: Option<Duration>) -> Result<()> {
        within(live::pause(&self.pool, account, asked.map(ms))).await
    }

    pub(crate) async fn live_totals(&self) -> Result<LiveTotals> {
        within(live::totals(&self.pool)).await
    }
}
