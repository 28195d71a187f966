//! Compares JSON with a schema of the document.
//!
//! Stricter than JSON Schema: an object may have only the properties that its schema lists, so that a field that is
//! sent and not described is found. An unknown keyword is a panic, not a pass.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

/// Keywords that describe and do not restrict.
const ANNOTATIONS: [&str; 4] = ["description", "example", "title", "default"];

/// The document, and the properties that were seen in JSON.
pub struct Schemas {
    document: Value,
    /// `Job.progress`: those that had a value other than null and an empty list.
    pub seen: BTreeSet<String>,
}

/// The properties of an object, its `allOf` merged.
#[derive(Default)]
struct Object<'a> {
    /// By name, with the component that lists it.
    properties: BTreeMap<&'a str, (&'a str, &'a Value)>,
    required: BTreeSet<&'a str>,
    /// The schema of properties that are not listed, and that of their names.
    others: Option<(&'a Value, Option<&'a Value>)>,
}

impl Schemas {
    pub fn new(document: Value) -> Self {
        Schemas { document, seen: BTreeSet::new() }
    }

    /// Returns the errors of `value`, each with its place.
    pub fn check(&mut self, schema: &Value, value: &Value) -> Vec<String> {
        let mut check = Check { document: &self.document, seen: BTreeSet::new(), problems: Vec::new() };
        check.value("", schema, value, "");
        let Check { seen, problems, .. } = check;
        self.seen.extend(seen);
        problems
    }

    /// Returns every property of the components that `schema` refers to, at any depth, as in `seen`.
    pub fn properties(&self, schema: &Value) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut left = vec![schema];
        while let Some(schema) = left.pop() {
            match schema {
                Value::Object(object) => {
                    if let Some(reference) = object.get("$ref").and_then(Value::as_str)
                        && names.insert(component(reference))
                    {
                        left.push(resolve(&self.document, reference));
                    }
                    left.extend(object.values());
                }
                Value::Array(items) => left.extend(items),
                _ => {}
            }
        }
        let check = Check { document: &self.document, seen: BTreeSet::new(), problems: Vec::new() };
        let mut found = BTreeSet::new();
        for name in names {
            let mut object = Object::default();
            check.collect(name, &self.document["components"]["schemas"][name], &mut object);
            found.extend(object.properties.iter().map(|(property, (owner, _))| format!("{owner}.{property}")));
        }
        found
    }
}

fn component(reference: &str) -> &str {
    reference.strip_prefix("#/components/schemas/").unwrap_or_else(|| panic!("{reference} is no component"))
}

fn resolve<'a>(document: &'a Value, reference: &str) -> &'a Value {
    document["components"]["schemas"].get(component(reference)).unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

fn object(schema: &Value) -> &Map<String, Value> {
    schema.as_object().unwrap_or_else(|| panic!("expected a schema, got {schema}"))
}

fn list<'a>(object: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a Value> {
    object.get(key).and_then(Value::as_array).into_iter().flatten()
}

struct Check<'a> {
    document: &'a Value,
    seen: BTreeSet<String>,
    problems: Vec<String>,
}

