//! The rules of the source tree, read from the tree itself. Each finding names file and line; each rule says why it is there.

use std::fs;
use std::path::{Path, PathBuf};

/// Where code lies that is shipped.
const CODE: &[&str] = &["src", "actors", "macros/src", "sandbox/src", "cli/src"];
/// Where tests, benches and examples lie.
const TRIALS: &[&str] = &["tests", "sandbox/tests", "cli/tests", "benches", "examples"];
/// What people read or run.
const PROSE: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs",
    "migrations",
    "scripts",
    ".ci",
    "Cargo.toml",
    "deny.toml",
    "clippy.toml",
    "sqlx.toml",
];

/// Lines of a file at most.
const LINES: usize = 500;
/// Folders that a file of a crate may lie below, the crate's own `src` included.
const FOLDERS: usize = 3;

/// The rooms of the library, and the rooms that each may name.
const ROOMS: &[(&str, &[&str])] = &[
    ("src/domain", &["domain"]),
    ("src/run", &["domain", "run"]),
    ("src/provider", &["domain", "run", "provider"]),
    ("src/store", &["domain", "run", "provider", "store"]),
    ("src/client", &["domain", "run", "store", "client", "error"]),
    ("src/audit", &["domain", "run", "store", "audit", "error"]),
    ("actors", &["domain", "run", "provider", "store", "actors", "config", "observe"]),
];
/// What rooms are called in paths. Other names after `crate::` are items of the front door.
const NAMES: &[&str] = &[
    "domain", "run", "provider", "store", "actors", "client", "audit", "node", "config", "error", "observe", "testing",
];
/// Names that cross a line: (room, other room, item). To be emptied, not to be filled.
const CROSSINGS: &[(&str, &str, &str)] = &[("src/provider", "store", "Identity")];

/// A file of the tree.
struct Source {
    /// Relative to the root, with `/`.
    path: String,
    text: String,
}

impl Source {
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(k, line)| (k + 1, line))
    }

    /// The lines without their comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().map(|(k, line)| (k, without_comment(line)))
    }

    fn lies_in(&self, folder: &str) -> bool {
        self.path == folder || self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }

    /// A test module in a file of its own beside the code.
    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below these places, in order.
fn sources(places: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for place in places {
        walk(&root().join(place), &mut paths);
    }
    paths.sort();
    let name = |path: &Path| path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
    // What is not text (a data file, say) has no lines to look at.
    paths.iter().filter_map(|p| Some(Source { path: name(p), text: fs::read_to_string(p).ok()? })).collect()
}

fn walk(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_file() {
        found.push(path.to_owned());
    } else if path.is_dir() && !path.ends_with("target") {
        for entry in fs::read_dir(path).unwrap() {
            walk(&entry.unwrap().path(), found);
        }
    }
}

fn rust(places: &[&str]) -> Vec<Source> {
    let mut sources = sources(places);
    sources.retain(|s| s.path.ends_with(".rs"));
    assert!(!sources.is_empty(), "{places:?} hold no code: has it moved?");
    sources
}

/// A line up to its comment. A `//` after a colon is part of a URL.
fn without_comment(line: &str) -> &str {
    let end = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':')).map_or(line.len(), |(at, _)| at);
    &line[..end]
}

/// A line of code without what stands between quotes.
fn without_strings(line: &str) -> String {
    let line = line.replace("'\"'", "").replace("\\\"", "");
    line.split('"').step_by(2).collect::<Vec<_>>().join("\"")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a line has this word, and not only as part of another.
fn has_word(line: &str, word: &str) -> bool {
    // A path that ends with `::` goes on with a word.
    let open = word.ends_with("::");
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_word) && (open || !line[at + word.len()..].starts_with(is_word)))
}

