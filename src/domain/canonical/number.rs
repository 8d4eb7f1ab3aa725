//! Numbers: integers as they are written, doubles in their shortest form.

use super::NotCanonical;
use std::fmt::Write;

/// Doubles whose decimal exponent is in here are written plainly, others with an exponent.
const PLAIN: std::ops::Range<i32> = -5..16;

/// Writes the number that begins at `at`. Answers how many bytes of the text it takes.
pub(super) fn write(text: &str, at: usize, out: &mut String) -> Result<usize, NotCanonical> {
    let Literal { end, integer } = scan(text.as_bytes(), at).map_err(|at| NotCanonical::Malformed { at })?;
    match &text[at..end] {
        "-0" => out.push('0'),
        literal if integer => out.push_str(literal),
        literal => {
            let value: f64 = literal.parse().map_err(|_| NotCanonical::Malformed { at })?;
            if value.is_infinite() {
                return Err(NotCanonical::NumberOutOfRange { at });
            }
            push_double(value, out);
        }
    }
    Ok(end - at)
}

struct Literal {
    end: usize,
    integer: bool,
}

/// Finds the end of a number by JSON's grammar; `Err` is where it breaks it.
fn scan(bytes: &[u8], from: usize) -> Result<Literal, usize> {
    let digits = |at: usize| at + bytes[at.min(bytes.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
    let some_digits = |at: usize| Some(digits(at)).filter(|end| *end > at).ok_or(at);

    let first = from + usize::from(bytes.get(from) == Some(&b'-'));
    let mut end = some_digits(first)?;
    if bytes.get(first) == Some(&b'0') && end > first + 1 {
        return Err(first + 1);
    }
    let mut integer = true;
    if bytes.get(end) == Some(&b'.') {
        (end, integer) = (some_digits(end + 1)?, false);
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        (end, integer) = (some_digits(end + 1 + sign)?, false);
    }
    Ok(Literal { end, integer })
}

/// The shortest decimal digits that read back equal, laid out by a rule of our own: how `std` lays them out may change.
fn push_double(value: f64, out: &mut String) {
    let mut scientific = String::with_capacity(24);
    // Writing to a string does not fail.
    let _ = write!(scientific, "{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let unsigned = mantissa.trim_start_matches('-');
    if unsigned.len() < mantissa.len() {
        out.push('-');
    }
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !PLAIN.contains(&exponent) {
        let _ = write!(out, "{unsigned}e{exponent}");
        return;
    }
    let mut digits: String = unsigned.chars().filter(char::is_ascii_digit).collect();
    // Where the point goes: after so many digits.
    let whole = match usize::try_from(exponent) {
        Ok(exponent) => exponent + 1,
        Err(_) => {
            digits.insert_str(0, &"00000"[..exponent.unsigned_abs().min(5) as usize]);
            1
        }
    };
    while digits.len() <= whole {
        digits.push('0');
    }
    out.push_str(&digits[..whole]);
    out.push('.');
    out.push_str(&digits[whole..]);
}
