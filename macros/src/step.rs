//! One step: its function, its handle, and what makes the handle a step.

use crate::policy::Policy;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, ItemFn, Result, ReturnType, Type, Visibility};

const FORM: &str =
    "a step is `async fn name(run: &mut Run<W>) -> Result<Next<W>>`, with at most one input after the run";
const NAME_BYTES: usize = 128;

/// A function under `#[step]`, without that attribute.
pub(crate) struct Step {
    function: ItemFn,
    policy: Policy,
    signature: Option<Signature>,
    /// What is wrong with it. It is written as far as it can be, so that what is right elsewhere is not reported.
    pub(crate) errors: Vec<Error>,
}

struct Signature {
    run: Type,
    input: Option<Type>,
    returns: Type,
}

impl Step {
    /// Takes the attribute off; `None` if it is not there.
    pub(crate) fn take(function: &mut ItemFn) -> Option<Self> {
        let place = function.attrs.iter().position(is_step)?;
        let attribute = function.attrs.remove(place);
        let mut errors = Vec::new();
        let mut note = |error: Error| errors.push(error);
        let policy = Policy::of(&attribute).map_err(&mut note).unwrap_or_default();
        let signature = Signature::of(function).map_err(&mut note).ok();
        if function.sig.ident.to_string().len() > NAME_BYTES {
            note(Error::new(function.sig.ident.span(), format!("the name of a step has at most {NAME_BYTES} bytes")));
        }
        Some(Self { function: function.clone(), policy, signature, errors })
    }

    pub(crate) fn name(&self) -> &Ident {
        &self.function.sig.ident
    }

    pub(crate) fn cfgs(&self) -> Vec<&Attribute> {
        self.function.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect()
    }

    /// The function, as it was written.
    pub(crate) fn function(&self) -> TokenStream {
        let function = &self.function;
        // That it is async and fallible is the form's doing.
        quote!(#[allow(clippy::unused_async, clippy::unnecessary_wraps)] #function)
    }

    /// The handle, for the module `step`. The one that a workflow names as its entry is as public as a trait can ask for.
    pub(crate) fn handle(&self, is_entry: bool) -> TokenStream {
        let (name, cfgs) = (self.name(), self.cfgs());
        let visibility = if is_entry { quote!(pub) } else { one_deeper(&self.function.vis) };
        let doc = format!("The step `{name}`.");
        quote! {
            #(#cfgs)*
            #[doc = #doc]
            #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
            #visibility struct #name;
        }
    }

    /// The handle's `impl Step`, for the module of the workflow.
    pub(crate) fn implementation(&self, workflow: &Type) -> TokenStream {
        let Some(Signature { run, input, returns }) = &self.signature else { return TokenStream::new() };
        let (name, cfgs, policy, blocking) = (self.name(), self.cfgs(), self.policy.expression(), self.policy.blocking);
        let text = name.to_string();
        // Spans: a run of another workflow is reported at the first parameter, a future that is not Send at the name.
        let run_argument = Ident::new("run", run.span().resolved_at(Span::mixed_site()));
        let input_argument = format_ident!("input", span = Span::mixed_site());
        let (input_type, arguments) = match input {
            None => (quote!(()), quote!(#run_argument)),
            Some(input) => (quote!(#input), quote!(#run_argument, #input_argument)),
        };
        let call = quote_spanned!(name.span()=> ::std::boxed::Box::pin(#name(#arguments)));
        let type_info = crate::expand::type_info(&input_type);
        let output = quote_spanned!(returns.span()=> <#returns as ::longhaul::StepReturn>::Output);
        // What is returned and cannot be is reported there, and not at the attribute of the module.
        quote_spanned! {returns.span()=>
            #(#cfgs)*
            impl ::longhaul::Step<#workflow> for step::#name {
                type Input = #input_type;
                type Output = #output;
                const NAME: &'static str = #text;
                const POLICY: ::longhaul::__private::StepPolicy = #policy;
                const BLOCKING: bool = #blocking;
                fn input() -> ::longhaul::__private::TypeInfo {
                    #type_info
                }
                #[allow(unused_variables)]
                fn call<'a>(
                    #run_argument: &'a mut ::longhaul::Run<#workflow>,
                    #input_argument: #input_type,
                ) -> ::longhaul::StepFuture<'a, #workflow, Self::Output> {
                    #call
                }
            }
        }
    }

    /// Its row in the table of steps.
    pub(crate) fn row(&self) -> TokenStream {
        let (name, cfgs) = (self.name(), self.cfgs());
        match self.signature {
            None => TokenStream::new(),
            Some(_) => quote!(#(#cfgs)* table.push(::longhaul::StepEntry::of(step::#name));),
        }
    }
}

impl Signature {
    fn of(function: &ItemFn) -> Result<Self> {
        let signature = &function.sig;
        let wrong = |span: Span| Error::new(span, FORM);
        if signature.asyncness.is_none() {
            return Err(Error::new(signature.fn_token.span, format!("this is not async: {FORM}")));
        }
        if let Some(parameter) = signature.generics.params.first() {
            return Err(Error::new_spanned(parameter, "a step has no type parameters or lifetimes of its own"));
        }
        let mut parameters = signature.inputs.iter();
        let run = match parameters.next() {
            Some(FnArg::Typed(run)) => &*run.ty,
            Some(FnArg::Receiver(receiver)) => return Err(wrong(receiver.span())),
            None => return Err(wrong(signature.paren_token.span.join())),
        };
        if !matches!(run, Type::Reference(reference) if reference.mutability.is_some()) {
            return Err(Error::new_spanned(run, FORM));
        }
        let input = match parameters.next() {
            Some(FnArg::Typed(input)) => Some(owned(&input.ty)?.clone()),
            Some(FnArg::Receiver(receiver)) => return Err(wrong(receiver.span())),
            None => None,
        };
        if let Some(more) = parameters.next() {
            let text = "a step takes the run and at most one input: put more into a tuple or a struct";
            return Err(Error::new_spanned(more, text));
        }
        match &signature.output {
            ReturnType::Type(_, returns) => Ok(Self { run: run.clone(), input, returns: (**returns).clone() }),
            ReturnType::Default => Err(wrong(signature.ident.span())),
        }
    }
}

fn owned(input: &Type) -> Result<&Type> {
    match input {
        Type::Reference(_) => {
            Err(Error::new_spanned(input, "the input of a step is stored and read back: take an owned type"))
        }
        Type::ImplTrait(_) => {
            Err(Error::new_spanned(input, "the input of a step is stored and read back: name a concrete type"))
        }
        _ => Ok(input),
    }
}

/// `#[step]`, also as `#[longhaul::step]`.
fn is_step(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "step")
}

/// The same visibility, said one module further in.
fn one_deeper(visibility: &Visibility) -> TokenStream {
    match visibility {
        Visibility::Inherited => quote!(pub(super)),
        Visibility::Public(_) => quote!(pub),
        Visibility::Restricted(restricted) => {
            let path = &restricted.path;
            match path.segments.first().map(|first| first.ident.to_string()).as_deref() {
                Some("self") if path.segments.len() == 1 => quote!(pub(super)),
                Some("super") => quote!(pub(in super::#path)),
                _ => quote!(#visibility),
            }
        }
    }
}
