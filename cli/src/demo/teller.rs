//! Tells on stderr how the demo goes: a line for what happened, a bar for how far it is.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the state is told where there is no terminal to draw a bar on.
const PLAIN_PAUSE: Duration = Duration::from_secs(5);

/// Tells, and remembers what it has told.
#[derive(Clone)]
pub(super) struct Teller {
    bar: ProgressBar,
    began: Instant,
    told: Arc<Mutex<Told>>,
}

struct Told {
    story: Vec<(Duration, String)>,
    state_at: Instant,
    state: String,
}

impl Teller {
    pub(super) fn new(runs: usize) -> Self {
        let bar = ProgressBar::new(runs as u64);
        let style = ProgressStyle::with_template("{elapsed:>4} {bar:32} {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let began = Instant::now();
        let told = Told { story: Vec::new(), state_at: began, state: String::new() };
        Self { bar, began, told: Arc::new(Mutex::new(told)) }
    }

    /// Something happened.
    pub(super) fn say(&self, line: impl Into<String>) {
        let (at, line) = (self.began.elapsed(), line.into());
        self.aside(&format!("{:>5.1} s  {line}", at.as_secs_f64()));
        self.told().story.push((at, line));
    }

    /// A line that is no part of the story.
    pub(super) fn aside(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// How far it is.
    pub(super) fn state(&self, completed: u64, message: String) {
        self.bar.set_position(completed);
        if self.bar.is_hidden() {
            let mut told = self.told();
            if told.state_at.elapsed() >= PLAIN_PAUSE && told.state != message {
                eprintln!("{:>5.1} s  {completed} completed {message}", self.began.elapsed().as_secs_f64());
                (told.state_at, told.state) = (Instant::now(), message);
            }
        } else {
            self.bar.set_message(message);
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// What has happened, and when.
    pub(super) fn story(&self) -> Vec<(Duration, String)> {
        self.told().story.clone()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
