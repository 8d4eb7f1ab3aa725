//! A database of its own for every test, on one server for all of them.
//!
//! ```no_run
//! use longhaul_sandbox::postgres::testing::TestDatabase;
//!
//! # async fn migrate(url: String) -> Result<(), std::io::Error> { Ok(()) }
//! # const DIGEST_OF_MIGRATIONS: &str = "";
//! #[tokio::test]
//! async fn orders_are_kept() {
//!     let database = TestDatabase::create(DIGEST_OF_MIGRATIONS, migrate).await.unwrap();
//!     // connect to database.url() ...
//! }
//! # fn main() {}
//! ```
//!
//! # Which server
//!
//! If `LONGHAUL_DATABASE_URL` is set, the server it names. Otherwise one private server for all test processes of this user
//! and workspace, whether a process runs many tests (`cargo test`) or one (cargo-nextest). Its durability settings are
//! PostgreSQL's own: tests may assert them.
//!
//! # How many processes share a server
//!
//! The state folder `longhaul-test-<uid>-<hash of the workspace>` in the temp dir (or the folder that
//! `LONGHAUL_TEST_SERVER_DIR` names) holds `turn`, a lock file, `current`, the name of the server to use, and a folder for
//! each server. In a server's folder are its data, its socket, a named pipe `users` and a file `door`.
//!
//! - Every test process holds `users` open for writing until it ends. The kernel counts: the server's keeper, which reads
//!   it, sees its end exactly when the last process is gone, however it went.
//! - The keeper then lingers five seconds (or what `LONGHAUL_TEST_SERVER_LINGER` says), so that the next test binary of the same command finds the server warm. If
//!   nobody came, it removes `door`, **looks at `users` again**, serves whoever came in between, stops the server and removes
//!   its folder.
//! - A newcomer takes its `turn`, opens `users`, and **then** looks for `door`. If the door is there, the keeper's second
//!   look is still to come and will see the newcomer; if not, the newcomer starts a server of its own in a new folder. It
//!   never gets one that is about to stop.
//! - A pipe that nobody reads has lost its keeper (the machine went down): the next newcomer removes that folder. A server
//!   that does not answer is left to its keeper, and a new one is started.
//!
//! The state folder itself, nearly empty, stays.

mod database;
mod home;
mod shared;
mod template;

pub use database::TestDatabase;
