use super::*;

/// The text of every `compile_error!` that a module leads to.
fn errors(item: TokenStream) -> Vec<String> {
    let text = workflow(TokenStream::new(), item).to_string();
    let mut found = Vec::new();
    for part in text.split("compile_error").skip(1) {
        let literal = part.split('"').nth(1).unwrap_or_default();
        found.push(literal.to_owned());
    }
    found
}

fn module(steps: &TokenStream) -> TokenStream {
    quote! { mod m { impl Workflow for W { type Entry = step::a; } #steps } }
}

#[track_caller]
fn refused(steps: TokenStream, with: &str) {
    let errors = errors(module(&steps));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains(with), "{errors:?}");
}

#[test]
fn a_good_module_has_no_errors() {
    let steps = quote! {
        #[step] async fn a(run: &mut Run<W>) -> Result<Next<W>> { loop {} }
        #[longhaul::step(attempts = 2)] pub async fn b(_: &mut Run<W>, (x, y): (u8, u8)) -> Result<Next<W, u8>> { loop {} }
        async fn helper(a: u8, b: u8) {}
    };
    assert_eq!(errors(module(&steps)), Vec::<String>::new());
}

#[test]
fn wrong_places_are_refused() {
    assert!(
        errors(quote!(
            mod m;
        ))[0]
            .contains("inline module")
    );
    assert!(
        errors(quote!(
            struct S;
        ))[0]
            .contains("belongs on a module")
    );
    let options = workflow(quote!(version = 2), module(&TokenStream::new())).to_string();
    assert!(options.contains("takes no options"));
}

#[test]
fn a_module_needs_one_workflow_and_a_step() {
    let none = errors(quote!(
        mod m {}
    ));
    assert!(none[0].contains("no `impl Workflow") && none[1].contains("no step"), "{none:?}");
    let a = quote!(
        #[step]
        async fn a(run: &mut Run<W>) -> Result<Next<W>> {
            loop {}
        }
    );
    refused(quote!(#a impl Workflow for V {}), "second `impl Workflow`");
    let generic = errors(quote!(mod m { impl<T> Workflow for W<T> {} #a }));
    assert!(generic[0].contains("no type parameters"));
}

#[test]
fn wrong_signatures_are_refused() {
    refused(
        quote!(
            #[step]
            fn a(run: &mut Run<W>) -> Result<Next<W>> {}
        ),
        "not async",
    );
    refused(
        quote!(
            #[step]
            async fn a() -> Result<Next<W>> {}
        ),
        "a step is",
    );
    refused(
        quote!(
            #[step]
            async fn a(self) -> Result<Next<W>> {}
        ),
        "a step is",
    );
    refused(
        quote!(
            #[step]
            async fn a(run: Run<W>) -> Result<Next<W>> {}
        ),
        "a step is",
    );
    refused(
        quote!(
            #[step]
            async fn a(run: &Run<W>) -> Result<Next<W>> {}
        ),
        "a step is",
    );
    refused(
        quote!(
            #[step]
            async fn a(run: &mut Run<W>) {}
        ),
        "a step is",
    );
    refused(
        quote!(
            #[step]
            async fn a(r: &mut Run<W>, a: u8, b: u8) -> Result<Next<W>> {}
        ),
        "at most one input",
    );
    refused(
        quote!(
            #[step]
            async fn a(r: &mut Run<W>, a: &str) -> Result<Next<W>> {}
        ),
        "owned type",
    );
    refused(
        quote!(
            #[step]
            async fn a(r: &mut Run<W>, a: impl Data) -> Result<Next<W>> {}
        ),
        "concrete type",
    );
    refused(
        quote!(
            #[step]
            async fn a<T>(r: &mut Run<W>, a: T) -> Result<Next<W>> {}
        ),
        "no type parameters",
    );
}

#[test]
fn wrong_options_are_refused_and_the_step_stays() {
    let steps = quote!(
        #[step(retries = 3)]
        async fn a(run: &mut Run<W>) -> Result<Next<W>> {
            loop {}
        }
    );
    refused(steps.clone(), "no such option");
    assert!(workflow(TokenStream::new(), module(&steps)).to_string().contains("for step :: a"));
}

#[test]
fn two_steps_of_one_name_are_refused_unless_configured_apart() {
    let a = quote!(
        async fn a(run: &mut Run<W>) -> Result<Next<W>> {
            loop {}
        }
    );
    refused(quote!(#[step] #a #[step] #a), "two steps are named `a`");
    assert!(errors(module(&quote!(#[cfg(unix)] #[step] #a #[cfg(windows)] #[step] #a))).is_empty());
}

#[test]
fn a_name_fits_the_database() {
    let name = Ident::new(&"x".repeat(129), Span::call_site());
    refused(quote!(#[step] async fn #name(run: &mut Run<W>) -> Result<Next<W>> { loop {} }), "at most 128 bytes");
}

#[test]
fn handles_are_as_visible_as_their_functions() {
    let shown = |visibility: TokenStream| {
        let steps = quote! {
            #[step] async fn a(run: &mut Run<W>) -> Result<Next<W>> { loop {} }
            #[step] #visibility async fn b(run: &mut Run<W>) -> Result<Next<W>> { loop {} }
        };
        workflow(TokenStream::new(), module(&steps)).to_string()
    };
    let private = shown(TokenStream::new());
    assert!(private.contains("pub struct a ;"), "the entry");
    assert!(private.contains("pub (super) struct b ;"));
    assert!(shown(quote!(pub)).contains("pub struct b ;"));
    assert!(shown(quote!(pub(crate))).contains("pub (crate) struct b ;"));
    assert!(shown(quote!(pub(super))).contains("pub (in super :: super) struct b ;"));
    assert!(shown(quote!(pub(self))).contains("pub (super) struct b ;"));
}
