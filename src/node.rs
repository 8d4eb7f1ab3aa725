//! The composition root: build, start, drain, shut down.

use crate::actors::board::Kind;
use crate::actors::ctx::{Accounts, Ctx, Shared};
use crate::actors::flows::Flows;
use crate::actors::root::{self, Root};
use crate::actors::{Drain, drain};
use crate::client::Client;
use crate::config::Config;
use crate::domain::NodeId;
use crate::error::Error;
use crate::observe::{Counters, Progress};
use crate::provider::BatchProvider;
use crate::run::flow::Flow;
use crate::run::tool::Toolbox;
use crate::run::{Tool, TypedFlow, Workflow};
use crate::store::{Database, Registered, Registrar, Store};
use ractor::{Actor, ActorRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// How long the last statements of a shutdown may take beyond its grace.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a node is made from.
pub struct NodeBuilder {
    url: String,
    config: Config,
    flows: Vec<Arc<dyn Flow>>,
    extended: BTreeSet<String>,
    providers: Vec<(String, Arc<dyn BatchProvider>)>,
    tools: Toolbox,
    twice: Option<&'static str>,
}

impl NodeBuilder {
    /// A workflow that this node runs; `app` is what its steps find in `run.app`.
    #[must_use]
    pub fn workflow<W: Workflow>(mut self, app: W) -> Self {
        self.flows.push(Arc::new(TypedFlow::new(app)));
        self
    }

    /// A workflow in any other form: a [`DynamicWorkflow`](crate::DynamicWorkflow), or a [`Flow`] of your own.
    #[must_use]
    pub fn flow(mut self, flow: impl Flow) -> Self {
        self.flows.push(Arc::new(flow));
        self
    }

    /// Says that this node adds steps to a version of this workflow that is registered with fewer. Without it, a version with
    /// other steps than the registered ones is refused as `workflow-drift`; with steps missing it always is.
    ///
    /// Start such a node before anything else of the new build: clients with the added steps are refused until then, and nodes
    /// without them once it has started. Those that run already park the runs that come to a step they do not know.
    #[must_use]
    pub fn extends(mut self, workflow: impl Into<String>) -> Self {
        self.extended.insert(workflow.into());
        self
    }

    /// A provider that steps may ask by this name.
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>, provider: impl BatchProvider) -> Self {
        self.providers.push((name.into(), Arc::new(provider)));
        self
    }

    /// A tool that models may use in a conversation.
    #[must_use]
    pub fn tool<T: Tool>(mut self, tool: T) -> Self {
        if !self.tools.add(tool) {
            self.twice = Some(T::NAME);
        }
        self
    }

    /// Other settings than the defaults.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Checks the settings, the server and the schema, registers the workflows, and starts the actors.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that cannot work, [`Error::Registered`] for a name that is there twice,
    /// [`Error::NotRegistered`] for an extended workflow that is not there,
    /// [`Error::Store`] for a server that cannot be reached, a schema of another build, or a workflow whose version was
    /// registered with other steps.
    pub async fn start(self) -> Result<Node, Error> {
        self.config.validate()?;
        if let Some(name) = self.twice {
            return Err(Error::Registered { kind: "tool", name: name.to_owned() });
        }
        let store = Store::new(Database::new(&self.url)?, self.config.pool_connections);
        store.check().await?;
        let flows = Flows::load(self.register(&store).await?, &store).await?;
        let providers = self.named_providers()?;
        let known = flows.keys();
        for (name, version, runs) in store.unclaimable(&known).await? {
            tracing::warn!(workflow = name, version, runs, "runs in flight of a version that this node has not");
        }
        let shared = Arc::new(Shared {
            store,
            flows,
            providers,
            tools: self.tools,
            accounts: Accounts::default(),
            counters: Counters::default(),
            draining: AtomicBool::new(false),
            leaving: watch::Sender::new(false),
            blocking: Arc::new(Semaphore::new(self.config.blocking_steps)),
            config: self.config,
        });
        let id = NodeId::random();
        let config = &shared.config;
        shared.store.register(id, &config.name, env!("CARGO_PKG_VERSION"), config.lease, &known).await?;
        let first = Arc::new(Ctx::new(shared.clone(), id));
        let (life, lives) = watch::channel(first.clone());
        let args = root::Args { shared: shared.clone(), first, life: Arc::new(life) };
        let (root, _) = Actor::spawn(None, Root, args).await.map_err(|e| Error::Node(e.to_string()))?;
        Ok(Node { shared, root, lives })
    }

    async fn register(&self, store: &Store) -> Result<BTreeMap<i32, Arc<dyn Flow>>, Error> {
        let mut flows = BTreeMap::new();
        if let Some(name) =
            self.extended.iter().find(|name| !self.flows.iter().any(|f| f.manifest().workflow == **name))
        {
            return Err(Error::NotRegistered { kind: "workflow", name: name.clone() });
        }
        for flow in &self.flows {
            let manifest = flow.manifest();
            let by = if self.extended.contains(&*manifest.workflow) { Registrar::Extender } else { Registrar::Node };
            let Registered { key, before } = store.register_workflow(manifest, by).await?;
            if let Some(before) = before.map(|before| manifest.since(&before)).filter(|found| !found.is_empty()) {
                tracing::warn!(
                    workflow = %manifest.workflow, version = manifest.version, changes = %before,
                    "a version is not what it was when it was last registered: runs in flight may not fit it"
                );
            }
            if flows.insert(key, flow.clone()).is_some() {
                return Err(Error::Registered { kind: "workflow", name: manifest.workflow.to_string() });
            }
        }
        Ok(flows)
    }

    fn named_providers(&self) -> Result<BTreeMap<String, Arc<dyn BatchProvider>>, Error> {
        let mut providers = BTreeMap::new();
        for (name, provider) in &self.providers {
            if providers.insert(name.clone(), provider.clone()).is_some() {
                return Err(Error::Registered { kind: "provider", name: name.clone() });
            }
        }
        Ok(providers)
    }
}

