//! Money: what was spent, what may be spent, and holding accounts back.

use super::Client;
use crate::domain::RunKey;
use crate::domain::limits::NAME_BYTES;
use crate::error::Error;
use crate::store::{AccountView, BudgetStanding, CostLine, CostSums, Hint};
use chrono::{DateTime, NaiveDate, Utc};
use serde::Serialize;
use std::fmt;

/// Whose costs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CostsOf {
    /// Everything that was ever paid for, also by runs whose records are gone.
    #[default]
    Everything,
    /// One run, without its branches.
    Run(String),
    /// The run at the top of this run's tree, with all branches.
    Root(String),
    /// All runs of a workflow, by its name, also those whose records are gone.
    Workflow(String),
    /// All that was sent for an account, by its id.
    Account(i32),
    /// All runs that were enqueued with a tag, with all their branches, as long as their records are there.
    Tag(String),
}

/// Which costs: whose, and from when on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Costs {
    /// Whose.
    pub of: CostsOf,
    /// From the beginning of this day on, by UTC. Of a run, by when an answer was read; else by when its batch was settled.
    pub since: Option<NaiveDate>,
}

impl From<CostsOf> for Costs {
    fn from(of: CostsOf) -> Self {
        Self { of, since: None }
    }
}

/// What answers cost. A model without a known price is counted (`unpriced`), and in no sum of money.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CostReport {
    /// All together.
    pub total: CostSums,
    /// By workflow, account and model.
    pub lines: Vec<CostLine>,
}

/// Who spends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "of", content = "name", rename_all = "snake_case")]
pub enum Spender {
    /// An account, by its id.
    Account(i32),
    /// All runs of a workflow, by its name.
    Workflow(String),
    /// A run with all its branches, by the id it was enqueued under.
    Run(String),
}

impl fmt::Display for Spender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(id) => write!(f, "account `{id}`"),
            Self::Workflow(name) => write!(f, "workflow `{name}`"),
            Self::Run(id) => write!(f, "run `{id}`"),
        }
    }
}

/// How long a budget lasts. Days and months are those of UTC, by the database's clock; what was spent belongs to the day on which its
/// batch was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// For ever.
    #[default]
    Total,
    /// It is renewed each day.
    Day,
    /// It is renewed each month.
    Month,
}

/// How much may be spent. Requests that it has no room for are held, not failed: they go out when it is raised, when it is
/// renewed, or when a batch comes to cost less than was reserved for it.
///
/// Before a batch is sealed, what each of its requests may come to cost at most is reserved, from its length, its `max_tokens` and the
/// price of its model. So the limit is exceeded only by what answers cost beyond their estimate, by requests without a
/// known price, and by batches that were made up before the budget was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// Who spends.
    pub of: Spender,
    /// How long it lasts.
    pub period: Period,
    /// In nano-dollars (a billionth of a dollar). With 0, nothing is sent whose price is known and not 0.
    pub limit_nano_usd: i64,
    /// Whether requests go out whose price is not known. They are in no sum.
    pub unpriced: bool,
}

impl Budget {
    /// A budget in nano-dollars that lasts for ever, and lets requests without a known price pass.
    pub fn new(of: Spender, limit_nano_usd: i64) -> Self {
        Self { of, period: Period::Total, limit_nano_usd, unpriced: true }
    }

    /// Renewed each day or month.
    #[must_use]
    pub fn per(self, period: Period) -> Self {
        Self { period, ..self }
    }

    /// Holds requests without a known price.
    #[must_use]
    pub fn priced_only(self) -> Self {
        Self { unpriced: false, ..self }
    }
}

/// A budget as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BudgetView {
    /// What was set.
    #[serde(flatten)]
    pub budget: Budget,
    /// What was spent in this period, in nano-dollars, by batches that are settled.
    pub spent: i64,
    /// What batches under way may come to cost, at most.
    pub in_flight: i64,
    /// Requests that it holds.
    pub held: i64,
    /// When it is renewed.
    pub ends_at: Option<DateTime<Utc>>,
    /// When it was set last.
    pub set_at: DateTime<Utc>,
    /// Who set it.
    pub by: String,
}

impl fmt::Display for BudgetView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.budget.period {
            Period::Total => "",
            Period::Day => " today",
            Period::Month => " this month",
        };
        let [spent, limit, in_flight] = [self.spent, self.budget.limit_nano_usd, self.in_flight].map(dollars);
        write!(f, "{}: {spent} of {limit} dollars spent{per}, {in_flight} in flight", self.budget.of)
    }
}

