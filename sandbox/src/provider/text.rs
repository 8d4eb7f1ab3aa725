//! Small text tools behind the default answers: sentences, words, frequencies. Plain, fast and deterministic.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Words that say nothing about what a text is about.
const STOPWORDS: &str = "about above after again against almost already although always among another because become been \
    before being below between beyond both cannot could during either every everything first from further given have having \
    hence however itself later least likewise made make making many might more moreover most much must myself necessary neither \
    never nothing often only other others otherwise ought ourselves over perhaps rather same second several shall should since some something \
    still such than that their theirs them themselves then there therefore these they thing things third this those though \
    through thus together toward towards under unless until upon very well were what whatever when whence where whether \
    which while whole whom whose will with within without would your yours yourself";

/// Sentences shorter or longer than this (in bytes) do not stand alone in a summary.
const SENTENCE_BYTES: std::ops::RangeInclusive<usize> = 20..=400;

/// A headline has at least and at most so many bytes, if the text has them.
const HEADLINE_BYTES: (usize, usize) = (24, 72);

pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty())
}

/// How often each long word occurs, in lower case.
fn frequencies(text: &str, at_least: usize) -> HashMap<String, u32> {
    static IGNORED: LazyLock<HashSet<&str>> = LazyLock::new(|| STOPWORDS.split_whitespace().collect());
    let mut counts: HashMap<String, u32> = HashMap::new();
    let mut lower = String::new();
    for word in words(text).filter(|word| word.len() >= at_least) {
        lower.clear();
        lower.extend(word.chars().flat_map(char::to_lowercase));
        match counts.get_mut(&lower) {
            Some(count) => *count += 1,
            None => drop(counts.insert(lower.clone(), 1)),
        }
    }
    counts.retain(|word, _| !IGNORED.contains(word.as_str()));
    counts
}

pub(crate) fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let ends = match byte {
            b'.' | b'!' | b'?' => bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace),
            b'\n' => bytes.get(at + 1) == Some(&b'\n'),
            _ => false,
        };
        if ends {
            found.push(text[start..=at].trim());
            start = at + 1;
        }
    }
    found.push(text[start..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// The two sentences that carry most of the text's frequent words, in the order of the text.
pub(crate) fn summary(text: &str) -> String {
    let all = sentences(text);
    let counts = frequencies(text, 5);
    let weigh = |sentence: &str| {
        let mut score = 0_u64;
        let mut length = 0_u64;
        for word in words(sentence) {
            score += u64::from(counts.get(&word.to_lowercase()).copied().unwrap_or(0));
            length += 1;
        }
        // A long sentence must earn its length; integers keep the order the same on every machine.
        score * 1_000 / (length + 8)
    };
    let mut best: Vec<(u64, usize)> = all
        .iter()
        .enumerate()
        .filter(|(_, sentence)| SENTENCE_BYTES.contains(&sentence.len()))
        .map(|(at, sentence)| (weigh(sentence), at))
        .collect();
    best.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    best.truncate(2);
    best.sort_unstable_by_key(|(_, at)| *at);
    if best.is_empty() {
        return shortened(text, *SENTENCE_BYTES.end());
    }
    let chosen: Vec<String> = best.into_iter().map(|(_, at)| one_line(all[at])).collect();
    chosen.join(" ")
}

/// Up to five of the most frequent long words, the most frequent first.
pub(crate) fn themes(text: &str) -> String {
    let mut counts: Vec<(String, u32)> = frequencies(text, 7).into_iter().collect();
    // Among words that occur equally often the longer one says more.
    counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.len().cmp(&a.0.len())).then_with(|| a.0.cmp(&b.0)));
    let repeated = counts.iter().filter(|(_, n)| *n > 1).count();
    counts.truncate(repeated.clamp(3, 5));
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts.into_iter().map(|(word, _)| word).collect::<Vec<_>>().join(", ")
}

/// The sentence that says most, down to its first clause that is long enough to stand alone.
pub(crate) fn headline(text: &str) -> String {
    let counts = frequencies(text, 5);
    let weigh = |sentence: &&str| {
        words(sentence).map(|word| counts.get(&word.to_lowercase()).copied().unwrap_or(0)).sum::<u32>()
    };
    let all = sentences(text);
    // Of equals the first.
    let best = all.iter().rev().copied().max_by_key(weigh).unwrap_or(text);
    let ends = best.match_indices([',', ';', ':']).map(|(at, _)| at).chain([best.len()]);
    let clause = ends.into_iter().map(|end| &best[..end]).find(|clause| clause.len() >= HEADLINE_BYTES.0);
    shortened(clause.unwrap_or(best).trim_end_matches('.'), HEADLINE_BYTES.1)
}

const TONES: [(&str, &[&str]); 4] = [
    (
        "hopeful",
        &["hope", "peace", "prosper", "progress", "confiden", "happi", "success", "improve", "bright", "advance"],
    ),
    (
        "grave",
        &["war", "danger", "crisis", "loss", "suffer", "death", "evil", "fear", "calamit", "distress", "depress"],
    ),
    ("grateful", &["grat", "thank", "bless", "honor", "honour", "friend", "generous", "favor", "favour"]),
    (
        "resolute",
        &["must", "duty", "defend", "resist", "determin", "firm", "courage", "strength", "justice", "enforce"],
    ),
];

/// One word for the tone, or "unclear" when nothing stands out.
pub(crate) fn tone(text: &str) -> String {
    let mut scores = [0_u32; TONES.len()];
    for word in words(text) {
        let word = word.to_lowercase();
        for (score, (_, stems)) in scores.iter_mut().zip(TONES) {
            *score += u32::from(stems.iter().any(|stem| word.starts_with(stem)));
        }
    }
    let mut ranked: Vec<(u32, &str)> = scores.into_iter().zip(TONES.map(|(name, _)| name)).collect();
    ranked.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    // A lead of less than a sixteenth is no lead.
    let (best, second) = (ranked[0], ranked[1]);
    if best.0 == 0 || (best.0 - second.0) * 16 < best.0 { "unclear".to_owned() } else { best.1.to_owned() }
}

/// The text on one line, cut at a word's end after at most so many bytes.
pub(crate) fn shortened(text: &str, bytes: usize) -> String {
    let line = one_line(text);
    if line.len() <= bytes {
        return line;
    }
    let cut = line[..line.floor_char_boundary(bytes)].trim_end();
    let cut = cut.rfind(' ').map_or(cut, |space| &cut[..space]);
    format!("{cut} ...")
}

pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
