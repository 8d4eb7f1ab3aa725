//! The module of a workflow: takes the steps out, and puts them back with their handles and the table.

use crate::step::Step;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ImplItem, Item, ItemImpl, ItemMod, Type};

/// What `#[workflow]` makes of a module.
pub(crate) fn workflow(args: TokenStream, item: TokenStream) -> TokenStream {
    let refused = |error: Error| {
        let error = error.to_compile_error();
        quote!(#error #item)
    };
    if !args.is_empty() {
        return refused(Error::new_spanned(
            &args,
            "`#[workflow]` takes no options: those of a step stand in `#[step(..)]`",
        ));
    }
    let Ok(mut module) = syn::parse2::<ItemMod>(item.clone()) else {
        return refused(Error::new(Span::call_site(), "`#[workflow]` belongs on a module: `mod name { .. }`"));
    };
    let Some((_, items)) = module.content.take() else {
        let text = "`#[workflow]` needs an inline module, with the steps in it: `mod name { .. }`";
        return refused(Error::new(module.ident.span(), text));
    };
    let parts = Parts::of(items, &module.ident);
    let (attributes, visibility, name) = (&module.attrs, &module.vis, &module.ident);
    quote! { #(#attributes)* #visibility mod #name { #parts } }
}

struct Parts {
    rest: Vec<Item>,
    steps: Vec<Step>,
    workflow: Option<Definition>,
    errors: Vec<Error>,
}

/// The `impl Workflow for ..`.
struct Definition {
    workflow: Type,
    entry: Option<Ident>,
}

impl Parts {
    fn of(items: Vec<Item>, module: &Ident) -> Self {
        let mut parts = Self { rest: Vec::new(), steps: Vec::new(), workflow: None, errors: Vec::new() };
        for item in items {
            match item {
                Item::Fn(mut function) => match Step::take(&mut function) {
                    Some(step) => parts.step(step),
                    None => parts.rest.push(Item::Fn(function)),
                },
                Item::Impl(implementation) => {
                    parts.definition(&implementation);
                    parts.rest.push(Item::Impl(implementation));
                }
                other => parts.rest.push(other),
            }
        }
        if parts.workflow.is_none() {
            let text = "there is no `impl Workflow for ..` in this module";
            parts.errors.push(Error::new(module.span(), text));
        }
        if parts.steps.is_empty() {
            let text = "there is no step in this module: put `#[step]` on an `async fn`";
            parts.errors.push(Error::new(module.span(), text));
        }
        parts
    }

    fn step(&mut self, mut step: Step) {
        self.errors.append(&mut step.errors);
        // What is configured apart may share a name; if both come to be, the compiler says so.
        let apart = |other: &Step| !(other.cfgs().is_empty() && step.cfgs().is_empty());
        if self.steps.iter().any(|other| other.name() == step.name() && !apart(other)) {
            let text = format!("two steps are named `{}`", step.name());
            self.errors.push(Error::new(step.name().span(), text));
            return;
        }
        self.steps.push(step);
    }

    fn definition(&mut self, implementation: &ItemImpl) {
        let of_workflow = implementation.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if of_workflow.is_none_or(|last| last.ident != "Workflow") {
            return;
        }
        if let Some(parameter) = implementation.generics.params.first() {
            self.errors.push(Error::new(parameter.span(), "a workflow has no type parameters"));
        }
        if self.workflow.is_some() {
            let text = "one module is one workflow: this is the second `impl Workflow` here";
            self.errors.push(Error::new(implementation.self_ty.span(), text));
            return;
        }
        let entry = implementation.items.iter().find_map(|item| match item {
            ImplItem::Type(entry) if entry.ident == "Entry" => last_segment(&entry.ty),
            _ => None,
        });
        self.workflow = Some(Definition { workflow: (*implementation.self_ty).clone(), entry });
    }
}

impl ToTokens for Parts {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { rest, steps, workflow, errors } = self;
        let errors = errors.iter().map(Error::to_compile_error);
        let functions = steps.iter().map(Step::function);
        let entry = workflow.as_ref().and_then(|definition| definition.entry.as_ref());
        let handles = steps.iter().map(|step| step.handle(entry == Some(step.name())));
        let table = workflow.as_ref().map(|definition| table(steps, &definition.workflow));
        tokens.extend(quote! {
            #(#errors)*
            #(#rest)*
            #(#functions)*
            /// The steps of this workflow, as values: what `then`, `goto` and `call` take.
            #[allow(non_camel_case_types, unreachable_pub, dead_code)]
            pub mod step { #(#handles)* }
            #table
        });
    }
}

/// What makes the handles steps of the workflow, and lists them.
fn table(steps: &[Step], workflow: &Type) -> TokenStream {
    let implementations = steps.iter().map(|step| step.implementation(workflow));
    let (rows, size) = (steps.iter().map(Step::row), steps.len());
    let check = quote_spanned! {workflow.span()=>
        const _: () = ::longhaul::__private::check_name(<#workflow as ::longhaul::Workflow>::NAME);
        const _: () = ::longhaul::__private::check_versions(
            <#workflow as ::longhaul::Workflow>::UPGRADES_FROM,
            <#workflow as ::longhaul::Workflow>::VERSION,
        );
    };
    let types = ["Input", "State", "Output"].map(|name| {
        let name = Ident::new(name, Span::call_site());
        type_info(&quote!(<#workflow as ::longhaul::Workflow>::#name))
    });
    quote! {
        #check
        #(#implementations)*
        impl ::longhaul::Steps for #workflow {
            fn table() -> ::std::vec::Vec<::longhaul::StepEntry<Self>> {
                let mut table = ::std::vec::Vec::with_capacity(#size);
                #(#rows)*
                table
            }
            fn types() -> [::longhaul::__private::TypeInfo; 3] {
                [#(#types),*]
            }
        }
    }
}

/// What is known of a type: its schema if it has one, else its name. The compiler takes the method that needs no further
/// reference, which is there for types with a schema only.
pub(crate) fn type_info(of: &TokenStream) -> TokenStream {
    quote! {
        {
            #[allow(unused_imports)]
            use ::longhaul::__private::{Described as _, Named as _};
            #[allow(clippy::needless_borrow, clippy::borrow_interior_mutable_const)]
            (&::longhaul::__private::Probe::<#of>::NEW).describe()
        }
    }
}

fn last_segment(entry: &Type) -> Option<Ident> {
    match entry {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