/// What can be held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "of", content = "name", rename_all = "snake_case")]
pub enum Pausable {
    /// All that asks a provider, by the name that nodes have it under.
    Provider(String),
    /// All that is sent for an account, by its id.
    Account(i32),
}

/// Something that is held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// What.
    #[serde(flatten)]
    pub of: Pausable,
    /// Who said so.
    pub by: String,
    /// Why.
    pub why: String,
}

/// Nano-dollars as dollars, exactly, with two decimals at least.
pub(super) fn dollars(nano_usd: i64) -> String {
    let (sign, all) = (if nano_usd < 0 { "-" } else { "" }, nano_usd.unsigned_abs());
    let decimals = format!("{:09}", all % 1_000_000_000);
    let kept = decimals.trim_end_matches('0').len().max(2);
    format!("{sign}{}.{}", all / 1_000_000_000, &decimals[..kept])
}

impl Client {
    /// What was spent, in batches and by live calls. Of runs and their branches it is read from their records, as long as these are
    /// there; of a workflow or account from sums that stay.
    ///
    /// ```no_run
    /// # async fn f(client: longhaul::Client) -> Result<(), longhaul::Error> {
    /// use longhaul::CostsOf;
    /// let report = client.costs(CostsOf::Workflow("greetings".into())).await?;
    /// println!("{} answers for {} nano-dollars", report.total.items, report.total.nano_usd);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownRun`]; [`Error::Removed`] when the records of that run are gone.
    pub async fn costs(&self, costs: impl Into<Costs>) -> Result<CostReport, Error> {
        let Costs { of, since } = costs.into();
        let store = self.store();
        let lines = match &of {
            CostsOf::Everything => store.costs(None, None, since).await?,
            CostsOf::Workflow(name) => store.costs(Some(name), None, since).await?,
            CostsOf::Account(id) => store.costs(None, Some(*id), since).await?,
            CostsOf::Run(id) => {
                let view = self.run(id).await?;
                if view.removed_at.is_some() {
                    return Err(Error::Removed(id.clone()));
                }
                store.costs_of(view.key, false, since).await?
            }
            CostsOf::Tag(tag) => store.costs_tagged(tag, since).await?,
            CostsOf::Root(id) => store.costs_of(self.top(id).await?, true, since).await?,
        };
        let mut total = CostSums::default();
        lines.iter().for_each(|line| total += line.sums);
        Ok(CostReport { total, lines })
    }

    async fn top(&self, run_id: &str) -> Result<RunKey, Error> {
        match self.store().top(run_id).await? {
            Some(key) => Ok(RunKey(key)),
            None => {
                self.run(run_id).await?;
                Err(Error::Removed(run_id.to_owned()))
            }
        }
    }

    /// Sets a budget, or changes the one that this spender has for this period. It binds batches that are made up from now on; raised, it
    /// lets go of what it held, at once where a node listens. `by` is for the record.
    ///
    /// ```no_run
    /// # async fn f(client: longhaul::Client) -> Result<(), longhaul::Error> {
    /// use longhaul::{Budget, Period, Spender};
    /// let five_dollars = 5_000_000_000;
    /// client.set_budget(&Budget::new(Spender::Workflow("greetings".into()), five_dollars).per(Period::Day), "ada").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Budget`] for a limit below 0 or a name that no workflow can have; [`Error::UnknownAccount`]; [`Error::UnknownRun`] and
    /// [`Error::Removed`].
    pub async fn set_budget(&self, budget: &Budget, by: &str) -> Result<(), Error> {
        if budget.limit_nano_usd < 0 {
            return Err(Error::Budget("its limit is below 0".into()));
        }
        let subject = self.subject(&budget.of).await?;
        let key = (kind(&budget.of), subject.as_str(), period(budget.period));
        self.store().set_budget(key, Some(budget.limit_nano_usd), budget.unpriced, by).await?;
        self.nudge_senders().await
    }

    /// Takes a budget away, and so lets go of what it held. Answers whether there was one.
    ///
    /// # Errors
    /// As [`set_budget`](Self::set_budget).
    pub async fn clear_budget(&self, of: &Spender, per: Period, by: &str) -> Result<bool, Error> {
        let subject = self.subject(of).await?;
        let cleared = self.store().set_budget((kind(of), &subject, period(per)), None, true, by).await?;
        self.nudge_senders().await?;
        Ok(cleared)
    }

