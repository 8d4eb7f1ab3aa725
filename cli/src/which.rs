//! Which runs: the part of the command line that commands on many runs share.

use crate::error::CliError;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use longhaul::{Client, Cursor, Filter, RunStatus, WaitKind};
use std::time::Duration;

/// Of which runs everything holds that is said here.
#[derive(Debug, Clone, Args)]
pub(crate) struct FilterArgs {
    /// Of this workflow, whatever its version.
    #[arg(long, value_name = "NAME")]
    pub workflow: Option<String>,
    /// With this status; may be said several times.
    #[arg(long, value_name = "STATUS", value_parser = statuses())]
    pub status: Vec<RunStatus>,
    /// With this tag.
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// Waiting for something of this kind.
    #[arg(long, value_name = "KIND", value_parser = kinds())]
    pub kind: Option<WaitKind>,
    /// Enqueued less than so long ago: 30m, 12h, 7d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub newer_than: Option<Duration>,
    /// Enqueued more than so long ago.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Without the branches of forks.
    #[arg(long)]
    pub roots: bool,
}

/// A list, page by page.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Go on where an earlier list has stopped: what it printed as `next`.
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
}

impl FilterArgs {
    /// Whether anything is said.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { workflow, status, tag, kind, newer_than, older_than, roots } = self;
        let all = workflow.is_none() && status.is_empty() && tag.is_none() && kind.is_none();
        all && newer_than.is_none() && older_than.is_none() && !roots
    }

    /// The filter. Ages count from now by the database's clock.
    pub(crate) async fn filter(&self, client: &Client) -> Result<Filter, CliError> {
        let mut filter = self.status.iter().fold(Filter::new(), |filter, status| filter.status(*status));
        if let Some(workflow) = &self.workflow {
            filter = filter.workflow(workflow);
        }
        if let Some(tag) = &self.tag {
            filter = filter.tag(tag);
        }
        if let Some(kind) = self.kind {
            filter = filter.waits_for(kind);
        }
        if self.roots {
            filter = filter.roots();
        }
        if self.newer_than.is_some() || self.older_than.is_some() {
            let now = client.now().await?;
            if let Some(age) = self.newer_than {
                filter = filter.newer_than(now - age);
            }
            if let Some(age) = self.older_than {
                filter = filter.older_than(now - age);
            }
        }
        Ok(filter)
    }
}

impl PageArgs {
    /// Where to begin.
    pub(crate) fn cursor(&self) -> Result<Option<Cursor>, CliError> {
        Ok(self.after.as_deref().map(str::parse).transpose()?)
    }
}

/// Reads a status.
fn statuses() -> impl TypedValueParser<Value = RunStatus> {
    words(RunStatus::ALL.iter().map(|status| status.as_str()))
}

/// Reads a kind of wait.
pub(crate) fn kinds() -> impl TypedValueParser<Value = WaitKind> {
    words(WaitKind::ALL.iter().map(|kind| kind.as_str()))
}

/// Reads one of some words.
fn words<T>(words: impl Iterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = longhaul::domain::status::UnknownWord> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

/// Reads `90s`, `30m`, `12h`, `7d`.
fn age(text: &str) -> Result<Duration, String> {
    let wrong = || "write a whole number and a unit: 90s, 30m, 12h, 7d".to_owned();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let age = number.checked_mul(seconds).filter(|age| *age <= 100 * 366 * 86_400);
    age.map(Duration::from_secs).ok_or_else(|| "at most a hundred years".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_unit() {
        assert_eq!(age("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(age("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "7", "d", "-1h", "1.5h", "99999999999999999999d", "99999999d", "1w"] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}