impl<'a> Check<'a> {
    /// `owner` is the component that `schema` is in, `at` the place of `value`.
    fn value(&mut self, owner: &'a str, schema: &'a Value, value: &Value, at: &str) {
        let keywords = object(schema);
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            return self.value(component(reference), resolve(self.document, reference), value, at);
        }
        if keywords.contains_key("oneOf") {
            return self.one_of(owner, list(keywords, "oneOf"), value, at);
        }
        if keywords.contains_key("allOf") || keywords.contains_key("properties") || is_type(keywords, "object") {
            match value {
                Value::Object(fields) => return self.object(owner, schema, fields, at),
                Value::Null if is_type(keywords, "null") => return,
                _ => return self.problem(at, value, "expected an object"),
            }
        }
        for (keyword, limit) in keywords {
            if !ANNOTATIONS.contains(&keyword.as_str()) {
                self.keyword(owner, keyword, limit, value, at);
            }
        }
    }

    fn one_of(&mut self, owner: &'a str, choices: impl Iterator<Item = &'a Value>, value: &Value, at: &str) {
        let mut matching = 0;
        let mut complaints = Vec::new();
        for choice in choices {
            let mut check = Check { document: self.document, seen: BTreeSet::new(), problems: Vec::new() };
            check.value(owner, choice, value, at);
            if check.problems.is_empty() {
                matching += 1;
                self.seen.extend(check.seen);
            }
            if !is_type(object(choice), "null") {
                complaints.extend(check.problems);
            }
        }
        if matching != 1 {
            self.problems.extend(complaints);
            self.problem(at, value, &format!("matches {matching} of the schemas in oneOf"));
        }
    }

    fn object(&mut self, owner: &'a str, schema: &'a Value, fields: &Map<String, Value>, at: &str) {
        let mut known = Object::default();
        self.collect(owner, schema, &mut known);
        for missing in known.required.iter().filter(|name| !fields.contains_key(**name)) {
            self.problems.push(format!("{at}.{missing}: required, and missing"));
        }
        for (name, value) in fields {
            let place = format!("{at}.{name}");
            if let Some((owner, schema)) = known.properties.get(name.as_str()) {
                if !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty()) {
                    self.seen.insert(format!("{owner}.{name}"));
                }
                self.value(owner, schema, value, &place);
            } else if let Some((schema, names)) = known.others {
                if let Some(names) = names {
                    self.value(owner, names, &Value::from(name.as_str()), &place);
                }
                self.value(owner, schema, value, &place);
            } else {
                self.problems.push(format!("{place}: sent, and not in the schema of {owner}"));
            }
        }
    }

    /// Adds the properties of this schema to `known`.
    fn collect(&self, owner: &'a str, schema: &'a Value, known: &mut Object<'a>) {
        let keywords = object(schema);
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            return self.collect(component(reference), resolve(self.document, reference), known);
        }
        list(keywords, "allOf").for_each(|part| self.collect(owner, part, known));
        let properties = keywords.get("properties").and_then(Value::as_object).into_iter().flatten();
        known.properties.extend(properties.map(|(name, schema)| (name.as_str(), (owner, schema))));
        known.required.extend(list(keywords, "required").filter_map(Value::as_str));
        if let Some(others) = keywords.get("additionalProperties").filter(|others| others.is_object()) {
            known.others = Some((others, keywords.get("propertyNames")));
        }
    }

    fn keyword(&mut self, owner: &'a str, keyword: &str, limit: &'a Value, value: &Value, at: &str) {
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{keyword}: {value} is no number"));
        let is_met = match (keyword, value) {
            ("type", _) => match limit {
                Value::Array(types) => types.iter().any(|name| has_type(value, name)),
                name => has_type(value, name),
            },
            ("enum", _) => limit.as_array().is_some_and(|values| values.contains(value)),
            ("format", Value::String(text)) => match limit.as_str() {
                Some("uuid") => Uuid::parse_str(text).is_ok(),
                Some("date-time") => text.parse::<Timestamp>().is_ok(),
                // `type` finds that it is not a number.
                Some("int32" | "int64" | "double") => true,
                _ => panic!("the format {limit} is not known to this test"),
            },
            // Numbers have the range of their type.
            ("format", _) => true,
            ("minimum", Value::Number(_)) => number(value) >= number(limit),
            ("maximum", Value::Number(_)) => number(value) <= number(limit),
            ("minLength", Value::String(text)) => text.chars().count() as f64 >= number(limit),
            ("maxLength", Value::String(text)) => text.chars().count() as f64 <= number(limit),
            ("minItems", Value::Array(items)) => items.len() as f64 >= number(limit),
            ("maxItems", Value::Array(items)) => items.len() as f64 <= number(limit),
            ("items", Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(owner, limit, item, &format!("{at}[{index}]"));
                }
                true
            }
            // Of another type: `type` decides whether that is allowed.
            ("minimum" | "maximum" | "minLength" | "maxLength" | "minItems" | "maxItems" | "items", _) => true,
            _ => panic!("the keyword {keyword} is not known to this test"),
        };
        if !is_met {
            self.problem(at, value, &format!("expected {keyword} {limit}"));
        }
    }

    fn problem(&mut self, at: &str, value: &Value, what: &str) {
        self.problems.push(format!("{at}: {what}, got {value}"));
    }
}

