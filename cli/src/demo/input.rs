//! What the demo runs on: the addresses that are built in, or a file of the user's own, repeated as often as is asked for.

use super::speeches::Address;
use crate::error::CliError;
use longhaul::RunId;
use serde::Deserialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// 64 annual addresses of presidents of the United States; see `data/NOTICE`.
const ADDRESSES: &str = include_str!("../../data/addresses.jsonl");
/// What may be sent to the model as one text.
const TEXT_BYTES: usize = 4 << 20;

/// One line of an input file. Fields that are not named here are passed over.
#[derive(Debug, Deserialize)]
struct Line {
    text: String,
    id: Option<Id>,
    year: Option<i32>,
    title: Option<String>,
    president: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(i64),
}

/// The texts, and how many runs are made of them.
#[derive(Debug)]
pub(super) struct Inputs {
    texts: Vec<(String, Address)>,
    runs: usize,
}

impl Inputs {
    /// Reads a file, or what is built in.
    pub(super) fn load(file: Option<&Path>, runs: Option<u32>) -> Result<Self, CliError> {
        let texts = match file {
            None => parse(Path::new("addresses.jsonl"), ADDRESSES)?,
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| CliError::File { file: file.to_owned(), why: error.to_string() })?;
                parse(file, &text)?
            }
        };
        let runs = runs.map_or(texts.len(), |runs| runs as usize);
        Ok(Self { texts, runs })
    }

    /// How many runs there are to be.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// How many different texts they are made of.
    pub(super) fn texts(&self) -> usize {
        self.texts.len().min(self.runs)
    }

    /// The id of a run: `1790`, and `1790-2` where the input is repeated.
    pub(super) fn id(&self, run: usize) -> String {
        let (id, _) = &self.texts[run % self.texts.len()];
        match run / self.texts.len() {
            0 => id.clone(),
            again => format!("{id}-{}", again + 1),
        }
    }

    /// A run's id and input.
    pub(super) fn run(&self, run: usize) -> (String, Address) {
        (self.id(run), self.texts[run % self.texts.len()].1.clone())
    }
}

fn parse(file: &Path, text: &str) -> Result<Vec<(String, Address)>, CliError> {
    let mut ids = HashSet::new();
    let mut texts = Vec::new();
    for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |why: String| CliError::Line { file: PathBuf::from(file), line: place + 1, why };
        let (id, address) = read(line, place + 1, &ids).map_err(bad)?;
        if !ids.insert(id.clone()) {
            return Err(bad(format!("the id `{id}` is there twice")));
        }
        texts.push((id, address));
    }
    if texts.is_empty() {
        return Err(CliError::File { file: PathBuf::from(file), why: "there is no line in it".into() });
    }
    Ok(texts)
}

fn read(line: &str, number: usize, taken: &HashSet<String>) -> Result<(String, Address), String> {
    let line: Line = serde_json::from_str(line).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => format!("not an object with a string `text`: {error}"),
        _ => format!("not JSON: {error}"),
    })?;
    if line.text.trim().is_empty() {
        return Err("`text` is empty".into());
    }
    if line.text.len() > TEXT_BYTES {
        return Err(format!("`text` has {} bytes, at most {TEXT_BYTES} can be taken", line.text.len()));
    }
    let id = match (line.id, line.year.map(|year| year.to_string())) {
        (Some(Id::Text(id)), _) => id,
        (Some(Id::Number(id)), _) => id.to_string(),
        (None, Some(year)) if !taken.contains(&year) => year,
        (None, Some(year)) => format!("{year}-line-{number}"),
        (None, None) => format!("line-{number}"),
    };
    // So that the ids of a million repetitions fit too.
    RunId::new(format!("{id}-1000000")).map_err(|error| format!("`id`: {error}"))?;
    RunId::new(&id).map_err(|error| format!("`id`: {error}"))?;
    let title = line.title.or(line.president).unwrap_or_else(|| id.clone());
    Ok((id, Address { year: line.year, title, text: line.text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<String>, String> {
        let texts = parse(Path::new("f"), text).map_err(|error| error.to_string())?;
        Ok(texts.into_iter().map(|(id, _)| id).collect())
    }

    #[test]
    fn the_built_in_texts_are_sixty_four() {
        let inputs = Inputs::load(None, None).unwrap();
        assert_eq!((inputs.runs(), inputs.texts()), (64, 64));
        let (id, address) = inputs.run(0);
        assert_eq!((id.as_str(), address.title.as_str()), ("1790", "George Washington"));
    }

    #[test]
    fn repeated_texts_have_ids_of_their_own() {
        let inputs = Inputs::load(None, Some(200)).unwrap();
        let ids: HashSet<String> = (0..200).map(|run| inputs.id(run)).collect();
        assert_eq!(ids.len(), 200);
        assert_eq!(inputs.id(64), "1790-2");
    }

    #[test]
    fn ids_are_taken_from_what_there_is() {
        let text = r#"
            {"text": "a", "id": "x", "year": 1}
            {"text": "b", "id": 7}

            {"text": "c", "year": 1850}
            {"text": "d", "year": 1850}
            {"text": "e"}"#;
        assert_eq!(parsed(text).unwrap(), ["x", "7", "1850", "1850-line-6", "line-7"]);
    }

    #[test]
    fn bad_lines_are_named() {
        let good = r#"{"text": "a", "id": "x"}"#;
        for (bad, why) in [
            ("{", "f line 2: not JSON: "),
            ("[]", "f line 2: not an object with a string `text`: "),
            (r#"{"txt": "a"}"#, "missing field `text`"),
            (r#"{"text": 5}"#, "f line 2: not an object with a string `text`: invalid type"),
            (r#"{"text": " "}"#, "f line 2: `text` is empty"),
            (r#"{"text": "a", "id": "x"}"#, "f line 2: the id `x` is there twice"),
            (r#"{"text": "a", "id": " "}"#, "f line 2: `id`: a run id must not be blank"),
            (r#"{"text": "a", "id": "~x"}"#, "f line 2: `id`: "),
        ] {
            let told = parsed(&format!("{good}\n{bad}\n")).unwrap_err();
            assert!(told.contains(why), "{bad}: {told}");
        }
        assert_eq!(parsed("\n\n").unwrap_err(), "f: there is no line in it");
    }
}
