//! How fast the results of a large batch are read, on a private PostgreSQL with its default durability. It asserts what it measures:
//! each item is settled once, with its line to the byte and its price to the nano-dollar, and its run goes on.
//! docs/performance/ says how to repeat it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "../tests/ingest/large.rs"]
mod large;

use longhaul_sandbox::postgres::{Options, Server};

/// Items of the batch.
const ITEMS: i32 = 100_000;
/// Batches, one after another, in the same database.
const BATCHES: i64 = 3;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let options = Options::default().setting("shared_buffers", "512MB").setting("max_wal_size", "4GB");
        let server = Server::private(options).await.unwrap();
        server.create_database("ingest").await.unwrap();
        let url = server.url("ingest");
        longhaul::migrate(&url).await.unwrap();
        let node = large::node(&url).await;
        let mut conn = large::connect(&url).await;
        for batch in 1..=BATCHES {
            large::plant(&mut conn, batch, ITEMS).await;
            sqlx::query("checkpoint").execute(&mut conn).await.unwrap();
            let took = large::read(&mut conn, batch).await;
            large::verify(&mut conn, batch, ITEMS).await;
            let rate = f64::from(ITEMS) / took.as_secs_f64();
            println!("{ITEMS} items in {:.2} s: {rate:.0} items/s", took.as_secs_f64());
        }
        node.shutdown().await.unwrap();
        server.stop().await.unwrap();
    });
}
