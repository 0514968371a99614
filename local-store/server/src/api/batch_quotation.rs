//! Quotes the map of a malformed batch in an error, as DynamoDB does: for `BatchGetItem` as JSON, for
//! `BatchWriteItem` as Java prints the objects.
//!
//! The callers decide which requests are quoted. The length of a quotation is limited; the limit of
//! DynamoDB is unknown.

use std::fmt::Write as _;

use model::json::{self, Json};
use model::{AttributeValue, Item};

/// The length in bytes at which a quotation is truncated. Without this limit, a response could be
/// as large as the largest request.
const BYTES_MAX: usize = 64 * 1024;

/// Returns the members as a JSON object without spaces.
pub(crate) fn json_of<'j>(members: impl Iterator<Item = (&'j str, &'j Json<'j>)>) -> String {
    let mut out = String::from("{");
    for (position, (name, value)) in members.enumerate() {
        if out.len() > BYTES_MAX {
            break;
        }
        if position > 0 {
            out.push(',');
        }
        json::write_string(&mut out, name);
        out.push(':');
        write_json(&mut out, value);
    }
    out.push('}');
    out
}

/// Writes a value. The recursion is bounded, because the parser bounds the depth of a request.
fn write_json(out: &mut String, value: &Json<'_>) {
    if out.len() > BYTES_MAX {
        return;
    }
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Json::Integer(number) => {
            let _ = write!(out, "{number}");
        }
        Json::Float(number) => {
            let _ = write!(out, "{number}");
        }
        Json::String(text) => json::write_string(out, text),
        Json::Array(members) => {
            out.push('[');
            for (position, member) in members.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_json(out, member);
            }
            out.push(']');
        }
        Json::Object(members) => {
            out.push_str(&json_of(members.iter().map(|(name, value)| (&**name, value))));
        }
        // Decoding fails only for a damaged item, and an item from the parser is never damaged.
        Json::Item(item) => {
            if let Ok(item) = item.decode() {
                json::write_item(out, &item);
            }
        }
    }
}

/// One request of a `BatchWriteItem`, in the form in which it is quoted.
pub(crate) enum QuotedRequest {
    /// A `PutRequest` with its item, if the item is valid.
    Put(Option<Item>),
    /// A `DeleteRequest` with its key, if the key is valid.
    Delete(Option<Item>),
    /// A request that is neither a valid put nor a valid delete.
    Invalid,
}

/// Returns the map as Java prints it: `{table=[WriteRequest(…), …], …}`.
pub(crate) fn writes_of<'j>(
    tables: impl Iterator<Item = (&'j str, impl Iterator<Item = QuotedRequest>)>,
) -> String {
    let mut out = String::from("{");
    for (position, (name, requests)) in tables.enumerate() {
        if position > 0 {
            out.push_str(", ");
        }
        out.push_str(name);
        out.push_str("=[");
        for (position, request) in requests.enumerate() {
            if out.len() > BYTES_MAX {
                break;
            }
            if position > 0 {
                out.push_str(", ");
            }
            write_request(&mut out, &request);
        }
        out.push(']');
    }
    out.push('}');
    out
}

fn write_request(out: &mut String, request: &QuotedRequest) {
    out.push_str("WriteRequest(putRequest=");
    match request {
        QuotedRequest::Put(item) => {
            out.push_str("PutRequest(item=");
            write_item(out, item.as_ref());
            out.push_str(", workloadProfileName=null), deleteRequest=null)");
        }
        QuotedRequest::Delete(key) => {
            out.push_str("null, deleteRequest=DeleteRequest(key=");
            write_item(out, key.as_ref());
            out.push_str("))");
        }
        QuotedRequest::Invalid => out.push_str("null, deleteRequest=null)"),
    }
}

fn write_item(out: &mut String, item: Option<&Item>) {
    let Some(item) = item else {
        return out.push_str("null");
    };
    write_list(out, ('{', '}'), item.iter(), |out, (name, value)| {
        out.push_str(name);
        out.push('=');
        write_value(out, value);
    });
}

fn write_list<T>(
    out: &mut String,
    (open, close): (char, char),
    members: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push(open);
    for (position, member) in members.enumerate() {
        if out.len() > BYTES_MAX {
            break;
        }
        if position > 0 {
            out.push_str(", ");
        }
        write(out, member);
    }
    out.push(close);
}

