//! Canonical JSON, and the digest that makes enqueueing idempotent.
//!
//! Two texts of the same value have the same canonical form, whatever wrote them. It is made from the text, not from a parsed
//! value: what a JSON library does with numbers or with the order of keys has no say here. The rules, pinned by a golden
//! file:
//!
//! - Keys are sorted by the UTF-8 bytes of what they say (not of how they are escaped); there is no white space. A key that
//!   comes twice in one object is refused: readers differ on which one counts.
//! - Strings are literal UTF-8 but for `\"`, `\\` and the control characters below U+0020, which are `\b \f \n \r \t` or
//!   `\u00xx` in lower-case digits. A surrogate without its other half is refused: it is no text.
//! - A number without `.` and exponent is an integer, kept as it is written, whatever its size; `-0` is the integer zero, `0`.
//! - A number with `.` or exponent is a double in its shortest form that reads back equal, always with `.0` or an exponent, so
//!   that `1.0` and `1` differ while `1e2` and `100.0` do not. From 1e-5 up to 1e16 it is written plainly. `-0.0` keeps its
//!   sign. What is too large for a double is refused; what is too small for one is zero, as it is for every reader.
//!
//! One pass over the text, on a stack of its own: no nesting can exhaust the thread's.

mod number;
mod object;

use super::json::JsonText;
use object::Member;
use sha2::{Digest, Sha256};

/// Why a valid JSON text has no canonical form. Places are bytes from its beginning; what stands there is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// It is no JSON after all.
    #[error("no JSON at byte {at}")]
    Malformed {
        /// Where it ends being one.
        at: usize,
    },
    /// An escaped surrogate without its other half.
    #[error("the string has half a surrogate pair at byte {at}: that is no text")]
    LoneSurrogate {
        /// Where the escape is.
        at: usize,
    },
    /// A key comes twice in one object.
    #[error("the key at byte {at} comes a second time in its object")]
    DuplicateKey {
        /// Where the second one is.
        at: usize,
    },
    /// A number with `.` or exponent that no double can hold.
    #[error("the number at byte {at} is too large for a double: write it without `.` and exponent, or as a string")]
    NumberOutOfRange {
        /// Where it begins.
        at: usize,
    },
}

/// The canonical form of a text.
///
/// ```
/// # use longhaul::{JsonText, canonical::canonical};
/// let text = JsonText::parse(r#"{ "b": 1e2, "a": [1, 1.0] }"#, "input", 100)?;
/// assert_eq!(canonical(&text).as_deref(), Ok(r#"{"a":[1,1.0],"b":100.0}"#));
/// # Ok::<(), longhaul::InvalidJson>(())
/// ```
///
/// # Errors
/// [`NotCanonical`]: a duplicate key, half a surrogate pair, a number out of range.
pub fn canonical(text: &JsonText) -> Result<String, NotCanonical> {
    Writer::new(text.as_str()).write()
}

/// What tells one enqueued run from another: SHA-256 over the workflow's name, a NUL byte, and the canonical input.
///
/// # Errors
/// As [`canonical`].
pub fn digest(workflow: &str, input: &JsonText) -> Result<[u8; 32], NotCanonical> {
    let canonical = canonical(input)?;
    let mut hash = Sha256::new();
    hash.update(workflow.as_bytes());
    hash.update([0]);
    hash.update(canonical.as_bytes());
    Ok(hash.finalize().into())
}

/// A list or an object that is not closed yet.
enum Open {
    Array,
    /// Its members are those from `first` on; `begin` is where the first one is in the output.
    Object {
        first: usize,
        begin: usize,
    },
}

/// Reads the text from left to right and writes its canonical form behind it.
struct Writer<'a> {
    text: &'a str,
    at: usize,
    out: String,
    open: Vec<Open>,
    /// The members of all open objects, outermost first.
    members: Vec<Member>,
    /// Room to put members in order.
    spare: String,
}

impl<'a> Writer<'a> {
    fn new(text: &'a str) -> Self {
        let (open, members, spare) = (Vec::new(), Vec::new(), String::new());
        Self { text, at: 0, out: String::with_capacity(text.len()), open, members, spare }
    }

    fn write(mut self) -> Result<String, NotCanonical> {
        loop {
            if self.value()? && self.ends()? {
                return Ok(self.out);
            }
        }
    }