fn is_type(keywords: &Map<String, Value>, name: &str) -> bool {
    match keywords.get("type") {
        Some(Value::Array(types)) => types.iter().any(|kind| kind == name),
        kind => kind.is_some_and(|kind| kind == name),
    }
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => panic!("the type {name} is not known to this test"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schemas() -> Schemas {
        let id = json!({"type": "string", "format": "uuid"});
        let base =
            json!({"type": "object", "required": ["id"], "properties": {"id": {"$ref": "#/components/schemas/Id"}}});
        let more = json!({"type": "object", "properties": {
            "at": {"type": ["string", "null"], "format": "date-time"},
            "state": {"oneOf": [{"type": "string", "enum": ["on", "off"]}, {"type": "null"}]},
            "list": {"type": "array", "maxItems": 2, "items": {"type": "integer", "minimum": 0}},
            "any": {"description": "anything"},
            "counts": {"type": "object", "propertyNames": {"type": "string", "enum": ["a"]},
                "additionalProperties": {"type": "integer"}},
        }});
        let whole = json!({"allOf": [{"$ref": "#/components/schemas/Base"}, more]});
        Schemas::new(json!({"components": {"schemas": {"Id": id, "Base": base, "Whole": whole}}}))
    }

    fn problems(value: Value) -> Vec<String> {
        schemas().check(&json!({"$ref": "#/components/schemas/Whole"}), &value)
    }

    const ID: &str = "0198c0de-0000-7000-8000-000000000000";

    #[test]
    fn what_matches_has_no_problem_and_is_seen() {
        let mut schemas = schemas();
        let schema = json!({"$ref": "#/components/schemas/Whole"});
        let full = json!({"id": ID, "at": "2030-01-31T09:00:00Z", "state": "on", "list": [1, 2], "any": {"x": []},
            "counts": {"a": 1}});
        assert_eq!(schemas.check(&schema, &full), [""; 0]);
        assert_eq!(schemas.seen, schemas.properties(&schema));
        assert_eq!(problems(json!({"id": ID, "at": null, "state": null, "any": null})), [""; 0]);
    }

    #[test]
    fn whatever_differs_is_a_problem() {
        for (wrong, message) in [
            (json!({}), ".id: required"),
            (json!({"id": ID, "new": 1}), ".new: sent, and not in the schema"),
            (json!({"id": "1"}), ".id: expected format"),
            (json!({"id": null}), ".id: expected type"),
            (json!({"id": ID, "at": "noon"}), ".at: expected format"),
            (json!({"id": ID, "at": 7}), ".at: expected type"),
            (json!({"id": ID, "state": "broken"}), ".state: matches 0"),
            (json!({"id": ID, "list": [1, 2, 3]}), ".list: expected maxItems"),
            (json!({"id": ID, "list": [1, -2]}), ".list[1]: expected minimum"),
            (json!({"id": ID, "list": [1.5]}), ".list[0]: expected type"),
            (json!({"id": ID, "list": null}), ".list: expected type"),
            (json!({"id": ID, "counts": {"a": "1"}}), ".counts.a: expected type"),
            (json!({"id": ID, "counts": {"b": 1}}), ".counts.b: expected enum"),
            (json!([]), ": expected an object"),
        ] {
            let problems = problems(wrong.clone());
            assert!(problems.iter().any(|problem| problem.starts_with(message)), "{wrong}: {problems:?}");
        }
    }
}
