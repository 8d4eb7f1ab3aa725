//! Batches of any size that have ended, without sending them: the rows that a node finds, and a provider that makes the result lines
//! while they are read, so that they are in nobody's memory.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use longhaul::domain::InvalidJson;
use longhaul::provider::anthropic::{Anthropic, ApiKey};
use longhaul::provider::{
    BatchProvider, BatchState, Body, Capabilities, Identity, Line, Listed, Polled, ProviderError, Results, Sent, Usage,
};
use longhaul::{Config, CustomId, IntentId, JsonText, Node};
use sqlx::{Connection, PgConnection};
use std::time::Duration;

/// Lines in one piece of a stream.
const PIECE: i32 = 100;

/// Answers every poll of batch `<intent>-<items>` with its end.
pub struct Large(Anthropic);

impl Large {
    pub fn new() -> Self {
        Self(Anthropic::new(ApiKey::new("sk-test")).unwrap())
    }
}

/// The result line of an item, of about 700 bytes.
pub fn line(intent: IntentId, index: i32) -> String {
    let id = CustomId { intent, index };
    let text = "An answer of a few sentences, as a small model gives it. ".repeat(6);
    format!(
        r#"{{"custom_id":"{id}","result":{{"type":"succeeded","message":{{"id":"msg_{index}","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{{"type":"text","text":"{text}"}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":120,"output_tokens":90,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}}}}}}}}"#
    ) + "\n"
}

/// The intent and the number of items that a batch's id says.
fn parse(id: &str) -> (IntentId, i32) {
    let (intent, items) = id.rsplit_once('/').unwrap();
    (IntentId(intent.parse().unwrap()), items.parse().unwrap())
}

impl BatchProvider for Large {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn api_version(&self) -> &str {
        self.0.api_version()
    }

    fn identify(&self) -> BoxFuture<'_, Result<Identity, ProviderError>> {
        let of = |what: &str| what.to_owned();
        let (kind, base_url, organization, workspace) = (of("large"), of("-"), of("-"), of("-"));
        async { Ok(Identity { kind, base_url, organization, workspace }) }.boxed()
    }

    fn frame(&self) -> (&'static str, &'static str, &'static str) {
        self.0.frame()
    }

    fn item(&self, id: CustomId, request: &str) -> String {
        self.0.item(id, request)
    }

    fn create(&self, _: Body) -> BoxFuture<'_, Sent> {
        async { Sent::Ambiguous("nothing is sent here".into()) }.boxed()
    }

    fn list(&self, _: Option<&str>) -> BoxFuture<'_, Result<Listed, ProviderError>> {
        async { Ok(Listed::default()) }.boxed()
    }

    fn poll(&self, id: &str) -> BoxFuture<'_, Result<Polled, ProviderError>> {
        let items = Some(i64::from(parse(id).1));
        let polled = Polled { state: BatchState::Ended, requests: items, succeeded: items, results_url: None };
        async { Ok(polled) }.boxed()
    }

    fn cancel(&self, _: &str) -> BoxFuture<'_, Result<(), ProviderError>> {
        async { Ok(()) }.boxed()
    }

    fn results(&self, id: &str, _: Option<&str>) -> BoxFuture<'_, Result<Results, ProviderError>> {
        let (intent, items) = parse(id);
        let pieces = stream::iter((0..items).step_by(PIECE as usize)).map(move |from| {
            let lines: String = (from..(from + PIECE).min(items)).map(|index| line(intent, index)).collect();
            Ok(Bytes::from(lines))
        });
        async { Ok(pieces.boxed()) }.boxed()
    }

    fn read_line(&self, line: &[u8]) -> Line {
        self.0.read_line(line)
    }

    fn reply(&self, line: &[u8]) -> Result<JsonText, InvalidJson> {
        self.0.reply(line)
    }

    fn cost(&self, model: &str, usage: &Usage) -> Option<i64> {
        self.0.cost(model, usage)
    }
}

