//! Who answers the questions to people: a script in this process, or, with `--ask`, whoever sits at the terminal.
//!
//! Both answer as any program would, through the client. Which of them did is in the report, and in the figures.

use super::speeches::{UNCLEAR, Verdict};
use super::teller::Teller;
use crate::error::CliError;
use longhaul::{Client, Error, Question};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// What the script is called where its answers are recorded, and what it always says.
pub(super) const SCRIPT: &str = "script";
pub(super) const SCRIPTED: &str = "formal";
/// What a person at the terminal is called.
pub(super) const TERMINAL: &str = "terminal";
/// How often the open questions are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Questions read at once.
const PAGE: u32 = 100;

/// How many answers each has given, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Answers {
    pub(super) fn by(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, by: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(by).or_default() += 1;
    }
}

pub(super) struct Reviewer {
    client: Client,
    teller: Teller,
    answers: Answers,
    /// Lines typed at the terminal; `None`: the script answers.
    lines: Option<mpsc::Receiver<String>>,
}

impl Reviewer {
    pub(super) fn new(client: &Client, teller: &Teller, ask: bool) -> Result<Self, CliError> {
        let lines = if ask { Some(typed()?) } else { None };
        Ok(Self { client: client.clone(), teller: teller.clone(), answers: Answers::default(), lines })
    }

    /// The counts, which go on while it works.
    pub(super) fn answers(&self) -> Answers {
        self.answers.clone()
    }

    /// Answers whatever is asked, until something goes wrong.
    pub(super) async fn work(mut self) -> CliError {
        loop {
            let round = match self.client.questions(PAGE).await {
                Ok(open) => self.answer(open).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = round {
                return error;
            }
            sleep(LOOK).await;
        }
    }

    async fn answer(&mut self, open: Vec<Question>) -> Result<(), CliError> {
        for question in open {
            let (by, verdict) = self.decide(&question).await;
            match self.client.answer(&question.run, by, &verdict).await {
                Ok(()) => {
                    self.answers.count(by);
                    if self.answers.by().values().sum::<u64>() == 1 {
                        self.teller.say(match by {
                            TERMINAL => "you have answered the first question to a person".to_owned(),
                            _ => format!("a script answers the questions to people with `{SCRIPTED}` (--ask: you do)"),
                        });
                    }
                }
                // It was answered or ended by somebody else.
                Err(Error::AlreadyAnswered(_) | Error::Expired(_) | Error::NotWaiting(_) | Error::RunOver { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn decide(&mut self, question: &Question) -> (&'static str, Verdict) {
        if let Some(lines) = &mut self.lines {
            self.teller.aside(&readable(question));
            match lines.recv().await {
                Some(line) => return (TERMINAL, verdict(&line)),
                None => {
                    self.lines = None;
                    self.teller.say("the terminal has nothing more to say: a script answers from here on");
                }
            }
        }
        (SCRIPT, Verdict::Relabel(SCRIPTED.to_owned()))
    }
}

/// An empty line leaves the tone as it is.
fn verdict(line: &str) -> Verdict {
    match line.trim() {
        "" => Verdict::Keep,
        word => Verdict::Relabel(word.to_lowercase()),
    }
}

fn readable(question: &Question) -> String {
    let context = &question.asked["context"];
    let text = |key: &str| context[key].as_str().unwrap_or_default();
    let year = context["year"].as_i64().map(|year| format!("{year}, ")).unwrap_or_default();
    let prompt = question.asked["prompt"].as_str().unwrap_or_default();
    format!(
        "\n{prompt}\n  {year}{}\n  {}\nA word, or nothing for `{UNCLEAR}`, and Enter:",
        text("title"),
        text("summary")
    )
}

/// The lines of standard input. A thread of its own, which the end of the process does not wait for.
fn typed() -> Result<mpsc::Receiver<String>, CliError> {
    let (tell, lines) = mpsc::channel(1);
    let read = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if tell.blocking_send(line).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().spawn(read).map_err(|error| CliError::io("start a thread", error))?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_keeps_the_tone() {
        assert_eq!(verdict(" \n"), Verdict::Keep);
        assert_eq!(verdict(" Grave\n"), Verdict::Relabel("grave".into()));
    }
}
