//! The attribute macros of Longhaul: `#[workflow]` on a module, `#[step]` on the functions in it.
//!
//! Used through the crate `longhaul`, which re-exports both and documents the form in its trait `Workflow`.

mod duration;
mod expand;
mod policy;
mod step;

use proc_macro::TokenStream;

/// Makes an inline module one workflow.
///
/// The module holds one `impl Workflow for ..` and the workflow's steps, each an `async fn` under `#[step]`. They stay the
/// functions they are; for each there is a handle of the same name in the module `step`, which is what `then`, `goto`,
/// `call` and `type Entry` take.
#[proc_macro_attribute]
pub fn workflow(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::workflow(args.into(), item.into()).into()
}

/// Marks a step, inside a module under `#[workflow]`.
///
/// `#[step(attempts = 3, backoff = "1s..1m", timeout = "30s", crash_limit = 3, blocking)]`: all are optional. Durations are
/// a whole number and `ms`, `s`, `m`, `h` or `d`.
#[proc_macro_attribute]
pub fn step(_args: TokenStream, item: TokenStream) -> TokenStream {
    // Whatever stands inside a `#[workflow]` module is taken up there and never gets here.
    let outside = syn::Error::new(proc_macro2::Span::call_site(), "`#[step]` belongs inside a `#[workflow]` module");
    [TokenStream::from(outside.to_compile_error()), item].into_iter().collect()
}
