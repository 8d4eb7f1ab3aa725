//! How a node is set up: every figure with its unit, and all of them checked before anything starts.

use std::time::Duration;

/// The settings of a node. The defaults are for services; tests and the demo use shorter leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What the node is called in listings; not its identity.
    pub name: String,
    /// How often everything is looked at again without having been told (5 s).
    pub poll_interval: Duration,
    /// How often a batch at the provider is asked for, at most (60 s); a young or small batch is asked for sooner.
    pub batch_poll_interval: Duration,
    /// How long the first request of a batch waits for company (1 s).
    pub linger: Duration,
    /// Requests that make a batch worth sending while another one is in flight (100).
    pub min_batch_requests: usize,
    /// How long a request may wait for its batch while another one is in flight (5 min).
    pub max_batch_age: Duration,
    /// Requests per batch at most (10,000).
    pub max_batch_requests: usize,
    /// Bytes per batch at most (32 MB).
    pub max_batch_bytes: usize,
    /// How long sending a batch may take (10 min).
    pub send_limit: Duration,
    /// How long an ambiguous send is looked for before its requests go out again (15 min), counted from when sending must
    /// have been over.
    pub quarantine: Duration,
    /// How long results are read again for requests that they lack, before those are given up as missing (1 h).
    pub missing_after: Duration,
    /// How often a provider's listing is looked through for batches that were given up on and show up late (10 min), for two days.
    pub late_sweep: Duration,
    /// Runs that one node holds at most (512).
    pub runs_in_flight: usize,
    /// Bytes of inputs and states that one claim loads at most (64 MB).
    pub claim_bytes: usize,
    /// How often a node tells that it lives (2 s).
    pub heartbeat: Duration,
    /// How long a node may go without progress before others take over what it holds (15 s).
    pub lease: Duration,
    /// How long a shutdown waits for steps that are running (30 s).
    pub grace: Duration,
    /// How often a provider may fail a request, in ways worth another attempt, before the run fails (5).
    pub model_attempts: u32,
    /// Live calls that one node makes at the same time, of each provider (16).
    pub live_calls: usize,
    /// How long a live call may take (10 min). After that nobody knows what became of it.
    pub live_limit: Duration,
    /// How long a batch is taken to take (1 h): a request with a [`deadline`](crate::ModelCall::deadline) goes live as soon as a batch
    /// that begins then would be later than it.
    pub batch_time: Duration,
    /// Connections for statements that are not hot (3); with those of heart, claimer, committer and listener 8 in all.
    pub pool_connections: u32,
    /// Steps declared blocking that run at the same time (8).
    pub blocking_steps: usize,
    /// How long records are kept of what is over.
    pub retention: Retention,
}

/// How long records are kept of runs that are over: a run that was enqueued and all its branches go together, with their ledgers,
/// bodies and items, once all of them are over and nothing of theirs is at a provider. Runs that are [held](crate::Client::hold)
/// stay. What is left is a tombstone of about 150 bytes: id, digest and outcome, so that the same enqueue does not run again.
///
/// Every node removes; the terms of the one with the shortest count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For runs that completed or were canceled (30 days). At least 2 days, in which late results may come; `None` keeps for ever.
    pub completed: Option<Duration>,
    /// For runs that failed, which can be set going again as long as their records are there (90 days). As above.
    pub failed: Option<Duration>,
    /// For tombstones, from the removal on (365 days). After that, the same enqueue is a new run. `None` keeps for ever.
    pub tombstones: Option<Duration>,
    /// How often a node looks for what is to be removed (60 s).
    pub interval: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self {
            completed: Some(30 * DAY),
            failed: Some(90 * DAY),
            tombstones: Some(365 * DAY),
            interval: Duration::from_secs(60),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "node".into(),
            poll_interval: Duration::from_secs(5),
            batch_poll_interval: Duration::from_secs(60),
            linger: Duration::from_secs(1),
            min_batch_requests: 100,
            max_batch_age: Duration::from_secs(300),
            max_batch_requests: 10_000,
            max_batch_bytes: 32 << 20,
            send_limit: Duration::from_secs(600),
            quarantine: Duration::from_secs(900),
            missing_after: Duration::from_secs(3600),
            late_sweep: Duration::from_secs(600),
            runs_in_flight: 512,
            claim_bytes: 64 << 20,
            heartbeat: Duration::from_secs(2),
            lease: Duration::from_secs(15),
            grace: Duration::from_secs(30),
            model_attempts: 5,
            live_calls: 16,
            live_limit: Duration::from_secs(600),
            batch_time: Duration::from_secs(3600),
            pool_connections: 3,
            blocking_steps: 8,
            retention: Retention::default(),
        }
    }
}

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the setting `{setting}` {rule}")]
pub struct InvalidConfig {
    /// Which.
    pub setting: &'static str,
    /// What it has to keep.
    pub rule: &'static str,
}

