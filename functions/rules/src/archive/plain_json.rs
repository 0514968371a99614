//! Plain JSON for columns of type `json`, which SQL's JSON functions can read.
//!
//! Unlike DynamoDB JSON, it loses the types of sets and binary values. Numbers keep all their digits.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::json::{ValueView, write_string};

/// Appends a value: maps as objects, lists and sets as arrays, binary values as base64 strings.
pub(super) fn write_plain_json(out: &mut String, value: &ValueView<'_>) {
    match value {
        ValueView::S(text) => write_string(out, text),
        ValueView::N(text) => out.push_str(text),
        ValueView::B(bytes) => write_binary(out, bytes),
        ValueView::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        ValueView::Null => out.push_str("null"),
        ValueView::M(members) => {
            out.push('{');
            for (position, (name, member)) in members.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_string(out, name);
                out.push(':');
                write_plain_json(out, member);
            }
            out.push('}');
        }
        ValueView::L(members) => write_array(out, members, write_plain_json),
        ValueView::Ss(members) => {
            write_array(out, members, |out, text| write_string(out, text));
        }
        ValueView::Ns(members) => write_array(out, members, |out, number| {
            let _ = write!(out, "{number}");
        }),
        ValueView::Bs(members) => {
            write_array(out, members, |out, bytes| write_binary(out, bytes));
        }
    }
}

fn write_binary(out: &mut String, bytes: &[u8]) {
    out.push('"');
    STANDARD.encode_string(bytes, out);
    out.push('"');
}

fn write_array<T>(
    out: &mut String,
    members: impl IntoIterator<Item = T>,
    write: impl Fn(&mut String, T),
) {
    out.push('[');
    for (position, member) in members.into_iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write(out, member);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use model::json::{ItemView, item_from_str};

    use super::*;

    #[test]
    fn every_type_has_a_plain_form() {
        let digits = "9".repeat(38);
        let item = item_from_str(&format!(
            r#"{{"v":{{"M":{{"b":{{"B":"AAH/"}},"f":{{"BOOL":false}},"l":{{"L":[{{"S":"q\"\n"}},{{"NULL":true}}]}},"n":{{"N":"{digits}"}},"ss":{{"SS":["a","b"]}},"ns":{{"NS":["-1.5","2"]}},"bs":{{"BS":["AA=="]}}}}}}}}"#
        ))
        .unwrap();
        let view = ItemView::of(&item);
        let mut text = String::new();
        write_plain_json(&mut text, view.get("v").unwrap());
        assert_eq!(
            text,
            format!(
                r#"{{"b":"AAH/","bs":["AA=="],"f":false,"l":["q\"\n",null],"n":{digits},"ns":[-1.5,2],"ss":["a","b"]}}"#
            )
        );
    }
}
