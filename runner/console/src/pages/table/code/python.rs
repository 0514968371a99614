//! A request as Python with boto3.

use model::{AttributeValue, json};

use crate::pages::table::request::{Operation, Request};

/// Returns the Python program of a request.
pub(super) fn code(request: &Request) -> String {
    let verb = match request.operation {
        Operation::Query => "query",
        Operation::Scan => "scan",
    };
    let mut out =
        format!("import boto3\n\nclient = boto3.client(\"dynamodb\")\npage = client.{verb}(\n");
    let mut argument = |name: &str, value: &str| out.push_str(&format!("    {name}={value},\n"));
    argument("TableName", &quoted(&request.table));
    let texts = [
        ("IndexName", &request.index),
        ("KeyConditionExpression", &request.key_condition),
        ("FilterExpression", &request.filter),
        ("ProjectionExpression", &request.projection),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            argument(name, &quoted(text));
        }
    }
    if !request.placeholders.names.is_empty() {
        let names = request.placeholders.names.iter().map(|(name, text)| (name, quoted(text)));
        argument("ExpressionAttributeNames", &dictionary(names));
    }
    if !request.placeholders.values.is_empty() {
        let values = request.placeholders.values.iter().map(|(name, value)| (name, literal(value)));
        argument("ExpressionAttributeValues", &dictionary(values));
    }
    argument("Limit", &request.limit.to_string());
    if request.backward {
        argument("ScanIndexForward", "False");
    }
    if request.consistent {
        argument("ConsistentRead", "True");
    }
    if let Some(start) = &request.start {
        let members = start.iter().map(|(name, value)| (name, literal(value)));
        argument("ExclusiveStartKey", &dictionary(members));
    }
    argument("ReturnConsumedCapacity", "\"INDEXES\"");
    out.push_str(")\nfor item in page[\"Items\"]:\n    print(item)\n");
    out
}

fn dictionary<'n>(members: impl Iterator<Item = (&'n String, String)>) -> String {
    let members: Vec<_> = members.map(|(name, text)| format!("{}: {text}", quoted(name))).collect();
    format!("{{{}}}", members.join(", "))
}

/// Quotes a string. The JSON escapes that `model` writes have the same meaning in Python.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    json::write_string(&mut out, text);
    out
}

/// Returns the literal of an operand or a key value.
fn literal(value: &AttributeValue) -> String {
    match value {
        AttributeValue::B(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{{\"B\": bytes.fromhex(\"{hex}\")}}")
        }
        AttributeValue::Bool(flag) => {
            format!("{{\"BOOL\": {}}}", if *flag { "True" } else { "False" })
        }
        AttributeValue::Null => "{\"NULL\": True}".to_owned(),
        AttributeValue::N(number) => format!("{{\"N\": \"{number}\"}}"),
        AttributeValue::S(text) => format!("{{\"S\": {}}}", quoted(text)),
        // Operands and keys have none of the remaining types.
        other => {
            let mut out = String::new();
            json::write_attribute_value(&mut out, other);
            out
        }
    }
}