/// A process that runs workflows: a supervised tree of actors on one database. Any number of nodes share a database; what a
/// dead one held, the others take over.
///
/// Dropping a node without [`Node::shutdown`] aborts its tasks and leaves its rows to the others.
pub struct Node {
    shared: Arc<Shared>,
    root: ActorRef<root::Msg>,
    lives: watch::Receiver<Arc<Ctx>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).field("name", &self.shared.config.name).finish()
    }
}

impl Node {
    /// Begins to build a node on the database at a `postgres://` URL.
    pub fn builder(url: impl Into<String>) -> NodeBuilder {
        NodeBuilder {
            url: url.into(),
            config: Config::default(),
            flows: Vec::new(),
            extended: BTreeSet::new(),
            providers: Vec::new(),
            tools: Toolbox::default(),
            twice: None,
        }
    }

    /// Its id: random, and another one when it had to begin again.
    pub fn id(&self) -> NodeId {
        self.lives.borrow().node
    }

    /// A client on the node's own connections.
    pub fn client(&self) -> Client {
        Client::of(self.shared.store.clone())
    }

    /// What it has done since it started.
    pub fn progress(&self) -> Progress {
        self.shared.counters.read()
    }

    /// How many runs it holds now.
    pub fn running(&self) -> usize {
        self.lives.borrow().running.load(Ordering::Relaxed)
    }

    /// Returns when an operator has asked this node to drain ([`Client::drain_node`]). It claims nothing from then on, and lets go of
    /// what it runs at the next boundary of each; batches that are under way are looked after all the same. What is left to
    /// the program is to end it:
    ///
    /// ```no_run
    /// # async fn f(node: longhaul::Node) -> Result<(), longhaul::Error> {
    /// node.drain_asked().await;
    /// node.shutdown().await
    /// # }
    /// ```
    pub async fn drain_asked(&self) {
        let _ = self.shared.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }

    /// The actors below it.
    pub fn tree(&self) -> Tree {
        Tree { lives: self.lives.clone() }
    }

    /// Takes nothing new, lets running steps finish for at most the configured grace, releases what is left, and ends.
    ///
    /// # Errors
    /// [`Error::Deadline`] when steps were still running at the end of the grace: they were aborted, their runs released
    /// and fenced, and another node runs those steps again.
    pub async fn shutdown(self) -> Result<(), Error> {
        let grace = self.shared.config.grace;
        self.shutdown_within(grace).await
    }

    /// As [`Node::shutdown`], with another grace.
    ///
    /// # Errors
    /// As [`Node::shutdown`].
    pub async fn shutdown_within(self, grace: Duration) -> Result<(), Error> {
        self.shared.draining.store(true, Ordering::Release);
        let deadline = Instant::now() + grace;
        let ctx = self.lives.borrow().clone();
        let drained = drain(&ctx, deadline).await;
        let last = tokio::time::Instant::now() + FAREWELL;
        let _ = self.root.get_cell().kill_and_wait(Some(FAREWELL)).await;
        // Leases are given up, so that nobody has to wait for them to expire. Closing waits for statements under way, which a
        // silent database never answers.
        let farewell = async {
            self.release(ctx.node).await;
            self.shared.store.close().await;
        };
        let _ = tokio::time::timeout_at(last, farewell).await;
        match drained {
            Drain::Empty => Ok(()),
            Drain::Late => Err(Error::Deadline("steps were still running at the end of the grace")),
        }
    }

    async fn release(&self, node: NodeId) {
        if let Err(error) = self.shared.store.release_runs(node).await {
            tracing::warn!(%error, "runs were not released: they are taken over when the lease is over");
        }
        for provider in self.shared.providers.keys() {
            if let Some(account) = self.shared.accounts.read(provider) {
                let _ = self.shared.store.resign(account, node).await;
                let _ = self.shared.store.release_batches(account, node, &[]).await;
            }
        }
        let _ = self.shared.store.leave(node).await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.root.get_cell().kill();
    }
}

/// Access to the actors of a node by kind, for tests and operators.
#[derive(Clone)]
pub struct Tree {
    lives: watch::Receiver<Arc<Ctx>>,
}

impl Tree {
    /// The kinds of actors that live below the node.
    pub fn kinds(&self) -> Vec<Kind> {
        self.lives.borrow().board.kinds()
    }

    /// Kills the actor of a kind, whatever it is doing and whatever is in its mailbox. `false`: there is none.
    pub fn kill(&self, kind: &Kind) -> bool {
        let cell = self.lives.borrow().board.cell(kind);
        cell.map(|cell| cell.kill()).is_some()
    }

    /// Tells the actor of a kind to look for work now.
    pub fn wake(&self, kind: &Kind) -> bool {
        crate::actors::wake(&self.lives.borrow(), kind)
    }
}
