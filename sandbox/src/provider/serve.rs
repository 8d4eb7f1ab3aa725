//! The accept loop. Each connection is served by a task of its own that a handler can cut, because a fault may have to
//! close a connection without any reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::app::App;

/// In a request's extensions: cuts the connection that it came by.
#[derive(Clone, Default)]
pub(crate) struct Cut(Arc<Switch>);

#[derive(Default)]
struct Switch {
    now: Notify,
    reset: AtomicBool,
}

impl Cut {
    /// Closes the connection. The caller goes away with it, so this never returns.
    pub(crate) async fn now(&self) -> Response {
        self.0.now.notify_one();
        std::future::pending().await
    }

    /// Resets the connection. The caller goes away with it, so this never returns.
    pub(crate) async fn reset(&self) -> Response {
        self.0.reset.store(true, Ordering::Release);
        self.now().await
    }
}

/// Accepts connections until the sandbox stops; then all of them are closed.
pub(crate) async fn accept(app: Arc<App>, listener: TcpListener, router: Router) {
    let mut stopping = app.stopping.subscribe();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(serve(stream, router.clone())); }
                // Out of file descriptors, or the peer is gone already: neither is the end of the sandbox.
                Err(error) => tracing::warn!(%error, "a connection could not be accepted"),
            },
            Some(_) = connections.join_next() => {}
            _ = stopping.wait_for(|stopping| *stopping) => break,
        }
    }
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, router: Router) {
    // A held-back reply must not wait for Nagle as well. Without it all is merely slower.
    let _ = stream.set_nodelay(true);
    let cut = Cut::default();
    let service = TowerToHyperService::new(router);
    let handle = cut.clone();
    let mut connection = http1::Builder::new().serve_connection(
        TokioIo::new(stream),
        service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(handle.clone());
            service.call(request)
        }),
    );
    tokio::select! {
        // A client that goes away is no error here.
        _ = &mut connection => return,
        () = cut.0.now.notified() => {}
    }
    let stream = connection.into_parts().io.into_inner();
    if cut.0.reset.load(Ordering::Acquire) {
        // With nothing to linger for, closing sends a reset. Should it fail, the connection is closed all the same.
        let _ = stream.set_zero_linger();
    }
}
