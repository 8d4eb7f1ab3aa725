//! Whether a type has a schema, asked without demanding one: the code that `#[workflow]` writes calls `describe` on a
//! `&Probe<T>`, and the compiler takes [`Described`] where `T: JsonSchema` and [`Named`], one reference further, elsewhere.

use super::TypeInfo;
use crate::domain::JsonText;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::Value;
use std::marker::PhantomData;
use std::sync::Arc;

/// What in a schema is for people.
const FOR_PEOPLE: [&str; 9] =
    ["$schema", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"];

/// Largest schema of a type, in bytes of JSON.
const SCHEMA_BYTES: usize = 256 << 10;
/// How many levels of a manifest are around a schema, at least.
const AROUND: usize = 8;

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
        let schema = schema_of::<T>();
        TypeInfo { schema: storable(&schema).then(|| Arc::new(schema)), ..TypeInfo::named::<T>() }
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

/// Whether a schema can be part of a manifest. One that is too large or too deep for that must not keep a node from starting.
fn storable(schema: &Value) -> bool {
    let deeper = (0..AROUND).fold(schema.clone(), |inner, _| Value::Array(vec![inner]));
    JsonText::of(&deeper, "a schema", SCHEMA_BYTES).is_ok()
}

/// The schema of what a type reads, without what is for people, and without names of types but where it is recursive.
fn schema_of<T: ?Sized + JsonSchema>() -> Value {
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
