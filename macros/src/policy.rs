//! What stands in `#[step(..)]`.

use crate::duration;
use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::Parse;
use syn::{Attribute, LitInt, LitStr, Meta, Result};

const KEYS: &str = "`attempts`, `backoff`, `timeout`, `crash_limit`, `blocking`";

/// What was declared; the rest is as `StepPolicy::DEFAULT` has it.
#[derive(Default, Debug, PartialEq)]
pub(crate) struct Policy {
    attempts: Option<u32>,
    backoff: Option<(u64, u64)>,
    timeout: Option<u64>,
    crash_limit: Option<u32>,
    pub(crate) blocking: bool,
}

impl Policy {
    pub(crate) fn of(attribute: &Attribute) -> Result<Self> {
        let mut policy = Self::default();
        match &attribute.meta {
            Meta::Path(_) => {}
            Meta::List(list) => list.parse_nested_meta(|meta| policy.set(&meta))?,
            Meta::NameValue(pair) => {
                return Err(syn::Error::new_spanned(pair, format!("write `#[step(..)]` with any of {KEYS}")));
            }
        }
        Ok(policy)
    }

    fn set(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match key.as_str() {
            "attempts" => once(&mut self.attempts, meta, count(meta)?),
            "crash_limit" => once(&mut self.crash_limit, meta, count(meta)?),
            "backoff" => once(&mut self.backoff, meta, text(meta, duration::parse_range)?),
            "timeout" => once(&mut self.timeout, meta, text(meta, timeout)?),
            "blocking" if self.blocking => Err(twice(meta)),
            "blocking" => {
                self.blocking = true;
                Ok(())
            }
            _ => Err(meta.error(format!("a step has no such option: it has {KEYS}"))),
        }
    }

    /// The `StepPolicy` as an expression.
    pub(crate) fn expression(&self) -> TokenStream {
        let default = quote!(::longhaul::__private::StepPolicy::DEFAULT);
        let number = |number: Option<u32>, field: TokenStream| {
            number.map_or_else(|| quote!(#default.#field), |number| quote!(#number))
        };
        let (attempts, crash_limit) =
            (number(self.attempts, quote!(attempts)), number(self.crash_limit, quote!(crash_limit)));
        let backoff = self.backoff.map(|(first, most)| {
            let (first, most) = (milliseconds(first), milliseconds(most));
            quote!(::longhaul::__private::Backoff { first: #first, most: #most })
        });
        let backoff = backoff.unwrap_or_else(|| quote!(#default.backoff));
        let timeout = self.timeout.map(milliseconds).map(|timeout| quote!(::core::option::Option::Some(#timeout)));
        let timeout = timeout.unwrap_or_else(|| quote!(#default.timeout));
        quote! {
            ::longhaul::__private::StepPolicy {
                attempts: #attempts, backoff: #backoff, timeout: #timeout, crash_limit: #crash_limit,
            }
        }
    }
}

fn milliseconds(number: u64) -> TokenStream {
    quote!(::longhaul::__private::Duration::from_millis(#number))
}

fn once<T>(slot: &mut Option<T>, meta: &ParseNestedMeta<'_>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice(meta)),
    }
}

fn twice(meta: &ParseNestedMeta<'_>) -> syn::Error {
    meta.error("this option is given twice")
}

fn count(meta: &ParseNestedMeta<'_>) -> Result<u32> {
    let literal: LitInt = value(meta, "a whole number", "3")?;
    match literal.base10_parse() {
        Ok(0) => Err(syn::Error::new(literal.span(), "this is at least 1")),
        Ok(number) => Ok(number),
        Err(_) => Err(syn::Error::new(literal.span(), "this is a whole number below 4294967296")),
    }
}

/// What stands behind the `=`. Without it, or with something else, the error says what belongs there.
fn value<T: Parse>(meta: &ParseNestedMeta<'_>, what: &str, such_as: &str) -> Result<T> {
    let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
    let text = || format!("`{key}` is {what}: `{key} = {such_as}`");
    let value = meta.value().map_err(|_| meta.error(text()))?;
    let place = value.span();
    value.parse().map_err(|_| syn::Error::new(place, text()))
}

fn text<T>(meta: &ParseNestedMeta<'_>, parse: fn(&str) -> std::result::Result<T, String>) -> Result<T> {
    let literal: LitStr = value(meta, "a duration in quotes", "\"30s\"")?;
    parse(&literal.value()).map_err(|why| syn::Error::new(literal.span(), why))
}

fn timeout(text: &str) -> std::result::Result<u64, String> {
    match duration::parse(text)? {
        0 => Err("a timeout is longer than nothing".into()),
        milliseconds => Ok(milliseconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn error(attribute: Attribute) -> String {
        Policy::of(&attribute).unwrap_err().to_string()
    }

    #[test]
    fn everything_is_optional() {
        for bare in [parse_quote!(#[step]), parse_quote!(#[step()])] {
            assert_eq!(Policy::of(&bare).unwrap(), Policy::default());
        }
        let full = parse_quote!(#[step(attempts = 3, backoff = "1s..1m", timeout = "30s", crash_limit = 5, blocking)]);
        let (attempts, backoff) = (Some(3), Some((1_000, 60_000)));
        let want = Policy { attempts, backoff, timeout: Some(30_000), crash_limit: Some(5), blocking: true };
        assert_eq!(Policy::of(&full).unwrap(), want);
    }

    #[test]
    fn wrong_options_are_named() {
        assert!(error(parse_quote!(#[step(retries = 3)])).contains("`attempts`"));
        assert!(error(parse_quote!(#[step = "x"])).contains("#[step(..)]"));
        assert!(error(parse_quote!(#[step(timeout = "half an hour")])).contains("no duration"));
        assert!(error(parse_quote!(#[step(timeout = "0s")])).contains("longer than nothing"));
        assert!(error(parse_quote!(#[step(backoff = "1m..1s")])).contains("backwards"));
        assert!(error(parse_quote!(#[step(attempts = 0)])).contains("at least 1"));
        assert!(error(parse_quote!(#[step(attempts = 1, attempts = 2)])).contains("twice"));
        assert!(error(parse_quote!(#[step(blocking, blocking)])).contains("twice"));
        assert!(error(parse_quote!(#[step(attempts = "3")])).contains("`attempts = 3`"));
        assert!(error(parse_quote!(#[step(attempts)])).contains("`attempts = 3`"));
        assert!(error(parse_quote!(#[step(timeout = 30)])).contains("`timeout = \"30s\"`"));
        assert!(error(parse_quote!(#[step(attempts = 99999999999)])).contains("below 4294967296"));
    }
}