/// A node that only reads results: the runs are of a workflow that it does not have.
pub async fn node(url: &str) -> Node {
    let config = Config { name: "large".into(), ..Config::brisk() };
    Node::builder(url).provider("large", Large::new()).config(config).start().await.unwrap()
}

/// Plants a batch whose items runs wait for. Until it is shown to the nodes nothing happens.
pub async fn plant(conn: &mut PgConnection, batch: i64, items: i32) {
    let statements = [
        "insert into longhaul.batches (id, account, intent, status, lease, n, digest, provider_batch_id, submitted_at)
            overriding system value
         select $1, a.id, i.intent, 5, 0, $2, '\\x00', i.intent || '/' || $2, longhaul.now()
         from longhaul.accounts a, (select gen_random_uuid() as intent) i where a.kind = 'large'",
        "insert into longhaul.runs (id, workflow, cursor, wait, input_bytes, status, run_id, step)
         select $1 * 1000000 + i, -1, 4, 3, 0, 3, $1 || '-' || i, 'ask' from generate_series(0, $2 - 1) i",
        "insert into longhaul.waits (run, ordinal, batch, item, bytes, attempt, kind, status, provider)
         select $1 * 1000000 + i, 3, $1, i, 10, 1, 1, 3, 'large' from generate_series(0, $2 - 1) i",
        "insert into longhaul.batch_items (batch, run, item, wait, attempt, status)
         select $1, $1 * 1000000 + i, i, 3, 1, 2 from generate_series(0, $2 - 1) i",
    ];
    for statement in statements {
        sqlx::query(statement).bind(batch).bind(items).execute(&mut *conn).await.unwrap();
    }
    sqlx::raw_sql("vacuum analyze").execute(conn).await.unwrap();
}

/// Has the nodes read a batch, and waits until it is settled. How long that took: from its end to its settlement, by the database's clock.
pub async fn read(conn: &mut PgConnection, batch: i64) -> Duration {
    sqlx::query("update longhaul.batches set check_at = longhaul.now() where id = $1")
        .bind(batch)
        .execute(&mut *conn)
        .await
        .unwrap();
    let sql =
        "select extract(epoch from settled_at - ended_at)::float8 from longhaul.batches where id = $1 and status = 8";
    loop {
        if let Some(seconds) = sqlx::query_scalar::<_, f64>(sql).bind(batch).fetch_optional(&mut *conn).await.unwrap() {
            return Duration::from_secs_f64(seconds);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Every item is settled with its own line and price, once, and its run goes on.
pub async fn verify(conn: &mut PgConnection, batch: i64, items: i32) {
    let row: (i64, i64, i64, i64, i64, i64, uuid::Uuid) = sqlx::query_as(
        "select count(*) filter (where i.status = 3), sum(octet_length(i.line))::bigint, sum(i.nano_usd)::bigint,
             count(*) filter (where r.status = 1 and r.cursor = 5), count(*) filter (where w.status = 4),
             count(e.run), (array_agg(b.intent))[1]
         from longhaul.batch_items i join longhaul.batches b on b.id = i.batch
         join longhaul.runs r on r.id = i.run join longhaul.waits w on w.run = r.id
         left join longhaul.events e on e.run = r.id where i.batch = $1",
    )
    .bind(batch)
    .fetch_one(conn)
    .await
    .unwrap();
    let n = i64::from(items);
    let intent = IntentId(row.6);
    let bytes: usize = (0..items).map(|index| line(intent, index).len() - 1).sum();
    // 120 and 90 tokens at half of 1 and 5 dollars for a million.
    assert_eq!((row.0, row.1, row.2), (n, bytes as i64, n * (120 * 500 + 90 * 2_500)), "items, bytes, nano-dollars");
    assert_eq!((row.3, row.4, row.5), (n, n, n), "runs, waits, events");
}

/// A connection, once the node has said which account it is.
pub async fn connect(url: &str) -> PgConnection {
    let mut conn = PgConnection::connect(url).await.unwrap();
    let accounts = "select count(*) from longhaul.accounts where kind = 'large'";
    while sqlx::query_scalar::<_, i64>(accounts).fetch_one(&mut conn).await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    conn
}
