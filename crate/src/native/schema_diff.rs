//! The differences between two schemas.

use crate::schema::{Field, Kind};

/// The differences between the stored schema and the expected one, by field.
pub(super) fn difference(stored: &Kind, expected: &Kind) -> Vec<String> {
    let (Kind::Struct { fields: there, .. }, Kind::Struct { fields: here, .. }) =
        (stored, expected)
    else {
        return vec![format!("it holds {}, not {}", stored.layout(), expected.layout())];
    };
    let find = |fields: &[Field], name: &str| fields.iter().position(|one| one.name == name);
    let mut told = Vec::new();
    for field in there {
        match find(here, &field.name).map(|at| &here[at].kind) {
            None => told.push(format!("{:?} is unexpected", field.name)),
            Some(kind) if kind.layout() != field.kind.layout() => {
                let (was, is) = (field.kind.layout(), kind.layout());
                told.push(format!("{:?} is {was}, not {is}", field.name));
            }
            Some(_) => {}
        }
    }
    let new = here.iter().filter(|field| find(there, &field.name).is_none());
    told.extend(new.map(|field| format!("{:?} is missing", field.name)));
    if told.is_empty() {
        told.push("its fields are in another order".to_string());
    }
    told
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
        let told = ["\"b\" is u16, not u32", "\"c\" is unexpected", "\"d\" is missing"];
        assert_eq!(difference(&stored, &expected), told);
        let turned = schema(&[("b", "u16"), ("a", "u8"), ("c", "str")]);
        assert_eq!(difference(&stored, &turned), ["its fields are in another order"]);
        let text = difference(&Kind::Str, &expected);
        assert_eq!(text, ["it holds &str, not {a:u8,b:u32,d:u64}"]);
    }
}
