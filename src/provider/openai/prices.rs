//! What OpenAI's models cost.

use crate::provider::line::Usage;
use crate::provider::money::{Price, PriceTable};

/// List prices, in nano-dollars per token; a batch costs half.
pub(super) fn standard() -> PriceTable {
    let prices = [
        ("gpt-5", 1_250, 10_000),
        ("gpt-5-mini", 250, 2_000),
        ("gpt-5-nano", 50, 400),
        ("gpt-4.1", 2_000, 8_000),
        ("gpt-4.1-mini", 400, 1_600),
        ("gpt-4.1-nano", 100, 400),
        ("gpt-4o", 2_500, 10_000),
        ("gpt-4o-mini", 150, 600),
    ];
    prices
        .into_iter()
        .fold(PriceTable::empty("2025-10"), |table, (model, input, output)| table.with(model, Price { input, output }))
}

/// What a request cost in a batch. Of these models those of the family `gpt-4` have no price for cached tokens in a batch: what
/// read some has an unknown cost.
pub(super) fn cost(prices: &PriceTable, model: &str, usage: &Usage) -> Option<i64> {
    if usage.cache_read_tokens > 0 && model.starts_with("gpt-4") {
        return None;
    }
    prices.batch_cost(undated(model), usage)
}

/// The name without a date at its end: `gpt-4o-mini-2024-07-18`.
fn undated(model: &str) -> &str {
    let Some(at) = model.len().checked_sub(11).filter(|at| model.is_char_boundary(*at)) else { return model };
    let (name, date) = model.split_at(at);
    let fits =
        date.bytes().enumerate().all(|(k, b)| if matches!(k, 0 | 5 | 8) { b == b'-' } else { b.is_ascii_digit() });
    if fits { name } else { model }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dated_name_has_the_price_of_the_plain_one_and_an_unknown_one_none() {
        let usage = Usage { input_tokens: 1_000, output_tokens: 100, ..Usage::default() };
        let cost = |model: &str, usage: &Usage| cost(&standard(), model, usage);
        assert_eq!(cost("gpt-4o-mini", &usage), Some(105_000));
        assert_eq!(cost("gpt-4o-mini-2024-07-18", &usage), Some(105_000));
        assert_eq!(cost("gpt-4o-mini-2024-07-1x", &usage), None);
        assert_eq!(cost("ü0123456789", &usage), None);
        let cached = Usage { cache_read_tokens: 10, ..usage };
        assert_eq!(cost("gpt-4o-mini", &cached), None);
        assert_eq!(cost("gpt-5-mini", &cached), Some(225_125));
    }
}
