//! One object for each type that has flattened fields.
//!
//! Such a type is derived as `allOf`: its own fields and those of each flattened part. A part that rejects unknown
//! fields would reject those of the others, and a reader would have to collect the fields. So the document has them
//! merged.

use std::collections::BTreeMap;

use utoipa::openapi::schema::{AllOf, Object};
use utoipa::openapi::{OpenApi, RefOr, Schema};

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Replaces each component that is an `allOf` of objects with one object.
pub fn merge_parts(document: &mut OpenApi) {
    let Some(components) = &mut document.components else { return };
    let known = components.schemas.clone();
    for schema in components.schemas.values_mut() {
        if let RefOr::T(Schema::AllOf(parts)) = schema
            && let Some(object) = merged(parts, &known)
        {
            *schema = RefOr::T(Schema::Object(object));
        }
    }
}

/// Returns `None` if a part is not an object.
fn merged(parts: &AllOf, known: &Schemas) -> Option<Object> {
    let mut whole = Object::new();
    for part in &parts.items {
        let part = object(part, known)?;
        whole.properties.extend(part.properties);
        whole.required.extend(part.required);
        whole.additional_properties = whole.additional_properties.or(part.additional_properties);
    }
    whole.description = parts.description.clone();
    Some(whole)
}

fn object(schema: &RefOr<Schema>, known: &Schemas) -> Option<Object> {
    match schema {
        RefOr::Ref(reference) => object(known.get(reference.ref_location.rsplit('/').next()?)?, known),
        RefOr::T(Schema::Object(object)) => Some(object.clone()),
        RefOr::T(Schema::AllOf(parts)) => merged(parts, known),
        RefOr::T(_) => None,
    }
}
