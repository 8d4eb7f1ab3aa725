//! What reading results needs of memory does not depend on how many there are. A process of its own, since it counts every allocation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod large;

use longhaul_sandbox::postgres::testing::TestDatabase;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes allocated now, and the most there ever were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code)] // It only counts; everything is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_not_grow_with_the_size_of_a_batch() {
    let template = longhaul::store::schema_digest();
    let db = TestDatabase::create(&template, |url| async move { longhaul::migrate(&url).await }).await.unwrap();
    let node = large::node(db.url()).await;
    let mut conn = large::connect(db.url()).await;
    let mut above = Vec::new();
    // The first warms everything up.
    for (batch, items) in [(1, 1_000), (2, 5_000), (3, 25_000)] {
        large::plant(&mut conn, batch, items).await;
        let before = NOW.load(Relaxed);
        MOST.store(before, Relaxed);
        large::read(&mut conn, batch).await;
        above.push(MOST.load(Relaxed) - before);
        large::verify(&mut conn, batch, items).await;
    }
    node.shutdown().await.unwrap();
    eprintln!("bytes above what there was before: {above:?}");
    assert!(above[2] < above[1] * 5 / 4, "{above:?}");
}
