//! The database and the provider of a demo.

use super::teller::Teller;
use crate::args::{DemoArgs, Faults};
use crate::error::CliError;
use longhaul_sandbox::postgres::{Origin, Server};
use longhaul_sandbox::provider::{Config, Dialect, Sandbox, Script};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// What the choice of the replies that go wrong is made from: the same ones at every start.
const SEED: u64 = 23;
/// Faults that are paid for twice, whatever a client does.
const PAID_TWICE: &[&str] = &["create_twin", "create_twin_after_cut"];

/// What a demo plays on.
pub(super) struct Stage {
    server: Server,
    name: String,
    /// The URL of the demo's own database.
    pub database: String,
    pub sandbox: Sandbox,
    /// Where the provider's ledger is; removed at the end.
    _folder: TempDir,
}

impl Stage {
    /// A server, a new database with the schema on it, and a provider.
    pub(super) async fn raise(args: &DemoArgs, teller: &Teller) -> Result<Self, CliError> {
        let folder = tempfile::Builder::new().prefix("longhaul-demo-").tempdir();
        let folder = folder.map_err(|error| CliError::io("make a temporary folder", error))?;
        let config = Config::default().processing(args.processing).ledger(folder.path().join("paid.jsonl"));
        let config = match args.faults {
            Some(Faults::All) => config.script(Script::all_but(Dialect::Anthropic, SEED, PAID_TWICE)),
            None => config,
        };
        let sandbox = Sandbox::start(config).await?;
        let server = match args.database.as_deref().filter(|url| !url.is_empty()) {
            Some(url) => Server::given(url).await?,
            None => Server::ensure().await?,
        };
        let name = database_name();
        server.create_database(&name).await?;
        let stage = Self { database: server.url(&name), server, name, sandbox, _folder: folder };
        if let Err(error) = longhaul::migrate(&stage.database).await {
            // The error that is told is the first.
            let _ = stage.lower().await;
            return Err(error.into());
        }
        let origin = match stage.server.origin() {
            Origin::Private { version, .. } => format!("a private PostgreSQL {version}"),
            Origin::Given { version } => format!("a database of its own on your PostgreSQL {version}"),
            _ => "a database".to_owned(),
        };
        teller.say(format!("{origin} and a local provider at {} are up", stage.sandbox.base_url()));
        Ok(stage)
    }

    /// Takes everything down: the database is dropped, a private server stopped.
    pub(super) async fn lower(self) -> Result<(), CliError> {
        self.sandbox.stop().await;
        let dropped = self.server.drop_database(&self.name).await;
        self.server.stop().await?;
        Ok(dropped?)
    }
}

/// A name that no other demo on the same server has.
fn database_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("longhaul_demo_{}_{}", std::process::id(), since.as_millis())
}
