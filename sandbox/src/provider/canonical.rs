//! One spelling for each JSON value, and the digest and random numbers made from it.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Writes a JSON value with its keys sorted by bytes and without spaces, whatever order its maps keep.
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
            out.push('{');
            for (n, (key, value)) in entries.into_iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                scalar(&Value::String(key.clone()), out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
        Value::Array(values) => {
            out.push('[');
            for (n, value) in values.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write(value, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => scalar(value, out),
    }
}

fn scalar(value: &Value, out: &mut String) {
    use std::fmt::Write;
    // Writing to a String cannot fail.
    let _ = write!(out, "{value}");
}

/// The SHA-256 of some bytes, in lower-case hex.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digest = Sha256::digest(bytes);
    let mut hex = String::with_capacity(64);
    for byte in digest.iter() {
        hex.push(char::from(HEX[usize::from(byte >> 4)]));
        hex.push(char::from(HEX[usize::from(byte & 15)]));
    }
    hex
}

/// The first eight bytes of the SHA-256 of some bytes, as a number to seed with.
pub(crate) fn sha256_seed(bytes: &[u8]) -> u64 {
    Sha256::digest(bytes).iter().take(8).fold(0, |seed, byte| (seed << 8) | u64::from(*byte))
}

/// An id in the provider's manner: the prefix, `01` and 22 characters.
pub(crate) fn provider_id(prefix: &str, of: &str) -> String {
    const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let mut id = format!("{prefix}01");
    for byte in Sha256::digest(of.as_bytes()).iter().take(22) {
        id.push(char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
    }
    id
}

/// SplitMix64: a few lines that give the same numbers in every version of every library.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Shuffles, and makes sure that the order has changed when there are two or more.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        let mut moved = false;
        for i in (1..items.len()).rev() {
            let bound = u64::try_from(i).unwrap_or(u64::MAX - 1) + 1;
            let j = usize::try_from(self.next() % bound).unwrap_or(0);
            moved |= i != j;
            items.swap(i, j);
        }
        if !moved && items.len() > 1 {
            items.rotate_left(1);
        }
    }
}