/// The fields of the Java class `AttributeValue`. Exactly one of them is set.
const FIELDS: [&str; 16] = [
    "s",
    "n",
    "b",
    "iNT",
    "dECIMAL",
    "dOUBLE",
    "sS",
    "nS",
    "bS",
    "iNTSET",
    "dECIMALSET",
    "dOUBLESET",
    "m",
    "l",
    "nULL",
    "bOOL",
];

fn write_value(out: &mut String, value: &AttributeValue) {
    let field = match value {
        AttributeValue::S(_) => "s",
        AttributeValue::N(_) => "n",
        AttributeValue::B(_) => "b",
        AttributeValue::Ss(_) => "sS",
        AttributeValue::Ns(_) => "nS",
        AttributeValue::Bs(_) => "bS",
        AttributeValue::M(_) => "m",
        AttributeValue::L(_) => "l",
        AttributeValue::Null => "nULL",
        AttributeValue::Bool(_) => "bOOL",
    };
    out.push_str("AttributeValue");
    write_list(out, ('(', ')'), FIELDS.into_iter(), |out, name| {
        out.push_str(name);
        out.push('=');
        if name == field { write_content(out, value) } else { out.push_str("null") }
    });
}

fn write_content(out: &mut String, value: &AttributeValue) {
    let brackets = ('[', ']');
    match value {
        AttributeValue::S(text) => out.push_str(text),
        AttributeValue::N(number) => {
            let _ = write!(out, "{number}");
        }
        AttributeValue::B(bytes) => write_buffer(out, bytes),
        AttributeValue::Ss(set) => {
            write_list(out, brackets, set.iter(), |out, text| out.push_str(text));
        }
        AttributeValue::Ns(set) => write_list(out, brackets, set.iter(), |out, number| {
            let _ = write!(out, "{number}");
        }),
        AttributeValue::Bs(set) => {
            write_list(out, brackets, set.iter(), |out, bytes| write_buffer(out, bytes));
        }
        AttributeValue::M(map) => write_list(out, ('{', '}'), map.iter(), |out, (name, value)| {
            out.push_str(name);
            out.push('=');
            write_value(out, value);
        }),
        AttributeValue::L(list) => write_list(out, brackets, list.iter(), write_value),
        AttributeValue::Null => out.push_str("true"),
        AttributeValue::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
    }
}

/// Writes a binary value as Java prints a `ByteBuffer`: its size without its contents.
fn write_buffer(out: &mut String, bytes: &[u8]) {
    let length = bytes.len();
    let _ = write!(out, "java.nio.HeapByteBuffer[pos=0 lim={length} cap={length}]");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_reads_is_its_json() {
        let text = r#"{"bad!name":{"Keys":[{"pk":{"S":"a\"b"}},null,true,1]}}"#;
        let json = json::parse_request(text.as_bytes()).unwrap();
        let members = json.as_object().unwrap().iter();
        assert_eq!(json_of(members.map(|(name, value)| (&**name, value))), text);
    }

    #[test]
    fn a_map_of_writes_is_what_java_shows() {
        let item = json::item_from_str(r#"{"n":{"L":[{"N":"5"}]},"pk":{"S":"x"}}"#).unwrap();
        let null = |field: &str, content: &str| {
            let fields = FIELDS.map(|name| {
                let content = if name == field { content } else { "null" };
                format!("{name}={content}")
            });
            format!("AttributeValue({})", fields.join(", "))
        };
        let (n, pk) = (null("l", &format!("[{}]", null("n", "5"))), null("s", "x"));
        let requests =
            [QuotedRequest::Put(Some(item)), QuotedRequest::Delete(None), QuotedRequest::Invalid];
        assert_eq!(
            writes_of([("t", requests.into_iter())].into_iter()),
            format!(
                "{{t=[WriteRequest(putRequest=PutRequest(item={{n={n}, pk={pk}}}, workloadProfileName=null), deleteRequest=null), WriteRequest(putRequest=null, deleteRequest=DeleteRequest(key=null)), WriteRequest(putRequest=null, deleteRequest=null)]}}"
            )
        );
    }

    #[test]
    fn a_quotation_ends() {
        let item = Item::new().with("pk", "x".repeat(1000));
        let requests =
            || std::iter::repeat_with(|| QuotedRequest::Put(Some(item.clone()))).take(10_000);
        assert!(writes_of([("t", requests())].into_iter()).len() < 2 * BYTES_MAX);
        let values = Json::Array(vec![Json::String("x".repeat(1000).into()); 10_000]);
        assert!(json_of([("t", &values)].into_iter()).len() < 2 * BYTES_MAX);
    }
}