/// The paths that a line names after `crate::`, each up to its second name. Groups in braces are taken apart.
fn crate_paths(line: &str) -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for (at, prefix) in line.match_indices("crate::") {
        if line[..at].ends_with(|c: char| is_word(c) || c == '$') {
            continue;
        }
        let rest = &line[at + prefix.len()..];
        let group = rest.strip_prefix('{').map(|g| g.split('}').next().unwrap_or(g).split(',').map(str::trim));
        for path in group.map_or_else(|| vec![rest], Iterator::collect) {
            let mut names = path.split("::").map(|name| name.chars().take_while(|c| is_word(*c)).collect::<String>());
            paths.push((names.next().unwrap_or_default(), names.next().unwrap_or_default()));
        }
    }
    paths
}

/// Fails with every finding.
fn none(why: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{why}\n  {}\n", findings.join("\n  "));
}

/// The lines of code in which a word stands outside the places where it may.
fn named_outside(sources: &[Source], word: &str, allowed: &[&str]) -> Vec<String> {
    let elsewhere = sources.iter().filter(|s| !allowed.iter().any(|place| s.lies_in(place)));
    elsewhere
        .flat_map(|s| {
            s.code()
                .filter(|(_, line)| has_word(&without_strings(line), word))
                .map(|(k, _)| format!("{}:{k}: names {word}", s.path))
        })
        .collect()
}

#[test]
fn files_fit_the_mind() {
    let long = rust(CODE).into_iter().filter(|s| !s.is_test() && s.lines().count() > LINES);
    none(
        "A file of 500 lines has two thoughts: split it.",
        long.map(|s| format!("{}:{LINES}: goes on", s.path)).collect(),
    );
}

#[test]
fn folders_go_three_deep() {
    let deep = |s: &Source| {
        let own = ["macros/", "sandbox/", "cli/"].iter().find_map(|member| s.path.strip_prefix(member));
        own.unwrap_or(&s.path).matches('/').count() > FOLDERS
    };
    let found = rust(CODE).into_iter().chain(rust(TRIALS)).filter(deep);
    none("Below three folders nobody finds anything.", found.map(|s| format!("{}:1: lies too deep", s.path)).collect());
}

#[test]
fn only_the_store_knows_sql() {
    // Tests may look into the tables by themselves.
    let mut code = rust(&["src", "actors", "cli/src", "macros/src"]);
    code.retain(|source| !source.is_test());
    none(
        "SQL is written in src/store, so that every statement has a name and a guard.",
        named_outside(&code, "sqlx", &["src/store"]),
    );
}

#[test]
fn only_actors_and_the_composition_root_know_ractor() {
    let found = named_outside(&rust(CODE), "ractor", &["actors", "src/node.rs"]);
    none("The actor framework is an inner matter of actors/.", found);
}

#[test]
fn the_pure_rooms_know_no_runtime() {
    let pure = rust(&["src/domain", "src/run"]);
    let found = ["tokio", "sqlx", "ractor"].iter().flat_map(|word| named_outside(&pure, word, &[])).collect();
    none("What is pure can be tested in microseconds: domain and run wait for nothing.", found);
}

#[test]
fn rooms_name_only_what_is_below_them() {
    let mut found = Vec::new();
    for (room, below) in ROOMS {
        for source in rust(&[room]).iter().filter(|s| !s.is_test()) {
            for (k, line) in source.code() {
                for (name, item) in crate_paths(line) {
                    let crosses = CROSSINGS.contains(&(room, name.as_str(), item.as_str()));
                    if NAMES.contains(&name.as_str()) && !below.contains(&name.as_str()) && !crosses {
                        found.push(format!("{}:{k}: {room} names {name}::{item}", source.path));
                    }
                }
            }
        }
    }
    none("domain -> run, provider -> store -> actors -> client, audit, node: see ARCHITECTURE.md.", found);
}

