//! This test binary run again, as a process to kill or to compete with.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::postgres::{Options, Origin, Server};
use rustix::process::{Pid, Signal};

use crate::{ask, connect, run};

const ROLE: &str = "LONGHAUL_TEST_CHILD";

/// A child that tells things, each a line that begins with `@`, and stays until its input is closed.
pub(crate) struct Actor {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Actor {
    pub(crate) fn start(role: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child::act", "--nocapture"]).env(ROLE, role);
        command.env_remove("LONGHAUL_DATABASE_URL").envs(variables.iter().copied()).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// A child that uses the shared server of this state folder.
    pub(crate) fn share(role: &str, state: &Path, linger: &str) -> Self {
        let state = state.to_str().unwrap();
        Self::start(role, &[("LONGHAUL_TEST_SERVER_DIR", state), ("LONGHAUL_TEST_SERVER_LINGER", linger)])
    }

    /// The next thing it tells.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the child ended without telling");
            if let Some(told) = line.trim().strip_prefix('@') {
                return told.to_owned();
            }
        }
    }

    pub(crate) fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }

    pub(crate) fn signal_group(&mut self, signal: Signal) {
        let group = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process_group(group, signal).unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it go and waits for its end, which must be a good one.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

/// A process and a folder, as a child tells them.
pub(crate) fn process_and_folder(told: &str) -> (u32, PathBuf) {
    let (pid, folder) = told.split_once(' ').unwrap();
    (pid.parse().unwrap(), PathBuf::from(folder))
}

fn tell(what: &str) {
    println!("\n@{what}");
}

/// Waits for a line; false at the end of the input.
fn wait() -> bool {
    std::io::stdin().read_line(&mut String::new()).unwrap() > 0
}

/// The process and the folder of the server that a test database is on.
async fn tell_server(database: &TestDatabase) {
    let mut connection = connect(database.url()).await;
    let pid = ask(&mut connection, "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)").await;
    let data = ask(&mut connection, "SHOW data_directory").await;
    tell(&format!("{pid} {}", Path::new(&data).parent().unwrap().display()));
}

/// What the child does. Among the other tests it has no role, and does nothing.
#[tokio::test]
async fn act() {
    match std::env::var(ROLE).unwrap_or_default().as_str() {
        "" => {}
        "private" => {
            let server = Server::private(Options::default()).await.unwrap();
            tell(&format!("{} {}", server.pid().unwrap(), server.data_dir().unwrap().parent().unwrap().display()));
            wait();
        }
        "shared" => loop {
            let database = TestDatabase::empty().await.unwrap();
            tell_server(&database).await;
            if !wait() {
                break;
            }
        },
        "migrated" => {
            let migrate = |url: String| async move {
                tell("migrating");
                run(&mut connect(&url).await, "CREATE TABLE thing (id int)").await;
                Ok::<_, std::io::Error>(())
            };
            let database = TestDatabase::create("across processes", migrate).await.unwrap();
            run(&mut connect(database.url()).await, "INSERT INTO thing VALUES (1)").await;
            tell_server(&database).await;
            wait();
        }
        "fleeting" => {
            for _ in 0..2 {
                let database = TestDatabase::empty().await.unwrap();
                run(&mut connect(database.url()).await, "CREATE TABLE thing (id int)").await;
            }
        }
        "ensure" => {
            let mut server = Server::ensure().await.unwrap();
            assert!(matches!(server.origin(), Origin::Given { .. }), "{server:?}");
            assert_eq!(server.crash().await.unwrap_err().code(), "postgres_not_private");
            server.create_database("made_there").await.unwrap();
            tell(&server.url("made_there"));
            server.stop().await.unwrap();
            let database = TestDatabase::empty().await.unwrap();
            tell(database.url());
        }
        "untrusted" => tell(TestDatabase::empty().await.unwrap_err().code()),
        role => panic!("no such role: {role:?}"),
    }
}
