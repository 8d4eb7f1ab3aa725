//! The answers given when no responder is set: extracts of the prompt, readable in a report, the same each time.
//!
//! The instruction (the system prompt and the prompt's first paragraph) names the task, the rest of the prompt is the
//! document. "Themes", "topics" or "keywords" are answered with frequent words; "tone", "mood" or "sentiment" with one word;
//! "headline" with the clause that says most; all else with the two sentences that say most.

use super::answer::{Answer, RequestView};
use super::{text, tools};

/// Of a first paragraph longer than this (in bytes) only the beginning is taken as instruction.
const INSTRUCTION_BYTES: usize = 300;
/// Of each tool result so much (in bytes) is repeated in the answer.
const TOOL_RESULT_BYTES: usize = 200;

enum Task {
    Summary,
    Themes,
    Tone,
    Headline,
}

pub(crate) fn answer(request: &RequestView<'_>) -> Answer {
    let prompt = request.prompt();
    let (instruction, document) = split(&prompt);
    let asked = format!("{}\n{instruction}", request.system());
    let results = request.tool_results();
    let say = || match task(&asked) {
        Task::Summary => text::summary(document),
        Task::Themes => text::themes(document),
        Task::Tone => text::tone(document),
        Task::Headline => text::headline(document),
    };
    if results.is_empty()
        && let Some(call) = tools::call(request, &asked, document, &say)
    {
        return call;
    }
    let said = say();
    let results: Vec<String> = results.iter().map(|result| text::shortened(result, TOOL_RESULT_BYTES)).collect();
    if results.is_empty() { Answer::text(said) } else { Answer::text(format!("{said} [{}]", results.join("; "))) }
}

/// The instruction and the document: they overlap when the prompt is one paragraph.
fn split(prompt: &str) -> (&str, &str) {
    let prompt = prompt.trim();
    let paragraph =
        prompt.split_once("\n\n").filter(|(first, rest)| first.len() <= INSTRUCTION_BYTES && !rest.trim().is_empty());
    if let Some((instruction, document)) = paragraph {
        return (instruction, document);
    }
    let beginning = &prompt[..prompt.floor_char_boundary(INSTRUCTION_BYTES)];
    // "Name the themes: some text" on one line: what stands behind the first colon is the document.
    match beginning.split_once(':').filter(|(first, _)| first.len() <= 120) {
        Some((instruction, _)) => (instruction, prompt[instruction.len() + 1..].trim()),
        None => (beginning, prompt),
    }
}

/// The first word that names a task decides.
fn task(instruction: &str) -> Task {
    for word in text::words(instruction) {
        match word.to_lowercase().as_str() {
            "summary" | "summarise" | "summarize" | "summaries" => return Task::Summary,
            "theme" | "themes" | "topic" | "topics" | "keyword" | "keywords" => return Task::Themes,
            "tone" | "mood" | "sentiment" => return Task::Tone,
            "headline" | "headlines" => return Task::Headline,
            _ => {}
        }
    }
    Task::Summary
}