#[test]
fn the_sandbox_never_names_the_library() {
    let mut found = named_outside(&rust(&["sandbox/src", "sandbox/tests"]), "longhaul::", &[]);
    let manifest = Source {
        path: "sandbox/Cargo.toml".into(),
        text: fs::read_to_string(root().join("sandbox/Cargo.toml")).unwrap(),
    };
    let names = manifest.lines().filter(|(_, line)| line.starts_with("longhaul.") || line.starts_with("longhaul "));
    found.extend(names.map(|(k, _)| format!("{}:{k}: depends on longhaul", manifest.path)));
    none("The library's tests depend on the sandbox: the other way round there would be two of each type.", found);
}

#[test]
fn files_say_what_they_are_for() {
    let silent = rust(CODE).into_iter().filter(|s| !s.is_test() && !s.text.starts_with("//! "));
    none(
        "The first lines of a file are its design.",
        silent.map(|s| format!("{}:1: has no module doc", s.path)).collect(),
    );
}

#[test]
fn nothing_is_left_half_done() {
    // Put together here, so that this file does not find itself.
    let marks = [["to", "do!"], ["unimple", "mented!"], ["db", "g!"], ["#[ig", "nore"]].map(|m| m.concat());
    let mut found = Vec::new();
    for source in rust(CODE).iter().chain(&rust(TRIALS)) {
        for (k, line) in source.code() {
            found.extend(marks.iter().filter(|m| line.contains(*m)).map(|m| format!("{}:{k}: {m}", source.path)));
        }
    }
    none("What is merged is done, and what is tested is tested always.", found);
}

#[test]
fn nobody_waits_by_blocking_a_thread() {
    let sleep = ["thread", "sleep"].join("::");
    // That one waits for a process which is nobody's child, in a test without a runtime.
    let mut found = named_outside(&rust(CODE), &sleep, &[]);
    found.extend(named_outside(&rust(TRIALS), &sleep, &["sandbox/tests/postgres/main.rs"]));
    none("Wait for a message or a fact. A thread that sleeps is asleep when it matters.", found);
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let here = format!("{}/", root().display());
    let homes = [["/ho", "me/"], ["/Us", "ers/"], ["/ro", "ot/"]].map(|home| home.concat());
    // Where a package manager puts its programs on every machine.
    let known = format!("{}linuxbrew/", homes[0]);
    let mut found = Vec::new();
    for source in sources(&[CODE, TRIALS, PROSE].concat()) {
        for (k, line) in source.lines() {
            let line = line.replace(&known, "");
            let named = homes.iter().any(|home| line.contains(home.as_str()));
            // A root of one name, such as `/app`, is in too many URLs to tell anything.
            let named = named || (root().components().count() > 2 && line.contains(&here));
            if named {
                found.push(format!("{}:{k}: a path of one machine", source.path));
            }
        }
    }
    none("What is written here is true on every machine.", found);
}

#[test]
fn migrations_are_numbered_without_gap() {
    let mut found = Vec::new();
    for (k, migration) in sources(&["migrations"]).iter().enumerate() {
        let name = migration.path.trim_start_matches("migrations/");
        if !name.starts_with(&format!("{:04}_", k + 1)) || !name.ends_with(".sql") {
            found.push(format!("{}:1: should begin with {:04}_ and end with .sql", migration.path, k + 1));
        }
    }
    none("The order of migrations is their number.", found);
}

#[test]
fn the_readme_gives_the_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for command in ["cargo run --release -- demo", "cargo test --workspace"] {
        assert!(readme.lines().any(|line| line == command), "README.md:1: `{command}` has no line of its own");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut found = Vec::new();
    for source in sources(PROSE).iter().filter(|s| s.path.ends_with(".md")) {
        let folder = root().join(&source.path).parent().unwrap().to_owned();
        for (k, line) in source.lines() {
            for rest in line.split("](").skip(1) {
                let target = rest.split([')', '#']).next().unwrap_or_default();
                let elsewhere = target.is_empty() || target.contains("://") || target.contains(' ');
                if !elsewhere && !folder.join(target).exists() {
                    found.push(format!("{}:{k}: there is no {target}", source.path));
                }
            }
        }
    }
    none("A link that leads nowhere is worse than none.", found);
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let path = "docs/semantics.md";
    let Ok(text) = fs::read_to_string(root().join(path)) else { return };
    let tests = rust(&[CODE, TRIALS].concat());
    let (mut found, mut named) = (Vec::new(), 0);
    for (k, line) in text.lines().enumerate() {
        for reference in line.split('`').skip(1).step_by(2).filter(|r| is_reference(r)) {
            named += 1;
            if !exists(&tests, reference) {
                found.push(format!("{path}:{}: there is no test {reference}", k + 1));
            }
        }
    }
    none("A guarantee without its test is a hope.", found);
    assert!(named > 0, "{path}:1: names no test");
}

