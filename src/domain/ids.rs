//! Ids. Each is made by the client before the statement that stores it, so that an unknown COMMIT can be looked up.

use super::limits::RUN_ID_BYTES;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// The name a caller gives a run: unique, stable, and what makes enqueueing idempotent.
///
/// ```
/// # use longhaul::RunId;
/// assert!(RunId::new("address-1790").is_ok());
/// assert!(RunId::new(" ").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(String);

/// Why a text is no run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRunId {
    /// Nothing, or only white space.
    #[error("a run id must not be blank")]
    Blank,
    /// Longer than [`RUN_ID_BYTES`].
    #[error("a run id has at most {RUN_ID_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// A control character (NUL included).
    #[error("a run id must not contain control characters")]
    Control,
    /// The form that branches and partitions use for their children.
    #[error("a run id must not start with `~`: that form is kept for child runs")]
    Reserved,
}

impl RunId {
    /// Checks a text: not blank, at most 200 bytes, no control characters, not the reserved form of child runs.
    ///
    /// # Errors
    /// [`InvalidRunId`] says which rule is broken.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidRunId> {
        let text = text.into();
        if text.trim().is_empty() {
            return Err(InvalidRunId::Blank);
        }
        if text.len() > RUN_ID_BYTES {
            return Err(InvalidRunId::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidRunId::Control);
        }
        if text.starts_with('~') {
            return Err(InvalidRunId::Reserved);
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key a run has inside the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey(pub i64);

/// The number that rises with every claim, release and take-over of a row: who names an old one commits nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub i64);

/// The place of an event in its run's ledger: 0, 1, 2, .. without gap.
pub type Ordinal = i32;

/// A wait: its run, and the ordinal of the event that opened it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitKey {
    /// Whose wait it is.
    pub run: RunKey,
    /// The ordinal of the event that opened it.
    pub ordinal: Ordinal,
}

impl fmt::Display for WaitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run.0, self.ordinal)
    }
}

/// An event: it leads to its (run, ordinal), and its nonce tells it from any other that was meant for the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// Whose ledger it is in.
    pub run: RunKey,
    /// Its place there.
    pub ordinal: Ordinal,
    /// 63 random bits.
    pub nonce: i64,
}

impl EventId {
    /// A new id for the given place.
    pub fn new(run: RunKey, ordinal: Ordinal) -> Self {
        Self { run, ordinal, nonce: nonce() }
    }
}

/// 63 random bits.
pub fn nonce() -> i64 {
    (rand::random::<u64>() >> 1) as i64
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:016x}", self.run.0, self.ordinal, self.nonce)
    }
}

/// What a text that should name an event is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an event id looks like `17.3.00f1a2b3c4d5e6f7`: run key, ordinal, nonce")]
pub struct InvalidEventId;

impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        let mut parts = text.split('.');
        let (Some(run), Some(ordinal), Some(nonce), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(InvalidEventId);
        };
        Ok(Self {
            run: RunKey(run.parse().map_err(|_| InvalidEventId)?),
            ordinal: ordinal.parse().map_err(|_| InvalidEventId)?,
            nonce: i64::from_str_radix(nonce, 16).map_err(|_| InvalidEventId)?,
        })
    }
}

/// A process that runs things, from its start to its death. Random, never reused: a restarted process is another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub Uuid);

impl NodeId {
    /// A new random id.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The write-ahead intent of one batch: made before anything is sent, carried by the custom ids of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentId(pub Uuid);

impl IntentId {
    /// A new id, ordered by time.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for IntentId {
    fn default() -> Self {
        Self::new()
    }
}

/// The id an item has at the provider: `<22 characters of the intent in base 62>-<index in base 36>`. Every attempt has an
/// intent of its own, so a custom id is never used twice, and any result line proves which intent made its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CustomId {
    /// The batch's intent.
    pub intent: IntentId,
    /// The item's place in the batch.
    pub index: i32,
}

const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const INTENT_CHARS: usize = 22;

impl fmt::Display for CustomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'0'; INTENT_CHARS];
        let mut rest = self.intent.0.as_u128();
        for place in text.iter_mut().rev() {
            *place = DIGITS[(rest % 62) as usize];
            rest /= 62;
        }
        let mut index = [b'0'; 7];
        let mut rest = self.index.max(0) as u32;
        let mut first = index.len();
        loop {
            first -= 1;
            index[first] = DIGITS[(rest % 36) as usize];
            rest /= 36;
            if rest == 0 {
                break;
            }
        }
        for byte in text.iter().chain(b"-").chain(&index[first..]) {
            write!(f, "{}", *byte as char)?;
        }
        Ok(())
    }
}

/// A custom id that we did not make.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a custom id of ours")]
pub struct ForeignCustomId;

impl FromStr for CustomId {
    type Err = ForeignCustomId;

    fn from_str(text: &str) -> Result<Self, ForeignCustomId> {
        let (intent, index) = text.split_once('-').ok_or(ForeignCustomId)?;
        if intent.len() != INTENT_CHARS || index.is_empty() || index.len() > 6 {
            return Err(ForeignCustomId);
        }
        let mut value: u128 = 0;
        for byte in intent.bytes() {
            let digit = DIGITS.iter().position(|d| *d == byte).ok_or(ForeignCustomId)? as u128;
            value = value.checked_mul(62).and_then(|v| v.checked_add(digit)).ok_or(ForeignCustomId)?;
        }
        let index = i32::from_str_radix(index, 36).map_err(|_| ForeignCustomId)?;
        let id = Self { intent: IntentId(Uuid::from_u128(value)), index };
        // One spelling only: `A` for `a` or a leading zero is somebody else's id.
        if id.to_string() == text { Ok(id) } else { Err(ForeignCustomId) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_checked() {
        assert_eq!(RunId::new(""), Err(InvalidRunId::Blank));
        assert_eq!(RunId::new("\t "), Err(InvalidRunId::Blank));
        assert_eq!(RunId::new("a\0b"), Err(InvalidRunId::Control));
        assert_eq!(RunId::new("~1"), Err(InvalidRunId::Reserved));
        assert_eq!(RunId::new("x".repeat(201)), Err(InvalidRunId::TooLong(201)));
        assert_eq!(RunId::new("x".repeat(200)).map(|id| id.as_str().len()), Ok(200));
    }

    #[test]
    fn custom_ids_read_back_and_keep_the_providers_rule() {
        for index in [0, 1, 35, 36, 99_999] {
            let id = CustomId { intent: IntentId::new(), index };
            let text = id.to_string();
            assert!(text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
            assert_eq!(text.parse(), Ok(id));
        }
        let largest = CustomId { intent: IntentId(Uuid::from_u128(u128::MAX)), index: i32::MAX };
        assert_eq!(largest.to_string().parse(), Ok(largest));
    }

    #[test]
    fn foreign_custom_ids_are_refused() {
        for text in
            ["", "request-1", "0000000000000000000000-", "0000000000000000000000-0A", "0000000000000000000000-01"]
        {
            assert_eq!(text.parse::<CustomId>(), Err(ForeignCustomId), "{text}");
        }
        assert_eq!("ZZZZZZZZZZZZZZZZZZZZZZ-0".parse::<CustomId>(), Err(ForeignCustomId), "over 128 bits");
    }

    #[test]
    fn event_ids_lead_to_their_place() {
        let id = EventId::new(RunKey(17), 3);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("17.3".parse::<EventId>(), Err(InvalidEventId));
    }
}
