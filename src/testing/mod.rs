//! Testing what runs on Longhaul: a node whose pace, clock and actors a test controls.
//!
//! Workflows alone are tested in memory by a [`Rehearsal`](crate::Rehearsal). A [`TestNode`] is for what needs the database:
//! that a service recovers, that a batch is sent and answered, that a run of yesterday goes on today. It is a whole
//! [`Node`] with short leases and polls, on a database of the test's own. Nothing has to sleep: work is waited
//! for by looking at the database until it is at rest, and time passes when the test says so.
//!
//! ```no_run
//! # use longhaul::{Next, Result, Run, Workflow, workflow};
//! # pub struct Hello;
//! # #[workflow]
//! # mod hello {
//! #     use super::*;
//! #     impl Workflow for Hello {
//! #         const NAME: &'static str = "hello"; const VERSION: u32 = 1;
//! #         type Input = String; type State = (); type Output = String; type Entry = step::greet;
//! #     }
//! #     #[step] async fn greet(run: &mut Run<Hello>) -> Result<Next<Hello>> { Ok(Next::finish(run.input.to_string())) }
//! # }
//! # async fn f(url: &str) -> std::result::Result<(), longhaul::Error> {
//! use longhaul::testing::TestNode;
//! use std::time::Duration;
//!
//! let node = TestNode::start(url, |node| node.workflow(Hello)).await?;
//! node.client().enqueue::<Hello>("1", "Ada".into()).await?;
//! let progress = node.run_until_quiescent(Duration::from_secs(10)).await?;
//! assert_eq!(progress.runs_completed, 1);
//! # Ok(()) }
//! # fn main() {}
//! ```

mod manifest;

pub use manifest::{ManifestDrift, UPDATE, check_manifest};

use crate::config::Config;
use crate::error::Error;
use crate::node::{Node, NodeBuilder};
use crate::observe::Progress;
use crate::store;
use std::ops::Deref;
use std::time::{Duration, Instant};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// Looks without any change after which counters have settled.
const SETTLED: u32 = 5;
/// How long counters may take to settle.
const SETTLING: Duration = Duration::from_secs(30);

/// A node for tests. It is used as the [`Node`] that it is; dropping it is the sudden death of that node.
#[derive(Debug)]
pub struct TestNode {
    node: Node,
}

impl TestNode {
    /// Starts a node on a migrated database, with [`Config::brisk`] unless the builder is given other settings.
    ///
    /// # Errors
    /// As [`NodeBuilder::start`].
    pub async fn start(url: impl Into<String>, build: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Result<Self, Error> {
        let builder = Node::builder(url).config(Config::brisk());
        Ok(Self { node: build(builder).start().await? })
    }

    /// Wakes every actor that looks for work, and waits until the node's counters have settled, at most half a minute.
    /// Answers what it did meanwhile.
    pub async fn poll_once(&self) -> Progress {
        let begun = self.node.progress();
        let tree = self.node.tree();
        for kind in tree.kinds() {
            tree.wake(&kind);
        }
        self.settled(Instant::now() + SETTLING).await - begun
    }

    /// The counters, once they change no more: they follow the commits that they count.
    async fn settled(&self, deadline: Instant) -> Progress {
        let (mut seen, mut quiet) = (self.node.progress(), 0);
        while quiet < SETTLED && Instant::now() < deadline {
            tokio::time::sleep(PAUSE).await;
            let now = self.node.progress();
            quiet = if now == seen && self.node.running() == 0 { quiet + 1 } else { 0 };
            seen = now;
        }
        seen
    }

    /// Waits until the whole database is at rest: no run held or claimable now, no request waiting to be sent now, no batch
    /// under way. What is left waits for somebody outside, or for a later moment. Answers what this node did meanwhile.
    ///
    /// # Errors
    /// [`Error::Deadline`] when it is not at rest within that time; [`Error::Store`].
    pub async fn run_until_quiescent(&self, within: Duration) -> Result<Progress, Error> {
        let begun = self.node.progress();
        let client = self.node.client();
        let deadline = Instant::now() + within;
        while !client.store().quiescent().await? {
            if Instant::now() >= deadline {
                return Err(Error::Deadline("there was still work under way"));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(self.settled(deadline.max(Instant::now() + PAUSE * (2 * SETTLED))).await - begun)
    }

    /// Moves the clock of this node's database forward, for all that use that database. What has become due is looked for
    /// at once.
    ///
    /// Leases of nodes are not judged by that clock, so no node dies of it.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn advance(&self, by: Duration) -> Result<(), Error> {
        store::advance_clock(self.node.client().store().database(), by).await?;
        let tree = self.node.tree();
        for kind in tree.kinds() {
            tree.wake(&kind);
        }
        Ok(())
    }

    /// Lets running steps finish and ends the node, as [`Node::shutdown`](crate::Node::shutdown) does.
    ///
    /// # Errors
    /// As there.
    pub async fn shutdown(self) -> Result<(), Error> {
        self.node.shutdown().await
    }

    /// The node itself.
    pub fn into_node(self) -> Node {
        self.node
    }
}

impl Deref for TestNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}