impl Config {
    /// Short leases and polls, for tests and demos on one machine: a lost node is taken over within a few seconds.
    pub fn brisk() -> Self {
        Self {
            poll_interval: Duration::from_millis(200),
            batch_poll_interval: Duration::from_millis(100),
            linger: Duration::from_millis(50),
            max_batch_age: Duration::from_secs(1),
            send_limit: Duration::from_secs(10),
            quarantine: Duration::from_secs(2),
            live_limit: Duration::from_secs(10),
            batch_time: Duration::from_secs(2),
            missing_after: Duration::from_secs(1),
            late_sweep: Duration::from_millis(500),
            heartbeat: Duration::from_millis(200),
            lease: Duration::from_secs(2),
            grace: Duration::from_secs(5),
            retention: Retention { interval: Duration::from_millis(500), ..Retention::default() },
            ..Self::default()
        }
    }

    /// Checks every figure.
    ///
    /// # Errors
    /// [`InvalidConfig`] names the first setting that cannot work.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let positive = [
            ("poll_interval", self.poll_interval),
            ("batch_poll_interval", self.batch_poll_interval),
            ("max_batch_age", self.max_batch_age),
            ("send_limit", self.send_limit),
            ("live_limit", self.live_limit),
            ("late_sweep", self.late_sweep),
            ("heartbeat", self.heartbeat),
            ("lease", self.lease),
            ("retention.interval", self.retention.interval),
        ];
        for (setting, value) in positive {
            if value.is_zero() {
                return Err(InvalidConfig { setting, rule: "must be longer than nothing" });
            }
        }
        // Late results are looked for as long as that.
        let kept = |term: Option<Duration>| term.is_none_or(|term| term >= Duration::from_secs(2 * 86_400));
        let rules = [
            ("retention.completed", kept(self.retention.completed), "must be at least 2 days"),
            ("retention.failed", kept(self.retention.failed), "must be at least 2 days"),
            ("heartbeat", self.heartbeat * 3 <= self.lease, "must be at most a third of the lease"),
            ("lease", self.lease <= Duration::from_secs(3600), "must be at most an hour"),
            ("runs_in_flight", (1..=100_000).contains(&self.runs_in_flight), "must be between 1 and 100,000"),
            ("claim_bytes", self.claim_bytes > 0, "must be above 0"),
            ("max_batch_requests", (1..=100_000).contains(&self.max_batch_requests), "must be between 1 and 100,000"),
            ("max_batch_bytes", (1..=250_000_000).contains(&self.max_batch_bytes), "must be at most 250,000,000"),
            ("min_batch_requests", self.min_batch_requests >= 1, "must be at least 1"),
            ("quarantine", self.quarantine >= self.heartbeat, "must be at least one heartbeat"),
            ("pool_connections", (1..=100).contains(&self.pool_connections), "must be between 1 and 100"),
            ("live_calls", (1..=1_000).contains(&self.live_calls), "must be between 1 and 1,000"),
            ("blocking_steps", (1..=1_000).contains(&self.blocking_steps), "must be between 1 and 1,000"),
            ("name", !self.name.trim().is_empty() && self.name.len() <= 200, "must have 1 to 200 bytes"),
        ];
        match rules.into_iter().find(|(_, kept, _)| !kept) {
            Some((setting, _, rule)) => Err(InvalidConfig { setting, rule }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
        assert_eq!(Config::brisk().validate(), Ok(()));
    }

    #[test]
    fn a_heartbeat_slower_than_the_lease_allows_is_refused() {
        let config = Config { heartbeat: Duration::from_secs(6), ..Config::default() };
        assert_eq!(config.validate().unwrap_err().setting, "heartbeat");
    }

    #[test]
    fn zero_is_refused_everywhere() {
        for config in [
            Config { runs_in_flight: 0, ..Config::default() },
            Config { lease: Duration::ZERO, ..Config::default() },
            Config { max_batch_requests: 0, ..Config::default() },
            Config { max_batch_bytes: 0, ..Config::default() },
            Config { name: " ".into(), ..Config::default() },
            Config {
                retention: Retention { failed: Some(Duration::from_secs(86_400)), ..Retention::default() },
                ..Config::default()
            },
        ] {
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}
