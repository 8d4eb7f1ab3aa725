//! One server for many test processes, which come and go as they like.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};

use crate::child::{Actor, process_and_folder};
use crate::{is_alive, until, until_gone};

/// A state folder of this test's own, with a short path, which is removed with what is in it.
struct State(PathBuf);

impl State {
    fn new() -> Self {
        let name = uuid::Uuid::new_v4().simple().to_string();
        Self(PathBuf::from("/tmp").join(format!("longhaul-state-{}", &name[..8])))
    }

    fn servers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What each of these children tells about its server.
fn servers_of(children: &mut [Actor]) -> Vec<(u32, PathBuf)> {
    children.iter_mut().map(|child| process_and_folder(&child.hear())).collect()
}

#[test]
fn processes_that_start_at_once_share_it_and_the_last_one_ends_it() {
    let state = State::new();
    let mut children: Vec<Actor> = (0..4).map(|_| Actor::share("shared", &state.0, "1")).collect();
    let told = servers_of(&mut children);
    assert!(told.iter().all(|server| *server == told[0]), "{told:?}");
    assert_eq!(state.servers(), [told[0].1.clone()]);
    let last = children.pop().unwrap();
    // One goes by itself, the others as rudely as can be.
    children.pop().unwrap().finish();
    children.into_iter().for_each(Actor::kill);
    assert!(is_alive(told[0].0), "one process still needs it");
    last.finish();
    until_gone(told[0].0, &told[0].1);
}

#[test]
fn a_template_is_migrated_once_across_processes() {
    let state = State::new();
    let mut children: Vec<Actor> = (0..3).map(|_| Actor::share("migrated", &state.0, "1")).collect();
    let (mut migrations, mut servers) = (0, 0);
    for child in &mut children {
        while child.hear() == "migrating" {
            migrations += 1;
        }
        servers += 1;
    }
    assert_eq!((migrations, servers), (1, 3));
    children.into_iter().for_each(Actor::finish);
    until("the server's folder is gone", || state.servers().is_empty());
}

#[test]
#[cfg(target_os = "linux")]
fn the_next_process_finds_it_warm() {
    let state = State::new();
    let mut first = Actor::share("shared", &state.0, "20");
    let server = process_and_folder(&first.hear());
    first.finish();
    let mut second = Actor::share("shared", &state.0, "20");
    assert_eq!(process_and_folder(&second.hear()), server);
    second.finish();
    // Not worth twenty seconds: the keeper is told to go by its own signal, as at a system's shutdown.
    end_keeper_of(server.0);
    until_gone(server.0, &server.1);
}

#[cfg(target_os = "linux")]
fn end_keeper_of(server: u32) {
    let status = fs::read_to_string(format!("/proc/{server}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    rustix::process::kill_process(Pid::from_raw(parent.trim().parse().unwrap()).unwrap(), Signal::TERM).unwrap();
}

#[test]
fn a_newcomer_never_gets_a_server_that_is_about_to_stop() {
    let state = State::new();
    // Without lingering, each server ends when its process does: just when the next two processes come.
    let mut before: Option<Actor> = None;
    for _ in 0..8 {
        let first = Actor::share("fleeting", &state.0, "0");
        if let Some(before) = before.take() {
            before.finish();
        }
        let second = Actor::share("fleeting", &state.0, "0");
        first.finish();
        before = Some(second);
    }
    before.unwrap().finish();
    until("every server's folder is gone", || state.servers().is_empty());
}

#[test]
fn what_a_machine_that_went_down_left_is_swept_away() {
    let state = State::new();
    let mut first = Actor::share("shared", &state.0, "0");
    let (pid, folder) = process_and_folder(&first.hear());
    first.finish();
    until_gone(pid, &folder);
    // The folder of a server that nobody keeps, with its door wide open.
    fs::create_dir_all(folder.join("data")).unwrap();
    fs::write(folder.join("door"), "").unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.join("users")).status().unwrap().success());
    assert_eq!(fs::read_to_string(state.0.join("current")).unwrap(), folder.file_name().unwrap().to_str().unwrap());
    let mut second = Actor::share("shared", &state.0, "0");
    let (pid, fresh) = process_and_folder(&second.hear());
    assert_ne!(fresh, folder);
    assert!(!folder.exists(), "the stale folder is gone");
    second.finish();
    until_gone(pid, &fresh);
}

#[test]
fn a_server_killed_by_hand_is_replaced() {
    let state = State::new();
    let mut first = Actor::share("shared", &state.0, "0");
    let (killed, folder) = process_and_folder(&first.hear());
    let mut second = Actor::share("shared", &state.0, "0");
    assert_eq!(second.hear(), format!("{killed} {}", folder.display()));
    rustix::process::kill_process(Pid::from_raw(i32::try_from(killed).unwrap()).unwrap(), Signal::QUIT).unwrap();
    until("the server does not answer", || !folder.join("data/postmaster.pid").exists());
    // Those who knew the old one and those who come anew meet at the same new one.
    first.tell();
    second.tell();
    let mut third = Actor::share("shared", &state.0, "0");
    let told = [first.hear(), second.hear(), third.hear()];
    assert!(told.iter().all(|server| *server == told[0]), "{told:?}");
    let (pid, fresh) = process_and_folder(&told[0]);
    assert_ne!(pid, killed);
    [first, second, third].into_iter().for_each(Actor::finish);
    until_gone(pid, &fresh);
    until("the old one's folder is gone too", || !folder.exists());
}

#[test]
fn a_state_folder_open_to_others_is_refused() {
    let state = State::new();
    fs::create_dir(&state.0).unwrap();
    fs::set_permissions(&state.0, fs::Permissions::from_mode(0o777)).unwrap();
    let mut child = Actor::share("untrusted", Path::new(&state.0), "0");
    assert_eq!(child.hear(), "postgres_untrusted_folder");
    child.finish();
}
