//! What models cost: a dated table that can be overridden, in integer nano-dollars. An unknown model has an unknown cost,
//! never zero.

use super::line::Usage;
use std::collections::BTreeMap;

/// The price of one model, in nano-dollars per token at the list price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Per input token.
    pub input: i64,
    /// Per output token.
    pub output: i64,
}

/// Prices by model. A model's dated name (`claude-haiku-4-5-20251001`) has the price of its plain one.
///
/// ```
/// # use longhaul::provider::{PriceTable, Usage};
/// let usage = Usage { input_tokens: 1_000, output_tokens: 100, ..Usage::default() };
/// let prices = PriceTable::standard();
/// assert_eq!(prices.batch_cost("claude-haiku-4-5", &usage), Some(750_000));
/// assert_eq!(prices.batch_cost("somebody-elses-model", &usage), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceTable {
    /// When these prices were read.
    pub as_of: &'static str,
    prices: BTreeMap<String, Price>,
}

impl PriceTable {
    /// List prices of Anthropic's models.
    pub fn standard() -> Self {
        let prices = [
            ("claude-haiku-4-5", Price { input: 1_000, output: 5_000 }),
            ("claude-sonnet-4-5", Price { input: 3_000, output: 15_000 }),
            ("claude-opus-4-5", Price { input: 5_000, output: 25_000 }),
        ];
        Self { as_of: "2026-10", prices: prices.into_iter().map(|(name, price)| (name.to_owned(), price)).collect() }
    }

    /// No prices: to be filled by [`with`](Self::with).
    pub fn empty(as_of: &'static str) -> Self {
        Self { as_of, prices: BTreeMap::new() }
    }

    /// Sets or replaces the price of a model.
    pub fn with(mut self, model: impl Into<String>, price: Price) -> Self {
        self.prices.insert(model.into(), price);
        self
    }

    /// What a request cost in a batch (half the list price), in nano-dollars. Cache writes cost 1.25 of an input token, cache
    /// reads a tenth. Rounded up to the next nano-dollar.
    pub fn batch_cost(&self, model: &str, usage: &Usage) -> Option<i64> {
        // In fortieths of the price, so that every share of it is a whole number: batch is one half of the whole.
        self.cost(model, usage, 40)
    }

    /// What a live call cost, at the list price, in nano-dollars. Cached tokens and rounding are as in a batch.
    pub fn live_cost(&self, model: &str, usage: &Usage) -> Option<i64> {
        self.cost(model, usage, 20)
    }

    fn cost(&self, model: &str, usage: &Usage, parts: i128) -> Option<i64> {
        let price = self.prices.get(model).or_else(|| self.prices.get(undated(model)))?;
        let (input, output) = (i128::from(price.input), i128::from(price.output));
        let of_input = i128::from(usage.input_tokens) * 20
            + i128::from(usage.cache_write_tokens) * 25
            + i128::from(usage.cache_read_tokens) * 2;
        let total = of_input * input + i128::from(usage.output_tokens) * 20 * output;
        i64::try_from((total + parts - 1).div_euclid(parts)).ok()
    }
}

impl PriceTable {
    /// What a request of so many bytes that may write so many tokens costs in a batch at most, in nano-dollars: a token for every
    /// three bytes, all of them written into the prompt cache, and as many written as it may. Text of unusual kinds has more tokens
    /// than that, a request with tools of the provider's own may cost more, and most requests cost much less.
    pub fn most(&self, model: &str, bytes: usize, max_tokens: i64) -> Option<i64> {
        let cache_write_tokens = i64::try_from(bytes.div_ceil(3)).ok()?;
        self.batch_cost(model, &Usage { output_tokens: max_tokens.max(0), cache_write_tokens, ..Usage::default() })
    }
}

/// The name without a date at its end.
fn undated(model: &str) -> &str {
    match model.rsplit_once('-') {
        Some((name, date)) if date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_not_rounded_away() {
        let usage = Usage { cache_read_tokens: 1, ..Usage::default() };
        assert_eq!(PriceTable::standard().batch_cost("claude-haiku-4-5", &usage), Some(50));
        let cheap = PriceTable::standard().with("tiny", Price { input: 1, output: 1 });
        assert_eq!(cheap.batch_cost("tiny", &usage), Some(1));
    }

    #[test]
    fn a_live_call_costs_twice_as_much() {
        let usage = Usage { input_tokens: 1_000, output_tokens: 100, ..Usage::default() };
        assert_eq!(PriceTable::standard().live_cost("claude-haiku-4-5", &usage), Some(1_500_000));
    }

    #[test]
    fn a_dated_name_has_the_price_of_the_plain_one() {
        let usage = Usage { input_tokens: 10, ..Usage::default() };
        assert_eq!(PriceTable::standard().batch_cost("claude-haiku-4-5-20251001", &usage), Some(5_000));
        assert_eq!(PriceTable::standard().batch_cost("claude-haiku-4-5-latest", &usage), None);
    }
}