    /// There may be something to send, in a batch or live.
    async fn nudge_senders(&self) -> Result<(), Error> {
        self.store().nudge(Hint::Requests).await?;
        Ok(self.store().nudge(Hint::Calls).await?)
    }

    async fn subject(&self, of: &Spender) -> Result<String, Error> {
        match of {
            Spender::Account(id) => {
                self.known_account(*id).await?;
                Ok(id.to_string())
            }
            Spender::Workflow(name) if name.is_empty() || name.len() > NAME_BYTES => {
                Err(Error::Budget(format!("the name of a workflow has 1 to {NAME_BYTES} bytes")))
            }
            Spender::Workflow(name) => Ok(name.clone()),
            Spender::Run(id) => Ok(self.top(id).await?.0.to_string()),
        }
    }

    async fn known_account(&self, id: i32) -> Result<(), Error> {
        let known = self.accounts().await?.iter().any(|account| account.id == id);
        if known { Ok(()) } else { Err(Error::UnknownAccount(id)) }
    }

    /// All budgets, and how far they are used up.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn budgets(&self) -> Result<Vec<BudgetView>, Error> {
        Ok(self.store().budgets().await?.into_iter().map(view).collect())
    }

    /// All accounts: where batches go, who sends for them, what holds them back, and what they have spent.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn accounts(&self) -> Result<Vec<AccountView>, Error> {
        Ok(self.store().accounts().await?)
    }

    /// Seals no batch for a provider or an account until [`resume`](Self::resume). What is at the provider already is read as ever, and
    /// what waits keeps waiting. Pausing again replaces `by` and `why`.
    ///
    /// # Errors
    /// [`Error::UnknownAccount`].
    pub async fn pause_sends(&self, of: &Pausable, by: &str, why: &str) -> Result<(), Error> {
        let (kind, subject) = self.pausable(of).await?;
        Ok(self.store().pause_sends(kind, &subject, by, why).await?)
    }

    /// Ends a pause. An account that was parked, because its provider had refused it, or was asked to wait, is tried again. Answers
    /// whether there was anything to end.
    ///
    /// # Errors
    /// [`Error::UnknownAccount`].
    pub async fn resume_sends(&self, of: &Pausable) -> Result<bool, Error> {
        let (kind, subject) = self.pausable(of).await?;
        let resumed = self.store().resume_sends(kind, &subject).await?;
        self.nudge_senders().await?;
        Ok(resumed)
    }

    async fn pausable(&self, of: &Pausable) -> Result<(i16, String), Error> {
        match of {
            Pausable::Provider(name) => Ok((1, name.clone())),
            Pausable::Account(id) => {
                self.known_account(*id).await?;
                Ok((2, id.to_string()))
            }
        }
    }

    /// What is paused.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn pauses(&self) -> Result<Vec<Pause>, Error> {
        let pauses = self.store().pauses().await?.into_iter().map(|(kind, subject, by, why)| {
            let of = match subject.parse() {
                Ok(id) if kind == 2 => Pausable::Account(id),
                _ => Pausable::Provider(subject),
            };
            Pause { of, by, why }
        });
        Ok(pauses.collect())
    }
}

fn kind(of: &Spender) -> i16 {
    match of {
        Spender::Account(_) => 1,
        Spender::Workflow(_) => 2,
        Spender::Run(_) => 3,
    }
}

fn period(period: Period) -> i16 {
    match period {
        Period::Total => 0,
        Period::Day => 1,
        Period::Month => 2,
    }
}

fn view(s: BudgetStanding) -> BudgetView {
    let of = match (s.kind, s.subject.parse()) {
        (1, Ok(id)) => Spender::Account(id),
        (2, _) => Spender::Workflow(s.subject),
        _ => Spender::Run(s.subject),
    };
    let period = match s.period {
        1 => Period::Day,
        2 => Period::Month,
        _ => Period::Total,
    };
    BudgetView {
        budget: Budget { of, period, limit_nano_usd: s.limit, unpriced: s.unpriced },
        spent: s.spent,
        in_flight: s.in_flight,
        held: s.held,
        ends_at: s.ends_at,
        set_at: s.set_at,
        by: s.by,
    }
}
