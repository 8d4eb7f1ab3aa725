//! What a token costs here. A small table of list prices, for a ledger that adds up; not a source of truth.

/// The day the table was written.
pub const PRICES_AS_OF: &str = "2026-11-01";

/// The list price of one model, in nano-dollars (10^-9 USD) for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Nano-dollars for each input token.
    pub input: u64,
    /// Nano-dollars for each output token.
    pub output: u64,
}

const TABLE: [(&str, Price); 5] = [
    ("claude-haiku-4-5", Price { input: 1_000, output: 5_000 }),
    ("claude-sonnet-4-5", Price { input: 3_000, output: 15_000 }),
    ("claude-opus-4-5", Price { input: 5_000, output: 25_000 }),
    ("gpt-5-mini", Price { input: 250, output: 2_000 }),
    ("gpt-4o-mini", Price { input: 150, output: 600 }),
];

/// The list price of a model, by its alias or its dated name (`claude-haiku-4-5-20251001`); `None` for a model unknown here.
pub fn price_of(model: &str) -> Option<Price> {
    let dated =
        |rest: &str| rest.strip_prefix('-').is_some_and(|d| d.len() == 8 && d.bytes().all(|b| b.is_ascii_digit()));
    TABLE
        .iter()
        .find(|(name, _)| model.strip_prefix(name).is_some_and(|rest| rest.is_empty() || dated(rest)))
        .map(|(_, price)| *price)
}

impl Price {
    /// What these tokens cost at full price, or at the half price of a batch.
    pub fn nano_usd(self, input_tokens: u64, output_tokens: u64, live: bool) -> u64 {
        let full = self.input.saturating_mul(input_tokens).saturating_add(self.output.saturating_mul(output_tokens));
        if live { full } else { full / 2 }
    }
}
