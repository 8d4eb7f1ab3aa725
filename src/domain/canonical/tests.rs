use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn text(of: &str) -> JsonText {
    JsonText::parse(of, "input", 1 << 20).unwrap()
}

fn form(of: &str) -> Result<String, NotCanonical> {
    canonical(&text(of))
}

#[test]
fn the_golden_file_holds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/canonical.txt");
    let golden = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = golden.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() > 30);
    for line in lines {
        let [input, expected, sha256] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(form(input).as_deref(), Ok(expected), "{input}");
        let digest = digest("golden", &text(input)).unwrap();
        assert_eq!(crate::domain::json::hex(&digest), sha256, "{input}");
    }
}

#[test]
fn integers_beyond_a_double_differ() {
    let differ = |a, b| assert_ne!(digest("w", &text(a)), digest("w", &text(b)));
    differ("9007199254740993", "9007199254740992");
    differ("18446744073709551616", "18446744073709551617");
    differ("1", "1.0");
    differ("0.0", "-0.0");
    assert_eq!(form("-0"), form("0"));
    assert_eq!(form("1e2"), form("100.0"));
}

#[test]
fn the_workflow_is_part_of_the_digest() {
    assert_ne!(digest("a", &text("1")), digest("b", &text("1")));
}

#[test]
fn what_has_no_canonical_form_is_refused() {
    for (bad, why) in [
        (r#"{"a":1,"b":{},"a":2}"#, NotCanonical::DuplicateKey { at: 14 }),
        (r#"{"a":1,"\u0061":2}"#, NotCanonical::DuplicateKey { at: 7 }),
        (r#"{"\n":1,"\u000a":2}"#, NotCanonical::DuplicateKey { at: 8 }),
        (r#"["\ud800"]"#, NotCanonical::LoneSurrogate { at: 2 }),
        (r#"["\udc00\ud800"]"#, NotCanonical::LoneSurrogate { at: 2 }),
        (r#"["\ud83d\u0041"]"#, NotCanonical::LoneSurrogate { at: 2 }),
        (r#"["\ud83dx"]"#, NotCanonical::LoneSurrogate { at: 2 }),
        ("[1e400]", NotCanonical::NumberOutOfRange { at: 1 }),
        ("[-1.0e999999999999999999]", NotCanonical::NumberOutOfRange { at: 1 }),
    ] {
        // Checked texts do not even parse as some of these with other readers; the tokenizer has to stand alone.
        assert_eq!(Writer::new(bad).write(), Err(why), "{bad}");
    }
}

#[test]
fn what_is_no_json_is_an_error_and_no_panic() {
    for bad in [
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{1:1}",
        "{\"a\" 1}",
        "[1}",
        "{\"a\":1]",
        "]",
        "1 2",
        "tru",
        "nul",
        "-",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "+1",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12é\"",
        "\"\u{1}\"",
        "[1]]",
        "é",
    ] {
        assert!(matches!(Writer::new(bad).write(), Err(NotCanonical::Malformed { .. })), "{bad}");
    }
}

#[test]
fn deep_nesting_needs_no_stack() {
    let deep = format!("{}1{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    assert_eq!(Writer::new(&deep).write().as_deref(), Ok(&*deep));
}

/// A value, and two texts of it that differ in the order of keys, in spaces and in escapes.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        (-20i32..20, any::<i32>()).prop_map(|(e, m)| Value::from(f64::from(m) * 10f64.powi(e))),
        any::<String>().prop_map(Value::from),
        "[\\x00-\\x7f]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        let key = prop_oneof![any::<String>(), "[\\x00-\\x7fäé\u{ffff}😀]{0,3}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..8).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The same value, written with other spaces, other escapes, and its keys in another order.
fn rewritten(value: &Value, seed: u64, out: &mut String) {
    let next = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let pad = ["", " ", "\n\t", "\r "][(seed >> 60) as usize & 3];
    out.push_str(pad);
    match value {
        Value::Array(items) => {
            out.push('[');
            for (k, item) in items.iter().enumerate() {
                out.push_str(if k > 0 { "," } else { "" });
                rewritten(item, next.wrapping_add(k as u64), out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            let n = members.len().max(1);
            members.rotate_left((next >> 33) as usize % n);
            if seed & 16 == 0 {
                members.reverse();
            }
            out.push('{');
            for (k, (key, item)) in members.into_iter().enumerate() {
                out.push_str(if k > 0 { "," } else { "" });
                quoted(key, next, out);
                out.push_str(pad);
                out.push(':');
                rewritten(item, next.wrapping_add(k as u64), out);
            }
            out.push('}');
        }
        Value::String(text) => quoted(text, next, out),
        other => out.push_str(&other.to_string()),
    }
    out.push_str(pad);
}

fn quoted(text: &str, seed: u64, out: &mut String) {
    out.push('"');
    let mut units = [0; 2];
    for (k, c) in text.chars().enumerate() {
        let must = c < ' ' || c == '"' || c == '\\';
        if must || (seed >> (k % 64)) & 1 == 1 {
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
        } else {
            out.push(c);
        }
    }
    out.push('"');
}

/// Equal, but for the last digit of doubles: serde_json reads that one right only in builds that ask for it.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= b.abs() * 4.0 * f64::EPSILON
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

fn sorted(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(sorted),
        Value::Object(members) => {
            let keys: Vec<&[u8]> = members.keys().map(|key| key.as_bytes()).collect();
            keys.is_sorted() && members.values().all(sorted)
        }
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn one_value_has_one_form(value in json(), seed in any::<u64>()) {
        let plain = text(&value.to_string());
        let form = canonical(&plain).unwrap();
        let read: Value = serde_json::from_str(&form).unwrap();
        prop_assert!(same(&read, &value), "{}", form);
        // serde_json keeps the order that it reads, in builds that ask for it; then the order shows here as well.
        prop_assert!(sorted(&read));
        prop_assert_eq!(canonical(&text(&form)).unwrap(), form.clone());

        let mut other = String::new();
        rewritten(&value, seed, &mut other);
        let other = JsonText::parse(&other, "input", 1 << 20).unwrap();
        prop_assert_eq!(canonical(&other).unwrap(), form);
        prop_assert_eq!(digest("w", &other), digest("w", &plain));
    }

    #[test]
    fn a_double_reads_back_equal(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        for literal in [format!("{value:e}"), format!("{value:?}")] {
            prop_assume!(literal.contains(['.', 'e']));
            let form = form(&literal).unwrap();
            prop_assert_eq!(form.parse::<f64>().unwrap().to_bits(), bits, "{}", literal);
            prop_assert!(form.contains(['.', 'e']));
        }
    }

    #[test]
    fn any_text_is_answered(bytes in "[\\[\\]{}:,\"\\\\ntfu0-9.eE+ dD-]{0,40}") {
        let ours = Writer::new(&bytes).write();
        match serde_json::from_str::<&serde_json::value::RawValue>(&bytes) {
            Ok(_) => prop_assert!(!matches!(ours, Err(NotCanonical::Malformed { .. })), "{:?}", ours),
            Err(_) => prop_assert!(ours.is_err(), "{:?}", ours),
        }
    }
}
