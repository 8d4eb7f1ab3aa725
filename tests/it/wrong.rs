//! What does not compile, and what the compiler says of it: each file of `tests/wrong` is a crate of mistakes.
//!
//! Below a line with a mistake stands what must be said of it, `//~ words`: an error at that line (or, where it spans several,
//! beginning there) that has these words in its text, its labels, notes or helps. Errors elsewhere fail the test too. There are
//! no transcripts to be written anew with each compiler; where a compiler has changed its words, the file says which.
//!
//! The compiler is called directly, on the library that this test was linked with. A harness that lets cargo build each file as a
//! package of its own first builds all dependencies once more, into a folder of its own.

use serde::Deserialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// What follows stands below the line that it is about.
const MARK: &str = "//~ ";

#[derive(Deserialize)]
struct Message {
    level: String,
    rendered: String,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Span {
    line_start: usize,
    is_primary: bool,
}

struct Compiler {
    program: PathBuf,
    /// Where the libraries lie that the tests were linked with.
    libraries: PathBuf,
    library: PathBuf,
    out: tempfile::TempDir,
}

impl Compiler {
    /// The compiler beside this cargo, and the newest library with which the control compiles: older ones, and those with other
    /// features, lie in the same folder.
    fn find(control: &Path) -> Self {
        let beside = std::env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name("rustc"));
        let beside = beside.filter(|path| path.exists());
        let program = std::env::var_os("RUSTC").map(PathBuf::from).or(beside).unwrap_or_else(|| "rustc".into());
        let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let age = |path: &PathBuf| path.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut found: Vec<_> = libraries.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        found.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("liblonghaul-") && name.ends_with(".rlib")
        });
        found.sort_by_key(age);
        let out = tempfile::tempdir().unwrap();
        let mut compiler = Self { program, libraries, library: PathBuf::new(), out };
        let mut said = Vec::new();
        while let Some(library) = found.pop() {
            compiler.library = library;
            said = compiler.errors(control);
            if said.is_empty() {
                return compiler;
            }
        }
        panic!("the control does not compile: {}", said.iter().map(|m| m.rendered.as_str()).collect::<String>());
    }

    fn errors(&self, file: &Path) -> Vec<Message> {
        let output = Command::new(&self.program)
            .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--error-format=json"])
            .args(["--diagnostic-width=1000", "--verbose"])
            .arg("--out-dir")
            .arg(self.out.path())
            .arg("-L")
            .arg(format!("dependency={}", self.libraries.display()))
            .arg("--extern")
            .arg(format!("longhaul={}", self.library.display()))
            .arg(file)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let mut messages: Vec<Message> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        // The last one, which only counts them, has no place.
        messages.retain(|m| m.level == "error" && !m.spans.is_empty());
        assert_eq!(output.status.success(), messages.is_empty(), "{}: {text}", file.display());
        messages
    }
}

/// The lines with mistakes, and what is said of each.
fn marks(text: &str) -> Vec<(usize, &str)> {
    let mut marks = Vec::new();
    let mut about = 0;
    for (k, line) in text.lines().enumerate() {
        match line.trim_start().strip_prefix(MARK) {
            Some(words) => marks.push((about, words.trim())),
            None => about = k + 1,
        }
    }
    marks
}

/// What differs between what a file says of itself and what the compiler says of it.
fn differences(compiler: &Compiler, file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let (marks, errors) = (marks(&text), compiler.errors(file));
    let name = file.file_name().unwrap().to_string_lossy();
    let line = |error: &Message| error.spans.iter().find(|span| span.is_primary).map_or(0, |span| span.line_start);
    let mut found = String::new();
    for (at, words) in &marks {
        if !errors.iter().any(|error| line(error) == *at && error.rendered.contains(words)) {
            writeln!(found, "{name}:{at}: nothing says: {words}").unwrap();
        }
    }
    for error in &errors {
        let at = line(error);
        let here: Vec<_> = marks.iter().filter(|(marked, _)| *marked == at).collect();
        if here.is_empty() {
            writeln!(found, "{name}:{at}: not expected:\n{}", error.rendered).unwrap();
        } else if !found.is_empty() {
            writeln!(found, "{name}:{at}: said:\n{}", error.rendered).unwrap();
        }
    }
    assert!(!marks.is_empty(), "{name} has no mistake");
    found
}

#[test]
fn mistakes_are_told_where_they_are_made() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong");
    let control = folder.join("right.rs");
    let compiler = Compiler::find(&control);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| *file != control);
    assert!(files.len() > 10, "where are they?");
    let found: String = std::thread::scope(|scope| {
        let threads: Vec<_> = files.iter().map(|file| scope.spawn(|| differences(&compiler, file))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.is_empty(), "{found}");
}
