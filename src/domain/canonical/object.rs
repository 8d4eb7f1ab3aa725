//! The members of an object, brought into order.

use super::NotCanonical;
use std::cmp::Ordering;

/// A member as it stands in the output: `"key":value`.
pub(super) struct Member {
    /// Where its key is in the text.
    pub(super) at: usize,
    /// Where it begins in the output.
    pub(super) begin: usize,
    /// Where its key has ended there.
    pub(super) key_end: usize,
    /// Where it has ended.
    pub(super) end: usize,
    /// Whether the key has escapes.
    pub(super) escaped: bool,
}

/// Sorts the members from `first` on, which stand in `out` from `begin` on with commas between them, and forgets them.
pub(super) fn sort(
    members: &mut Vec<Member>,
    first: usize,
    begin: usize,
    out: &mut String,
    spare: &mut String,
) -> Result<(), NotCanonical> {
    let these = &mut members[first..];
    if !these.windows(2).all(|pair| by_key(out, &pair[0], &pair[1]).is_lt()) {
        these.sort_unstable_by(|a, b| by_key(out, a, b).then(a.at.cmp(&b.at)));
        if let Some(pair) = these.windows(2).find(|pair| by_key(out, &pair[0], &pair[1]).is_eq()) {
            return Err(NotCanonical::DuplicateKey { at: pair[1].at });
        }
        spare.clear();
        for member in these {
            if !spare.is_empty() {
                spare.push(',');
            }
            spare.push_str(&out[member.begin..member.end]);
        }
        out.truncate(begin);
        out.push_str(spare);
    }
    members.truncate(first);
    Ok(())
}

/// Compares what two keys say, by UTF-8 bytes.
fn by_key(out: &str, a: &Member, b: &Member) -> Ordering {
    // Without the quotes.
    let content = |m: &Member| &out.as_bytes()[m.begin + 1..m.key_end - 1];
    if a.escaped || b.escaped { Unescaped(content(a)).cmp(Unescaped(content(b))) } else { content(a).cmp(content(b)) }
}

/// The bytes that a canonical string stands for.
struct Unescaped<'a>(&'a [u8]);

impl Iterator for Unescaped<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = match *self.0 {
            [b'\\', b'u', _, _, high, low, ref rest @ ..] => {
                let digit = |d: u8| char::from(d).to_digit(16).unwrap_or_default() as u8;
                (digit(high) << 4 | digit(low), rest)
            }
            [b'\\', b'b', ref rest @ ..] => (8, rest),
            [b'\\', b'f', ref rest @ ..] => (12, rest),
            [b'\\', b'n', ref rest @ ..] => (b'\n', rest),
            [b'\\', b'r', ref rest @ ..] => (b'\r', rest),
            [b'\\', b't', ref rest @ ..] => (b'\t', rest),
            [b'\\', byte, ref rest @ ..] | [byte, ref rest @ ..] => (byte, rest),
            [] => return None,
        };
        self.0 = rest;
        Some(byte)
    }
}
