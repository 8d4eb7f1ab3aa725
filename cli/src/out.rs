//! What goes to stdout, and how figures are written.

use crate::error::CliError;
use serde::Serialize;
use std::io::{ErrorKind, Write};

/// Prints a text. A reader that has seen enough (`| head`) is no error.
pub(crate) fn text(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::io("write to stdout", error)),
        _ => Ok(()),
    }
}

/// Prints one JSON value on a line of its own.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    let line = serde_json::to_string(value).map_err(|error| CliError::io("write JSON", error.into()))?;
    text(&format!("{line}\n"))
}

/// Rows in columns; numbers to the right, everything else to the left. The first row is the head.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let widths: Vec<usize> =
        (0..columns).map(|c| cells(c).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
    let numeric = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains(['-', ':']);
    let right: Vec<bool> = (0..columns).map(|c| rows.len() > 1 && cells(c).skip(1).all(numeric)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let width = widths[c];
            let cell = if right[c] { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `1234567` as `1,234,567`.
pub(crate) fn thousands(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// A length of time for people.
pub(crate) fn time(ms: i64) -> String {
    match ms {
        ..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

/// Nano-dollars as dollars, to a hundredth of a cent.
pub(crate) fn dollars(nano_usd: i64) -> String {
    let rounded = (i128::from(nano_usd) + 50_000).div_euclid(100_000);
    format!("${}.{:04}", thousands(rounded / 10_000), rounded % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(-1_000), "-1,000");
        assert_eq!(dollars(142_180_000), "$0.1422");
        assert_eq!(dollars(1_234_000_000_000), "$1,234.0000");
    }

    #[test]
    fn numbers_stand_to_the_right() {
        let rows = [["name", "runs"], ["a", "7"], ["worker-10", "1,200"]];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|c| (*c).to_owned()).collect()).collect();
        assert_eq!(table(&rows), "name        runs\na              7\nworker-10  1,200\n");
    }
}
