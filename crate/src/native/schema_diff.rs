//! The differences between two schemas.

use crate::schema::{Field, Kind};

/// The differences between the stored schema and the expected one, by field.
pub(super) fn difference(stored: &Kind, expected: &Kind) -> Vec<String> {
    let (Kind::Struct { fields: stored_fields, .. }, Kind::Struct { fields: expected_fields, .. }) =
        (stored, expected)
    else {
        return vec![format!("it holds {}, not {}", stored.layout(), expected.layout())];
    };
    let find = |fields: &[Field], name: &str| fields.iter().position(|one| one.name == name);
    let mut description = Vec::new();
    for field in stored_fields {
        match find(expected_fields, &field.name).map(|at| &expected_fields[at].kind) {
            None => description.push(format!("{:?} is unexpected", field.name)),
            Some(kind) if kind.layout() != field.kind.layout() => {
                let (was, is) = (field.kind.layout(), kind.layout());
                description.push(format!("{:?} is {was}, not {is}", field.name));
            }
            Some(_) => {}
        }
    }
    let new = expected_fields.iter().filter(|field| find(stored_fields, &field.name).is_none());
    description.extend(new.map(|field| format!("{:?} is missing", field.name)));
    if description.is_empty() {
        description.push("its fields are in another order".to_string());
    }
    description
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(fields: &[(&str, &str)]) -> Kind {
        let fields: Vec<_> =
            fields.iter().map(|(name, kind)| json!([name, { "kind": kind }])).collect();
        Kind::from_json(&json!({ "kind": "struct", "name": "A", "fields": fields })).unwrap()
    }

    #[test]
    fn schema_diff_names_every_differing_field() {
        let stored = schema(&[("a", "u8"), ("b", "u16"), ("c", "str")]);
        let expected = schema(&[("a", "u8"), ("b", "u32"), ("d", "u53")]);
        let description = ["\"b\" is u16, not u32", "\"c\" is unexpected", "\"d\" is missing"];
        assert_eq!(difference(&stored, &expected), description);
        let turned = schema(&[("b", "u16"), ("a", "u8"), ("c", "str")]);
        assert_eq!(difference(&stored, &turned), ["its fields are in another order"]);
        let text = difference(&Kind::Str, &expected);
        assert_eq!(text, ["it holds &str, not {a:u8,b:u32,d:u64}"]);
    }
}
