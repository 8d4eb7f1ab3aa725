//! A server of one's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longhaul_sandbox::postgres::{Error, Options, Origin, Server};
use rustix::process::Signal;

use crate::child::{Actor, process_and_folder};
use crate::{ask, connect, is_alive, run, until_gone};

async fn server() -> Server {
    Server::private(Options::default()).await.unwrap()
}

fn folder(server: &Server) -> PathBuf {
    server.data_dir().unwrap().parent().unwrap().to_path_buf()
}

#[tokio::test]
async fn it_answers_and_is_durable() {
    let server = server().await;
    let Origin::Private { version, bin_dir } = server.origin() else { panic!("{server:?}") };
    assert!(bin_dir.join("postgres").is_file());
    let mut connection = connect(&server.url("postgres")).await;
    let answer = ask(&mut connection, "SELECT version()").await;
    assert!(answer.starts_with(&format!("PostgreSQL {version}")), "{answer}");
    let settings = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
        WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'max_connections', 'listen_addresses')";
    assert_eq!(
        ask(&mut connection, settings).await,
        "fsync=on full_page_writes=on listen_addresses= max_connections=200 synchronous_commit=on"
    );
}

#[tokio::test]
async fn stop_returns_when_it_is_gone() {
    let server = server().await;
    let (pid, folder) = (server.pid().unwrap(), folder(&server));
    assert!(is_alive(pid) && folder.is_dir());
    server.stop().await.unwrap();
    assert!(!is_alive(pid), "the process is gone");
    assert!(!folder.exists(), "the folder is gone");
}

#[tokio::test]
async fn drop_ends_it_even_with_a_client_connected() {
    let server = server().await;
    let (pid, folder) = (server.pid().unwrap(), folder(&server));
    let _connection = connect(&server.url("postgres")).await;
    drop(server);
    until_gone(pid, &folder);
}

#[test]
fn it_is_gone_after_its_process_was_killed() {
    let mut child = Actor::start("private", &[]);
    let (pid, folder) = process_and_folder(&child.hear());
    assert!(is_alive(pid) && folder.is_dir());
    child.kill();
    until_gone(pid, &folder);
}

#[test]
fn it_is_gone_after_ctrl_c() {
    let mut child = Actor::start("private", &[]);
    let (pid, folder) = process_and_folder(&child.hear());
    child.signal_group(Signal::INT);
    until_gone(pid, &folder);
}

#[tokio::test]
async fn what_was_committed_survives_a_crash() {
    let mut server = server().await;
    server.create_database("kept").await.unwrap();
    let url = server.url("kept");
    let mut connection = connect(&url).await;
    run(&mut connection, "CREATE TABLE thing (name text); INSERT INTO thing VALUES ('committed')").await;
    let before = server.pid().unwrap();
    server.crash().await.unwrap();
    assert!(!is_alive(before), "crash returns when the process is gone");
    assert!(sqlx::query("SELECT 1").execute(&mut connection).await.is_err(), "connections are lost");
    server.start_again().await.unwrap();
    assert_ne!(server.pid().unwrap(), before);
    assert_eq!(ask(&mut connect(&url).await, "SELECT name FROM thing").await, "committed");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn databases_are_made_and_dropped_whatever_their_name() {
    let server = server().await;
    for name in ["plain", "with \"quotes\" / slash ? and ü"] {
        server.create_database(name).await.unwrap();
        let again = server.create_database(name).await.unwrap_err();
        assert!(
            matches!(&again, Error::Database(error) if error.as_database_error().unwrap().code().unwrap() == "42P04")
        );
        let mut connection = connect(&server.url(name)).await;
        assert_eq!(ask(&mut connection, "SELECT current_database()::text").await, name);
        server.drop_database(name).await.unwrap();
        server.drop_database(name).await.unwrap();
    }
}

#[tokio::test]
async fn a_chosen_data_folder_is_kept() {
    // Root's server runs as another user, who must be able to walk here.
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = root.path().join("data");
    let first = Server::private(Options::default().data_dir(&data)).await.unwrap();
    run(&mut connect(&first.url("postgres")).await, "CREATE TABLE thing AS SELECT 'kept'::text AS name").await;
    first.stop().await.unwrap();
    let second = Server::private(Options::default().data_dir(&data)).await.unwrap();
    assert_eq!(ask(&mut connect(&second.url("postgres")).await, "SELECT name FROM thing").await, "kept");
    let third = Server::private(Options::default().data_dir(&data)).await.unwrap_err();
    assert!(matches!(&third, Error::Failed { log, .. } if log.contains("postmaster.pid")), "{third}");
    second.stop().await.unwrap();
    assert!(data.join("PG_VERSION").is_file());
}

#[tokio::test]
async fn a_wrong_setting_is_told_with_the_servers_words() {
    let refused = Server::private(Options::default().setting("no_such_setting", "1")).await.unwrap_err();
    assert_eq!(refused.code(), "postgres_failed");
    assert!(refused.to_string().contains("unrecognized configuration parameter"), "{refused}");
}

fn fake_programs(bin_dir: &Path, version: &str) {
    for program in ["postgres", "initdb"] {
        let path = bin_dir.join(program);
        fs::write(&path, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[tokio::test]
async fn other_versions_are_refused_by_name() {
    for version in ["14.9", "19devel"] {
        let bin_dir = tempfile::tempdir().unwrap();
        fake_programs(bin_dir.path(), version);
        let refused = Server::private(Options::default().look_in([bin_dir.path()])).await.unwrap_err();
        assert_eq!(refused.code(), "postgres_unsupported_version");
        assert!(refused.to_string().contains(version), "{refused}");
    }
}

#[tokio::test]
async fn without_a_server_the_error_says_how_to_install_one() {
    let empty = tempfile::tempdir().unwrap();
    let refused = Server::private(Options::default().look_in([empty.path()])).await.unwrap_err();
    assert_eq!(refused.code(), "postgres_not_installed");
    let text = refused.to_string();
    for hint in ["apt install", "dnf install", "pacman -S", "brew install", "Windows", "LONGHAUL_DATABASE_URL"] {
        assert!(text.contains(hint), "{hint} is missing in: {text}");
    }
}
