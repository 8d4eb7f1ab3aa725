//! Whether the runs in flight could go on with another build: before it is deployed, without a node.
//!
//! A [`Check`] is told the workflows of the new build. It reads every run that is not over, page by page, and asks what a node
//! would: is there a version for it, or one that takes it over? Does that version have the step it is at, and those it comes
//! back to? Do input, state and argument fit the types? With the workflows themselves, values are decoded and upgrades
//! applied for real; with a [`Manifest`] alone, values are held against its schemas.
//!
//! It changes nothing and may run beside living nodes. Deliberately absent: answers that have not come yet, and replies of
//! models, which fit any step that takes one; of both, only what is carried beside them is looked at.
//!
//! A service offers it as a command of its own:
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
//! # #[tokio::main] async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! # let url = "postgres://localhost/app";
//! use longhaul::{Check, Client};
//!
//! if std::env::args().nth(1).as_deref() == Some("check") {
//!     let report = Check::new().workflow::<Hello>().run(&Client::connect(url).await?).await?;
//!     print!("{report}");
//!     std::process::exit(if report.ok() { 0 } else { 1 });
//! }
//! # Ok(()) }
//! ```

mod known;
mod look;
mod report;

pub use report::{CheckFinding, CheckReport, Reason, VersionChange};

use crate::client::Client;
use crate::error::Error;
use crate::run::flow::Flow;
use crate::run::{Manifest, Workflow};
use known::{Known, Types};
use look::Seen;
use std::sync::Arc;

/// Runs per page.
const PAGE: i64 = 500;

/// A check of the runs in flight, and what it is told.
#[derive(Default)]
pub struct Check {
    known: Known,
    elsewhere: bool,
    page: Option<i64>,
}

impl Check {
    /// A check that knows no workflow yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A workflow of the new build. Nothing of it is run but its `upgrade` and the decoding of its types.
    #[must_use]
    pub fn workflow<W: Workflow>(self) -> Self {
        self.flow(Arc::new(Types::<W>::new()))
    }

    /// A workflow that is behind the erased boundary already.
    #[must_use]
    pub fn flow(mut self, flow: Arc<dyn Flow>) -> Self {
        self.known.flow(flow);
        self
    }

    /// A workflow of which only the manifest is known. Runs that its version takes over are counted and not read: how they are
    /// upgraded is not in it.
    #[must_use]
    pub fn manifest(mut self, manifest: Manifest) -> Self {
        self.known.manifest(manifest);
        self
    }

    /// Says that workflows which are not given here are run elsewhere. Without it, their runs would be stuck.
    #[must_use]
    pub fn others_elsewhere(mut self) -> Self {
        self.elsewhere = true;
        self
    }

    /// How many runs are read at a time, for tests of the paging itself.
    #[doc(hidden)]
    #[must_use]
    pub fn pages_of(mut self, runs: i64) -> Self {
        self.page = Some(runs);
        self
    }

    /// Looks at every run in flight. What it finds is never an error.
    ///
    /// # Errors
    /// [`Error::Store`] when the database cannot be read.
    pub async fn run(&self, client: &Client) -> Result<CheckReport, Error> {
        let store = client.store();
        let mut report = CheckReport::default();
        for stored in store.versions(&self.known.names()).await? {
            let before = stored.manifest.as_deref().and_then(|text| Manifest::from_json(text).ok());
            if let Some((given, before)) = self.known.exactly(&stored.name, stored.version).zip(before) {
                report.compared(given.manifest(), &before);
            }
        }
        let mut after = 0;
        loop {
            let page = store.in_flight(after, self.page.unwrap_or(PAGE)).await?;
            for run in page.runs {
                if self.elsewhere && !self.known.has(&run.workflow) {
                    report.elsewhere += 1;
                    continue;
                }
                match look::look(&self.known, &run) {
                    Seen::Fits => report.fits += 1,
                    Seen::Unread => report.unread += 1,
                    Seen::Stuck(reasons) => report.stuck(&run, reasons),
                }
            }
            match page.last {
                Some(last) => after = last,
                None => return Ok(report),
            }
        }
    }
}
