//! The report of a demo, for people.

use super::figures::Figures;
use super::input::Inputs;
use super::reviewer::{SCRIPT, SCRIPTED, TERMINAL};
use super::speeches::{self, Speeches};
use super::story::{Played, count};
use super::teller::Teller;
use crate::error::CliError;
use crate::out::{dollars, thousands};
use longhaul::audit::Report;
use longhaul::{Client, Error};

/// The width of the page.
const WIDTH: usize = 96;
/// Of a summary so much is shown, in characters.
const SENTENCE: usize = 180;
/// Findings shown; `longhaul audit` shows more.
const FINDINGS: usize = 5;
/// Outputs shown.
const SAMPLES: usize = 3;

/// The outputs of some runs, spread over the input. Runs that have none are passed over.
pub(super) async fn samples(client: &Client, inputs: &Inputs) -> Result<Vec<speeches::Report>, CliError> {
    let texts = inputs.texts();
    let shown = SAMPLES.min(texts);
    let mut samples = Vec::new();
    for k in 1..=shown {
        let run = k * texts / (shown + 1);
        match client.handle::<Speeches>(&inputs.id(run)).await?.output().await {
            Ok(report) => samples.push(report),
            Err(Error::RunFailed { .. } | Error::NoOutput { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(samples)
}

pub(super) fn readable(
    figures: &Figures,
    audit: &Report,
    played: &Played,
    samples: &[speeches::Report],
    teller: &Teller,
) -> String {
    let sections =
        [happened(figures, played, teller), table(figures, audit), workers(figures), findings(audit), outputs(samples)];
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    format!("\n{}\n", sections.join("\n"))
}

fn happened(figures: &Figures, played: &Played, teller: &Teller) -> String {
    let mut text = "What happened\n".to_owned();
    for (at, line) in teller.story() {
        text.push_str(&format!("  {:>5.1} s  {line}\n", at.as_secs_f64()));
    }
    let took_over = match (figures.takeovers, played.held) {
        (0, 0) => "It held no run, so none had to be taken over.".to_owned(),
        (taken, _) => format!("{} taken over from it.", was(taken, "run")),
    };
    let found = match (figures.ambiguous_creates, figures.adopted) {
        (0, _) => "No batch was ever in doubt.".to_owned(),
        (doubt, adopted) => format!(
            "{} in doubt, {} found again at the provider; {} sent twice.",
            was(doubt, "batch"),
            thousands(adopted),
            if figures.items_paid_twice == 0 { "nothing was" } else { "something was" }
        ),
    };
    text.push_str(&wrapped(&format!("{took_over} {found}"), "  "));
    text
}

fn table(figures: &Figures, audit: &Report) -> String {
    let per_batch = figures.items as f64 / figures.batches.max(1) as f64;
    let rate = figures.completed as f64 / figures.seconds.max(0.1);
    let read = format!("{} events and {} items", thousands(audit.events), thousands(audit.items));
    let checked = match audit.counts.len() {
        0 => format!("every rule holds over {read}"),
        broken => format!("{} broken over {read}", count(broken as i64, "rule")),
    };
    let rows = [
        (
            "completed",
            thousands(figures.completed),
            format!("of {}; {} failed", count(figures.runs, "run"), thousands(figures.failed)),
        ),
        (
            "seconds",
            format!("{:.1}", figures.seconds),
            format!("{rate:.1} runs a second, the provider's time included"),
        ),
        (
            "requests",
            thousands(figures.items),
            format!("to the model, in {}, {per_batch:.1} each", count(figures.batches, "batch")),
        ),
        (
            "tool calls",
            thousands(figures.tool_calls),
            "of `word_count`, between two turns of a conversation".to_owned(),
        ),
        ("forks", thousands(figures.forks), "into the branches `themes` and `tone`, joined again".to_owned()),
        ("asked", thousands(figures.human_answers), people(figures)),
        (
            "in doubt",
            thousands(figures.ambiguous_creates),
            format!("creates without a reply; {} found again", thousands(figures.adopted)),
        ),
        ("taken over", thousands(figures.takeovers), "runs of a dead worker".to_owned()),
        (
            "paid twice",
            thousands(figures.items_paid_twice as i64),
            format!("requests, by the provider's own ledger; {} late answers", thousands(figures.late_duplicates)),
        ),
        ("violations", thousands(figures.audit_violations), checked),
        ("events", thousands(figures.events), "in the ledger".to_owned()),
        ("memory", format!("{:.0} MB", figures.worker_peak_rss_mb), "the most that any worker had".to_owned()),
        ("cost", dollars(figures.nano_usd_batch), money(figures)),
    ];
    let lines = rows.iter().map(|(name, figure, words)| format!("  {name:<12}{figure:>10}  {words}\n"));
    format!("Figures\n{}", lines.collect::<String>())
}

fn money(figures: &Figures) -> String {
    let live = match i64::try_from(figures.nano_usd_live) {
        Ok(0) => String::new(),
        Ok(live) => format!(", and {} for live calls", dollars(live)),
        Err(_) => ", and more than can be told for live calls".to_owned(),
    };
    format!("at batch price{live}; {} at full price", dollars(figures.nano_usd_batch.saturating_mul(2)))
}

/// Who answered what people were asked.
fn people(figures: &Figures) -> String {
    if figures.human_answers == 0 {
        return "questions to people: no tone was unclear".to_owned();
    }
    let by = |name: &str| figures.answered_by.get(name).copied().unwrap_or(0);
    let answered = match (by(TERMINAL), by(SCRIPT)) {
        (0, _) => format!("answered by a script, always `{SCRIPTED}` (--ask: you are asked)"),
        (_, 0) => "all answered by you".to_owned(),
        (you, script) => format!("{} answered by you, {} by a script", thousands(you), thousands(script)),
    };
    format!("a person about an unclear tone; {answered}")
}

fn workers(figures: &Figures) -> String {
    let lines = figures.runs_per_worker.iter().map(|(name, runs)| {
        let end = if name == "worker-1" { "  before it was killed" } else { "" };
        format!("  {name:<12}{:>10}{end}\n", thousands(*runs))
    });
    format!("Runs completed by\n{}", lines.collect::<String>())
}

fn findings(audit: &Report) -> String {
    if audit.is_clean() {
        return String::new();
    }
    let lines = audit.findings.iter().take(FINDINGS);
    let lines = lines.map(|finding| format!("  {}: {} {}\n", finding.check, finding.subject, finding.detail));
    let more = match audit.findings.len().saturating_sub(FINDINGS) {
        0 => String::new(),
        more => format!("  and {more} more\n"),
    };
    format!("Broken rules\n{}{more}", lines.collect::<String>())
}

fn outputs(samples: &[speeches::Report]) -> String {
    let mut text = String::new();
    for sample in samples {
        let year = sample.year.map(|year| format!("{year}  ")).unwrap_or_default();
        let asked = if sample.asked { " (asked)" } else { "" };
        text.push_str(&format!("  {year}{}: {}\n", sample.title, sample.headline));
        text.push_str(&wrapped(&first_sentence(&sample.summary), "    "));
        text.push_str(&wrapped(&format!("tone: {}{asked}; themes: {}", sample.tone, sample.themes.join(", ")), "    "));
    }
    if text.is_empty() { text } else { format!("Some of what came out\n{text}") }
}

fn was(number: i64, noun: &str) -> String {
    let verb = if number == 1 { "was" } else { "were" };
    format!("{} {verb}", count(number, noun))
}

fn first_sentence(text: &str) -> String {
    let end = text.match_indices(['.', '!', '?']).map(|(at, _)| at + 1);
    let end = end.into_iter().find(|end| text[*end..].is_empty() || text[*end..].starts_with(char::is_whitespace));
    let sentence = &text[..end.unwrap_or(text.len())];
    match sentence.char_indices().nth(SENTENCE) {
        None => sentence.to_owned(),
        Some((cut, _)) => {
            format!("{} ..", sentence[..cut].rsplit_once(' ').map_or(&sentence[..cut], |(words, _)| words))
        }
    }
}

/// A text in lines that fit the page.
fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut line) = (String::new(), indent.to_owned());
    for word in text.split_whitespace() {
        let empty = line.len() == indent.len();
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = format!("{indent}{word}");
        } else {
            line.push_str(if empty { "" } else { " " });
            line.push_str(word);
        }
    }
    format!("{lines}{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_ends_where_it_ends() {
        assert_eq!(first_sentence("Trade rose by 3.5 percent. Peace held."), "Trade rose by 3.5 percent.");
        assert_eq!(first_sentence("no end"), "no end");
        assert!(first_sentence(&"word ".repeat(200)).chars().count() < SENTENCE + 4);
    }

    #[test]
    fn long_lines_are_wrapped() {
        let text = wrapped(&"word ".repeat(60), "  ");
        assert!(text.lines().count() == 4 && text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }
}
