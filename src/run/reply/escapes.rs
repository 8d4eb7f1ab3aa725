//! JSON allows half a surrogate pair in an escape, Rust's strings do not: a reply cut inside an emoji must stay readable.

use std::borrow::Cow;

/// The JSON text with every `\uD800` to `\uDFFF` that has no partner replaced by `\uFFFD`.
pub(in crate::run) fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        at += match escape(json, at) {
            None => 2,
            Some(unit) if !is_surrogate(unit) => 6,
            Some(unit) if is_high(unit) && escape(json, at + 6).is_some_and(is_low) => 12,
            Some(_) => {
                mended.push_str(&json[copied..at]);
                mended.push_str("\\ufffd");
                copied = at + 6;
                6
            }
        };
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    mended.push_str(&json[copied..]);
    Cow::Owned(mended)
}

/// The UTF-16 unit of the `\uXXXX` that begins there.
fn escape(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_surrogate(unit: u16) -> bool {
    (0xd800..=0xdfff).contains(&unit)
}

fn is_high(unit: u16) -> bool {
    (0xd800..=0xdbff).contains(&unit)
}

fn is_low(unit: u16) -> bool {
    (0xdc00..=0xdfff).contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_halves_are_replaced() {
        for (text, want) in [
            (r#""\ud83d\ude00 \n \\ud800""#, r#""\ud83d\ude00 \n \\ud800""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00x""#, r#""\ufffd\ud83d\ude00x""#),
            (r#""\\\ud800ä""#, r#""\\\ufffdä""#),
            (r#""\"#, r#""\"#),
            (r#""\uä\u12"#, r#""\uä\u12"#),
        ] {
            assert_eq!(without_lone_surrogates(text), want);
        }
    }

    proptest! {
        #[test]
        fn any_units_become_readable(units in prop::collection::vec(any::<u16>(), 0..40), plain in ".{0,8}") {
            let escaped: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let json = format!("[\"{escaped}\",{}]", serde_json::to_string(&plain).unwrap());
            let read: Vec<String> = serde_json::from_str(&without_lone_surrogates(&json)).unwrap();
            prop_assert_eq!(&read[0], &String::from_utf16_lossy(&units));
            prop_assert_eq!(&read[1], &plain);
        }

        #[test]
        fn any_text_is_survived(text in "[\\\\ud8cf\"ä0]{0,40}") {
            let _ = without_lone_surrogates(&text);
        }
    }
}
