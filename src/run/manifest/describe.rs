//! Whether a type has a schema, asked without demanding one: the code that `#[workflow]` writes calls `describe` on a
//! `&Probe<T>`, and the compiler takes [`Described`] where `T: JsonSchema` and [`Named`], one reference further, elsewhere.

use super::TypeInfo;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

/// What in a schema is for people.
const FOR_PEOPLE: [&str; 9] =
    ["$schema", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"];

/// A type that is asked about.
#[derive(Debug)]
pub struct Probe<T: ?Sized>(PhantomData<fn() -> T>);

impl<T: ?Sized> Probe<T> {
    /// The question.
    pub const NEW: Self = Self(PhantomData);
}

/// A type with a schema.
pub trait Described {
    /// Its name and its schema.
    fn describe(&self) -> TypeInfo;
}

impl<T: ?Sized + JsonSchema> Described for Probe<T> {
    fn describe(&self) -> TypeInfo {
        let name = Cow::Borrowed(std::any::type_name::<T>());
        TypeInfo { name, schema: Some(Arc::new(schema_of::<T>())) }
    }
}

/// Any type.
pub trait Named {
    /// Its name.
    fn describe(&self) -> TypeInfo;
}

impl<T: ?Sized> Named for &Probe<T> {
    fn describe(&self) -> TypeInfo {
        TypeInfo::named::<T>()
    }
}

/// The schema of what a type reads, without what is for people, and without names of types but where it is recursive.
fn schema_of<T: ?Sized + JsonSchema>() -> serde_json::Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let bare = |schema: &mut Schema| {
        for key in FOR_PEOPLE {
            schema.remove(key);
        }
    };
    RecursiveTransform(bare).transform(&mut schema);
    schema.to_value()
}
