//! Starting and stopping a local provider.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::app::App;
use super::config::Config;
use super::control::Control;
use super::error::Error;
use super::ledger::PaidLedger;
use super::{routes, serve};

/// A running local provider. Dropping it stops it too, without waiting.
pub struct Sandbox {
    app: Arc<App>,
    acceptor: JoinHandle<()>,
}

impl Sandbox {
    /// Listens on 127.0.0.1 and serves until stopped. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the port is taken, or the ledger file cannot be opened.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, config.port));
        let bind = |source| Error::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let base_url = format!("http://{}", listener.local_addr().map_err(bind)?);
        let ledger = PaidLedger::open(config.ledger.as_deref())?;
        let app = Arc::new(App::new(config, base_url, ledger));
        let router = routes::router(&app);
        let acceptor = tokio::spawn(serve::accept(Arc::clone(&app), listener, router));
        Ok(Self { app, acceptor })
    }

    /// `http://127.0.0.1:port`, without a slash at its end.
    pub fn base_url(&self) -> &str {
        &self.app.base_url
    }

    /// The paid ledger's file.
    pub fn ledger_path(&self) -> &Path {
        self.app.ledger.path()
    }

    /// The handle that injects faults and waits for what the sandbox has seen.
    pub fn control(&self) -> Control {
        Control::new(Arc::clone(&self.app))
    }

    /// Closes the socket and all connections. Batches that have not ended are never processed; the memory of all is gone.
    pub async fn stop(mut self) {
        self.app.stopping.send_replace(true);
        // It ends by itself now; that it panicked would change nothing.
        let _ = (&mut self.acceptor).await;
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.app.stopping.send_replace(true);
        self.acceptor.abort();
    }
}