/// Where a reference to a test begins: a test binary, a folder of code, or a file.
fn is_reference(text: &str) -> bool {
    let first = text.split("::").next().unwrap_or_default();
    let binary = ["tests", "benches", "sandbox/tests", "cli/tests"].iter().any(|folder| {
        root().join(folder).join(first).is_dir() || root().join(folder).join(format!("{first}.rs")).is_file()
    });
    let name = text.rsplit("::").next().unwrap_or_default();
    let names_something = text.contains("::") && name.len() > 2 && name.chars().all(is_word);
    names_something && (first.ends_with(".rs") || ((binary || NAMES.contains(&first)) && name.contains('_')))
}

/// Whether a test of that name stands in a file of that path. `it::local::name` and `store::flush::tests::name` are paths of
/// modules, `tests/it/local.rs::name` and `local.rs::name` are paths of files.
fn exists(tests: &[Source], reference: &str) -> bool {
    let Some((place, name)) = reference.rsplit_once("::") else { return false };
    let place = place.strip_suffix("::tests").unwrap_or(place).trim_end_matches(".rs").replace("::", "/");
    let function = format!("fn {name}(");
    tests.iter().any(|source| {
        let module = source.path.trim_end_matches(".rs").trim_end_matches("/mod").trim_end_matches("/main");
        let module = module.trim_end_matches("/tests");
        let there = module == place || module.strip_suffix(&place).is_some_and(|before| before.ends_with('/'));
        there && source.text.lines().any(|line| line.contains(&function))
    })
}

#[test]
fn this_reader_reads_what_it_should() {
    assert_eq!(without_comment("let a = 1; // tokio"), "let a = 1; ");
    assert_eq!(without_comment("\"http://tokio\"; //! x"), "\"http://tokio\"; ");
    assert_eq!(without_strings(r#"f("sqlx=\"a\"", x)"#), "f(\", x)");
    assert!(has_word("use sqlx::PgPool;", "sqlx") && !has_word("SQLX_OFFLINE longhaul_sqlx", "sqlx"));
    assert!(has_word("use longhaul::Node;", "longhaul::") && !has_word("use a_longhaul::Node;", "longhaul::"));
    let pairs = |line| crate_paths(line).into_iter().map(|(a, b)| format!("{a}.{b}")).collect::<Vec<_>>();
    assert_eq!(pairs("use crate::store::{Claimed, Claimer};"), ["store."]);
    assert_eq!(pairs("use crate::{domain::RunId, store::Store};"), ["domain.RunId", "store.Store"]);
    assert_eq!(pairs("crate::node::f(crate::run::Run)"), ["node.f", "run.Run"]);
    assert!(is_reference("it::tidy::this_reader_reads_what_it_should") && is_reference("local.rs::many_runs_complete"));
    assert!(!is_reference("Node::shutdown") && !is_reference("runs.cursor"));
    let tests = rust(TRIALS);
    assert!(exists(&tests, "it::tidy::this_reader_reads_what_it_should"));
    assert!(exists(&tests, "tests/it/tidy.rs::this_reader_reads_what_it_should"));
    assert!(
        !exists(&tests, "it::tidy::no_such_test") && !exists(&tests, "it::local::this_reader_reads_what_it_should")
    );
}
