//! The provider of the tests: a sandbox that answers by what it is asked, and its paid ledger.

use crate::flows::Asking;
use crate::support::{config, eventually};
use longhaul::provider::anthropic::{Anthropic, ApiKey};
use longhaul::provider::openai::OpenAi;
use longhaul::{BatchStatus, Config, Node};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{
    Answer, Config as SandboxConfig, Control, Fault, Operation, Paid, PaidLedger, RequestView, Sandbox, Summary, When,
};
use sqlx::PgConnection;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

pub struct Models {
    pub sandbox: Sandbox,
    pub control: Control,
}

impl Models {
    pub async fn start() -> Self {
        Self::with(SandboxConfig::default().processing(Duration::from_millis(30))).await
    }

    /// A sandbox whose batches end only when they are told to.
    pub async fn slow() -> Self {
        Self::with(SandboxConfig::default().processing(Duration::MAX)).await
    }

    pub async fn with(config: SandboxConfig) -> Self {
        let seen = Mutex::new(HashMap::<String, usize>::new());
        Self::answering(config.responder(move |request| answer(request, &seen))).await
    }

    /// A sandbox that answers as its configuration says.
    pub async fn answering(config: SandboxConfig) -> Self {
        let sandbox = Sandbox::start(config).await.unwrap();
        Self { control: sandbox.control(), sandbox }
    }

    pub fn provider(&self) -> Anthropic {
        Anthropic::new(ApiKey::new("sk-test")).unwrap().base_url(self.sandbox.base_url())
    }

    /// The same as a provider, if the sandbox speaks OpenAI's API.
    pub fn openai(&self) -> OpenAi {
        OpenAi::new(ApiKey::new("sk-test")).unwrap().base_url(self.sandbox.base_url())
    }

    pub fn inject(&self, operation: Operation, when: When, fault: Fault) {
        self.control.inject(operation, when, fault);
    }

    pub fn paid(&self) -> Vec<Paid> {
        PaidLedger::read(self.sandbox.ledger_path()).unwrap()
    }

    pub fn summary(&self) -> Summary {
        PaidLedger::summary(&self.paid())
    }

    /// A node that asks here.
    pub async fn node(&self, db: &TestDatabase, flow: &Asking) -> Node {
        self.node_with(db, flow, asking("a")).await
    }

    pub async fn node_with(&self, db: &TestDatabase, flow: &Asking, config: Config) -> Node {
        Node::builder(db.url())
            .workflow(flow.clone())
            .provider("claude", self.provider())
            .config(config)
            .start()
            .await
            .unwrap()
    }
}

/// Settings that let requests of a moment travel together, and a batch be looked at often.
pub fn asking(name: &str) -> Config {
    Config {
        linger: Duration::from_millis(250),
        batch_poll_interval: Duration::from_millis(50),
        max_batch_age: Duration::from_millis(300),
        ..config(name)
    }
}

fn answer(request: &RequestView<'_>, seen: &Mutex<HashMap<String, usize>>) -> Answer {
    let prompt = request.prompt();
    let n = {
        let mut seen = seen.lock().unwrap();
        let n = seen.entry(request.logical().to_owned()).or_default();
        *n += 1;
        *n
    };
    match prompt.as_str() {
        "invalid" => Answer::error("invalid_request_error", "no such thing"),
        "overloaded" => Answer::error("overloaded_error", "too much"),
        "overloaded twice" if n <= 2 => Answer::error("overloaded_error", "too much"),
        _ => Answer::text(format!("echo {prompt}")),
    }
}

/// What a batch of the tests is: its status and its id at the provider, the oldest first.
pub async fn batches(conn: &mut PgConnection) -> Vec<(i16, Option<String>)> {
    sqlx::query_as("select status, provider_batch_id from longhaul.batches order by id").fetch_all(conn).await.unwrap()
}

/// Waits until some batch is of this status.
pub async fn until_batch(conn: &mut PgConnection, status: BatchStatus) {
    let code = BatchStatus::ALL.iter().position(|s| *s == status).unwrap() as i16 + 1;
    eventually(&format!("a batch is {status}"), async || {
        batches(conn).await.iter().any(|(s, _)| *s == code).then_some(())
    })
    .await;
}

/// Nothing was paid twice, and what was paid is what is booked.
pub async fn check_paid(models: &Models, conn: &mut PgConnection) {
    let summary = models.summary();
    assert_eq!(summary.logical_paid_twice, 0, "{summary:?}");
    let (items, cost, read, written): (i64, i64, i64, i64) = sqlx::query_as(
        "select count(*), coalesce(sum(nano_usd), 0)::bigint, coalesce(sum(input_tokens), 0)::bigint,
             coalesce(sum(output_tokens), 0)::bigint from longhaul.batch_items where status in (3, 10)",
    )
    .fetch_one(&mut *conn)
    .await
    .unwrap();
    let paid = models.paid();
    assert_eq!(items, paid.len() as i64, "each paid item is booked once");
    assert_eq!(cost, summary.nano_usd_batch as i64);
    assert_eq!(read, paid.iter().map(|p| p.input_tokens as i64).sum::<i64>());
    assert_eq!(written, paid.iter().map(|p| p.output_tokens as i64).sum::<i64>());
    check_spent(conn).await;
}

/// The sums that stay are those of the items of settled batches, and nothing is reserved for those any more.
pub async fn check_spent(conn: &mut PgConnection) {
    type Sums = (i64, i64, i64, i64, i64);
    let booked: Sums = sqlx::query_as(
        "select count(*), count(*) filter (where i.nano_usd is null), count(*) filter (where i.status = 10),
             coalesce(sum(i.nano_usd), 0)::bigint, coalesce(sum(i.nano_usd) filter (where i.status = 10), 0)::bigint
         from longhaul.batch_items i join longhaul.batches b on b.id = i.batch
         where i.status in (3, 10) and b.status = 8",
    )
    .fetch_one(&mut *conn)
    .await
    .unwrap();
    let summed: Sums = sqlx::query_as(
        "select coalesce(sum(items), 0)::bigint, coalesce(sum(unpriced), 0)::bigint, coalesce(sum(unused), 0)::bigint,
             coalesce(sum(nano_usd), 0)::bigint, coalesce(sum(unused_nano_usd), 0)::bigint from longhaul.spent",
    )
    .fetch_one(&mut *conn)
    .await
    .unwrap();
    assert_eq!(summed, booked, "items, without a price, unused, nano-dollars, unused nano-dollars");
    let reserved: i64 = sqlx::query_scalar(
        "select count(*) from longhaul.reserved r join longhaul.batches b on b.id = r.batch where b.status = 8",
    )
    .fetch_one(conn)
    .await
    .unwrap();
    assert_eq!(reserved, 0);
}