    /// A scalar, or the beginning of a list or object. `false`: inside it another value has to follow first.
    fn value(&mut self) -> Result<bool, NotCanonical> {
        self.space();
        match self.peek() {
            Some(b'"') => self.string().map(|_| true),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| true),
            Some(b'{') => self.object(),
            Some(b'[') => {
                self.copy();
                self.space();
                if self.peek() == Some(b']') {
                    self.copy();
                    return Ok(true);
                }
                self.open.push(Open::Array);
                Ok(false)
            }
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => Err(self.malformed()),
        }
    }

    fn object(&mut self) -> Result<bool, NotCanonical> {
        self.copy();
        self.space();
        if self.peek() == Some(b'}') {
            self.copy();
            return Ok(true);
        }
        self.open.push(Open::Object { first: self.members.len(), begin: self.out.len() });
        self.key()?;
        Ok(false)
    }

    /// After a value: closes what ends here. `true`: everything does.
    fn ends(&mut self) -> Result<bool, NotCanonical> {
        loop {
            self.space();
            let Some(open) = self.open.last() else {
                return if self.at == self.text.len() { Ok(true) } else { Err(self.malformed()) };
            };
            match (self.peek(), open) {
                (Some(b','), Open::Array) => {
                    self.copy();
                    return Ok(false);
                }
                (Some(b','), Open::Object { .. }) => {
                    self.end_member();
                    self.copy();
                    self.key()?;
                    return Ok(false);
                }
                (Some(b']'), Open::Array) => {}
                (Some(b'}'), &Open::Object { first, begin }) => {
                    self.end_member();
                    object::sort(&mut self.members, first, begin, &mut self.out, &mut self.spare)?;
                }
                _ => return Err(self.malformed()),
            }
            self.open.pop();
            self.copy();
        }
    }

    fn key(&mut self) -> Result<(), NotCanonical> {
        self.space();
        let (at, begin) = (self.at, self.out.len());
        if self.peek() != Some(b'"') {
            return Err(self.malformed());
        }
        let escaped = self.string()?;
        self.members.push(Member { at, begin, key_end: self.out.len(), end: 0, escaped });
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.malformed());
        }
        self.copy();
        Ok(())
    }

    fn end_member(&mut self) {
        if let Some(member) = self.members.last_mut() {
            member.end = self.out.len();
        }
    }

    /// A string. Answers whether its canonical form has escapes.
    fn string(&mut self) -> Result<bool, NotCanonical> {
        let bytes = self.text.as_bytes();
        let mut escaped = false;
        let mut from = self.at;
        let mut at = self.at + 1;
        loop {
            match bytes.get(at) {
                Some(b'"') => {
                    self.out.push_str(&self.text[from..=at]);
                    self.at = at + 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    self.out.push_str(&self.text[from..at]);
                    let (c, after) = self.escape(at)?;
                    escaped |= push_char(&mut self.out, c);
                    (from, at) = (after, after);
                }
                None | Some(0..0x20) => return Err(NotCanonical::Malformed { at }),
                Some(_) => at += 1,
            }
        }
    }

    /// The character of the escape at `at`, and where it is over.
    fn escape(&self, at: usize) -> Result<(char, usize), NotCanonical> {
        let malformed = NotCanonical::Malformed { at };
        let c = match self.text.as_bytes().get(at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(at),
            _ => return Err(malformed),
        };
        Ok((c, at + 2))
    }

    fn unicode(&self, at: usize) -> Result<(char, usize), NotCanonical> {
        let unit = self.unit(at).ok_or(NotCanonical::Malformed { at })?;
        let lone = NotCanonical::LoneSurrogate { at };
        if !(0xd800..0xdc00).contains(&unit) {
            return char::from_u32(unit).map(|c| (c, at + 6)).ok_or(lone);
        }
        let low = self.unit(at + 6).filter(|low| (0xdc00..0xe000).contains(low)).ok_or(lone)?;
        let c = char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00)).ok_or(lone)?;
        Ok((c, at + 12))
    }

    /// The number of the `\uxxxx` at `at`.
    fn unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.as_bytes().get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
    }

    fn number(&mut self) -> Result<(), NotCanonical> {
        self.at += number::write(self.text, self.at, &mut self.out)?;
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> Result<bool, NotCanonical> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.malformed());
        }
        self.out.push_str(word);
        self.at += word.len();
        Ok(true)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Copies one character of punctuation.
    fn copy(&mut self) {
        if let Some(byte) = self.peek() {
            self.out.push(char::from(byte));
            self.at += 1;
        }
    }

    fn malformed(&self) -> NotCanonical {
        NotCanonical::Malformed { at: self.at }
    }
}

/// Writes one character that was escaped. Answers whether it has to stay so.
fn push_char(out: &mut String, c: char) -> bool {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..'\u{20}' => {
            out.push_str("\\u00");
            out.push(char::from(HEX[(c as usize) >> 4]));
            out.push(char::from(HEX[(c as usize) & 15]));
        }
        _ => {
            out.push(c);
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;
