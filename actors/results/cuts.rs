//! Results cut at every byte, in both ways in which a stream can end, and then read whole.

use super::*;
use crate::actors::ctx::{Accounts, Shared};
use crate::actors::flows::Flows;
use crate::config::Config;
use crate::domain::{CustomId, NodeId};
use crate::observe::Counters;
use crate::provider::anthropic::{Anthropic, ApiKey};
use crate::run::tool::Toolbox;
use crate::store::{Database, Store, planted};
use futures::stream;
use longhaul_sandbox::postgres::testing::TestDatabase;
use std::sync::atomic::AtomicBool;
use tokio::sync::{Semaphore, watch};

/// Batches read at the same time.
const AT_ONCE: usize = 8;
/// Bytes of the longest reference; ids differ in length by a few.
const BYTES: usize = 640;
/// Bytes of a piece of the stream.
const PIECE: usize = 37;

/// How a stream ends that is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The connection breaks.
    Broken,
    /// As if it were complete.
    Complete,
}

/// An answer, a refusal, and a request that expired.
fn reference(batch: &HeldBatch) -> Vec<u8> {
    let id = |index| CustomId { intent: batch.intent, index };
    let answer = r#"{"model":"claude-haiku-4-5","content":[{"type":"text","text":"a\nb ü"}],"usage":{"input_tokens":3,"output_tokens":2}}"#;
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#;
    let lines = [
        format!(r#"{{"custom_id":"{}","result":{{"type":"succeeded","message":{answer}}}}}"#, id(0)),
        format!(r#"{{"custom_id":"{}","result":{{"type":"errored","error":{refusal}}}}}"#, id(1)),
        format!(r#"{{"custom_id":"{}","result":{{"type":"expired"}}}}"#, id(2)),
    ];
    format!("{}\n", lines.join("\n")).into_bytes()
}

fn streamed(bytes: &[u8], cut: Cut) -> BoxStream<'static, Result<Bytes, ProviderError>> {
    let mut pieces: Vec<_> = bytes.chunks(PIECE).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    if cut == Cut::Broken {
        pieces.push(Err(ProviderError::Unavailable { why: "cut".into(), retry_after: None }));
    }
    stream::iter(pieces).boxed()
}

async fn context(url: &str) -> Ctx {
    let store = Store::new(Database::new(url).unwrap(), AT_ONCE as u32);
    let shared = Shared {
        config: Config::brisk(),
        flows: Flows::load(Default::default(), &store).await.unwrap(),
        store,
        providers: Default::default(),
        tools: Toolbox::default(),
        accounts: Accounts::default(),
        counters: Counters::default(),
        draining: AtomicBool::new(false),
        leaving: watch::Sender::new(false),
        blocking: Arc::new(Semaphore::new(1)),
    };
    Ctx::new(Arc::new(shared), NodeId::random())
}

#[tokio::test(flavor = "multi_thread")]
async fn results_cut_at_every_byte_and_then_whole_are_settled_once() {
    let template = crate::store::schema_digest();
    let db = TestDatabase::create(&template, |url| async move { crate::migrate(&url).await }).await.unwrap();
    let ctx = context(db.url()).await;
    let provider: Arc<dyn BatchProvider> = Arc::new(Anthropic::new(ApiKey::new("sk-test")).unwrap());
    let (ctx, provider) = (&ctx, &provider);
    let batches = planted::batches(ctx.store(), 2 * BYTES as i64).await;
    let read = stream::iter(batches.iter().enumerate()).for_each_concurrent(AT_ONCE, |(case, batch)| async move {
        let (at, cut) = (case / 2, if case % 2 == 0 { Cut::Broken } else { Cut::Complete });
        let whole = reference(batch);
        assert!(whole.len() < BYTES, "{} bytes", whole.len());
        let part = &whole[..at.min(whole.len())];
        ingest(ctx, provider, "claude", batch, Some(1), streamed(part, cut)).await.unwrap();
        // A line that is whole is settled at once; one without its line end only where the stream ends well.
        let lines = part.iter().filter(|byte| **byte == b'\n').count() as i64;
        let settled = planted::settled(ctx.store(), batch.batch).await;
        let at_end = i64::from(cut == Cut::Complete && whole.get(part.len()) == Some(&b'\n'));
        assert_eq!(settled, lines + at_end, "cut at {at}, {cut:?}");
        ingest(ctx, provider, "claude", batch, Some(1), streamed(&whole, Cut::Complete)).await.unwrap();
        if case % 16 == 0 {
            // Also one that is settled changes nothing any more.
            ingest(ctx, provider, "claude", batch, Some(1), streamed(&whole, Cut::Complete)).await.unwrap();
        }
    });
    read.await;
    // Item, wait, run; the run's events and how far its cursor moved; batch.
    let cases = batches.len() as i64;
    assert_eq!(planted::ends(ctx.store(), 0).await, [(vec![3, 4, 1, 1, 1, 8], cases)], "answered once");
    assert_eq!(planted::ends(ctx.store(), 1).await, [(vec![4, 6, 6, 2, 2, 8], cases)], "failed once");
    assert_eq!(planted::ends(ctx.store(), 2).await, [(vec![5, 1, 3, 1, 1, 8], cases)], "queued again once");
    ctx.store().close().await;
}
