//! Durations as people write them: `500ms`, `30s`, `5m`, `2h`, `1d`; and ranges of them: `1s..1m`.

const FORM: &str = "a whole number and `ms`, `s`, `m`, `h` or `d`, such as `500ms`, `30s` or `2h`";

/// The milliseconds of a duration.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is no duration: it must be {FORM}");
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(bad()),
    };
    number.checked_mul(milliseconds).ok_or_else(|| format!("`{text}` is too long"))
}

/// The milliseconds of `first..most`; one duration alone is both.
pub(crate) fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (first, most) = text.split_once("..").unwrap_or((text, text));
    let (first, most) = (parse(first.trim())?, parse(most.trim())?);
    if first > most {
        return Err(format!("`{text}` goes backwards: the first delay must not be longer than the longest"));
    }
    Ok((first, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, ms) in
            [("500ms", 500), ("0s", 0), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse(text), Ok(ms));
        }
        for bad in
            ["", "s", "30", "30 s", "-1s", "1.5s", "1w", "1S", "s1", "18446744073709551616s", "99999999999999999d"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_go_forwards() {
        assert_eq!(parse_range("1s..1m"), Ok((1_000, 60_000)));
        assert_eq!(parse_range("1s .. 1s"), Ok((1_000, 1_000)));
        assert_eq!(parse_range("5s"), Ok((5_000, 5_000)));
        for bad in ["1m..1s", "..", "1s..", "..1s", "1s...2s", "1s..2s..3s"] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}
