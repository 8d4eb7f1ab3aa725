//! A proxy between a node and its database that can cut the connection at a certain statement: before the server hears of it,
//! or after it was executed and before its answer is heard. It reads just enough of the wire protocol to know which statement
//! is being executed and when its answer is complete.

use longhaul_sandbox::postgres::testing::TestDatabase;
use sqlx::postgres::PgConnectOptions;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// A statement of the engine's, by words that only it has.
pub const FLUSH: &str = "cursor = r.cursor + l.events";
pub const CLAIM: &str = "A node that was declared dead claims nothing";
pub const ENQUEUE: &str = "insert into longhaul.runs (run_id";
pub const CREATED: &str = "set status = 5, provider_batch_id = $3";
pub const ANSWER: &str = "update longhaul.waits w set status = 4";
pub const TAKE_OVER: &str = "json_build_object('from'";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server never hears of it.
    Before,
    /// The server has committed it, and nobody hears the answer.
    After,
    /// The server never hears of it, and the connection stays open in silence.
    Silence,
}

#[derive(Default)]
struct Plan {
    armed: Vec<(&'static str, Cut, usize)>,
    hits: usize,
}

pub struct Proxy {
    url: String,
    plan: Arc<Mutex<Plan>>,
    deaf: Arc<watch::Sender<bool>>,
}

enum Server {
    Socket(PathBuf),
    Tcp(String, u16),
}

impl Proxy {
    pub async fn start(db: &TestDatabase) -> Self {
        let options: PgConnectOptions = db.url().parse().unwrap();
        let (host, port) = (options.get_host().to_owned(), options.get_port());
        let server = match options.get_socket() {
            Some(folder) => Server::Socket(folder.join(format!(".s.PGSQL.{port}"))),
            None if host.starts_with('/') => Server::Socket(PathBuf::from(host).join(format!(".s.PGSQL.{port}"))),
            None => Server::Tcp(host, port),
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let rest = db.url().rsplit_once('/').unwrap().1;
        let account = db.url().trim_start_matches("postgres://").split_once('@').map_or("postgres", |(a, _)| a);
        let url = format!("postgres://{account}@{address}/{rest}");
        let (plan, deaf) = (Arc::<Mutex<Plan>>::default(), Arc::new(watch::channel(false).0));
        tokio::spawn(accept(listener, Arc::new(server), plan.clone(), deaf.clone()));
        Self { url, plan, deaf }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The next so many executions of that statement are cut.
    pub fn arm(&self, statement: &'static str, cut: Cut, times: usize) {
        self.plan.lock().unwrap().armed.push((statement, cut, times));
    }

    /// How many were cut by now.
    pub fn hits(&self) -> usize {
        self.plan.lock().unwrap().hits
    }

    /// From now on no byte passes in either direction, and no connection is closed.
    pub fn black_hole(&self) {
        self.deaf.send_replace(true);
    }

    /// Bytes pass again.
    pub fn heal(&self) {
        self.deaf.send_replace(false);
    }
}

impl Plan {
    fn meets(&mut self, sql: &str) -> Option<Cut> {
        let place = self.armed.iter().position(|(needle, _, left)| *left > 0 && sql.contains(needle))?;
        self.armed[place].2 -= 1;
        self.hits += 1;
        Some(self.armed[place].1)
    }
}

async fn accept(listener: TcpListener, server: Arc<Server>, plan: Arc<Mutex<Plan>>, deaf: Arc<watch::Sender<bool>>) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, plan, deaf) = (server.clone(), plan.clone(), deaf.subscribe());
        tokio::spawn(async move {
            let (from_client, to_client) = client.into_split();
            match &*server {
                Server::Socket(path) => {
                    let Ok(stream) = UnixStream::connect(path).await else { return };
                    let (from, to) = stream.into_split();
                    serve(from_client, to_client, from, to, plan, deaf).await;
                }
                Server::Tcp(host, port) => {
                    let Ok(stream) = TcpStream::connect((host.as_str(), *port)).await else { return };
                    let (from, to) = stream.into_split();
                    serve(from_client, to_client, from, to, plan, deaf).await;
                }
            }
        });
    }
}

/// Passes messages both ways until an end closes, or the plan says to cut. Dropping both streams is the cut.
async fn serve(
    mut from_client: impl AsyncRead + Unpin,
    mut to_client: impl AsyncWrite + Unpin,
    mut from_server: impl AsyncRead + Unpin,
    mut to_server: impl AsyncWrite + Unpin,
    plan: Arc<Mutex<Plan>>,
    deaf: watch::Receiver<bool>,
) {
    // Set when the answer that comes next is not to be heard.
    let (swallow, swallowing) = watch::channel(false);
    let mut hearing = deaf.clone();
    let up = async {
        let mut statements = HashMap::new();
        let mut first = true;
        loop {
            let message = read(&mut from_client, first).await?;
            first = false;
            let mut deaf = deaf.clone();
            let _ = deaf.wait_for(|deaf| !deaf).await;
            match executes(&message, &mut statements).and_then(|sql| plan.lock().unwrap().meets(&sql)) {
                Some(Cut::Before) => return None,
                Some(Cut::Silence) => std::future::pending::<()>().await,
                Some(Cut::After) => {
                    swallow.send_replace(true);
                }
                None => {}
            }
            to_server.write_all(&message).await.ok()?;
        }
        #[allow(unreachable_code)]
        Some(())
    };
    let down = async {
        loop {
            let message = read(&mut from_server, false).await?;
            let _ = hearing.wait_for(|deaf| !deaf).await;
            if *swallowing.borrow() {
                // `Z`: ready for the next query, so this one is committed.
                if message[0] == b'Z' {
                    return None;
                }
                continue;
            }
            to_client.write_all(&message).await.ok()?;
        }
        #[allow(unreachable_code)]
        Some(())
    };
    tokio::select! { _ = up => {}, _ = down => {} }
}

/// One message; the first one of a client has no type.
async fn read(from: &mut (impl AsyncRead + Unpin), untyped: bool) -> Option<Vec<u8>> {
    let mut message = vec![0; if untyped { 4 } else { 5 }];
    from.read_exact(&mut message).await.ok()?;
    let at = message.len() - 4;
    let length = u32::from_be_bytes(message[at..].try_into().ok()?) as usize;
    let end = at + length;
    let begin = message.len();
    message.resize(end, 0);
    from.read_exact(&mut message[begin..]).await.ok()?;
    Some(message)
}

/// The text of the statement that this message executes.
fn executes(message: &[u8], statements: &mut HashMap<Vec<u8>, String>) -> Option<String> {
    let mut parts = message.get(5..)?.split(|b| *b == 0);
    match message[0] {
        b'P' => {
            let (name, sql) = (parts.next()?.to_vec(), String::from_utf8_lossy(parts.next()?).into_owned());
            statements.insert(name, sql);
            None
        }
        b'B' => statements.get(parts.nth(1)?).cloned(),
        _ => None,
    }
}
