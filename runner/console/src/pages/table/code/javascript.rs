//! A request as JavaScript with the AWS SDK v3.

use model::{AttributeValue, json};

use crate::pages::table::request::{Operation, Request};

/// Returns the JavaScript module of a request.
pub(super) fn code(request: &Request) -> String {
    let command = match request.operation {
        Operation::Query => "QueryCommand",
        Operation::Scan => "ScanCommand",
    };
    let mut out = format!(
        "import {{ DynamoDBClient, {command} }} from \"@aws-sdk/client-dynamodb\";\n\n\
         const client = new DynamoDBClient();\nconst page = await client.send(new {command}({{\n"
    );
    let mut member = |name: &str, value: &str| out.push_str(&format!("  {name}: {value},\n"));
    member("TableName", &quoted(&request.table));
    let texts = [
        ("IndexName", &request.index),
        ("KeyConditionExpression", &request.key_condition),
        ("FilterExpression", &request.filter),
        ("ProjectionExpression", &request.projection),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            member(name, &quoted(text));
        }
    }
    if !request.placeholders.names.is_empty() {
        let names = request.placeholders.names.iter().map(|(name, text)| (name, quoted(text)));
        member("ExpressionAttributeNames", &object(names));
    }
    if !request.placeholders.values.is_empty() {
        let values = request.placeholders.values.iter().map(|(name, value)| (name, literal(value)));
        member("ExpressionAttributeValues", &object(values));
    }
    member("Limit", &request.limit.to_string());
    if request.backward {
        member("ScanIndexForward", "false");
    }
    if request.consistent {
        member("ConsistentRead", "true");
    }
    if let Some(start) = &request.start {
        let members = start.iter().map(|(name, value)| (name, literal(value)));
        member("ExclusiveStartKey", &object(members));
    }
    member("ReturnConsumedCapacity", "\"INDEXES\"");
    out.push_str("}));\nfor (const item of page.Items) {\n  console.log(item);\n}\n");
    out
}

/// Returns an object literal. The name `__proto__` is written in brackets, because otherwise it
/// would set the prototype.
fn object<'n>(members: impl Iterator<Item = (&'n String, String)>) -> String {
    let member = |(name, text): (&'n String, String)| match name.as_str() {
        "__proto__" => format!("[{}]: {text}", quoted(name)),
        name => format!("{}: {text}", quoted(name)),
    };
    format!("{{ {} }}", members.map(member).collect::<Vec<_>>().join(", "))
}

/// Quotes a string. Every JSON string literal is also a JavaScript string literal.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    json::write_string(&mut out, text);
    out
}

/// Returns the literal of an operand or a key value.
fn literal(value: &AttributeValue) -> String {
    match value {
        AttributeValue::B(bytes) => {
            let bytes: Vec<String> = bytes.iter().map(ToString::to_string).collect();
            format!("{{ B: Uint8Array.of({}) }}", bytes.join(", "))
        }
        AttributeValue::Bool(flag) => format!("{{ BOOL: {flag} }}"),
        AttributeValue::Null => "{ NULL: true }".to_owned(),
        AttributeValue::N(number) => format!("{{ N: \"{number}\" }}"),
        AttributeValue::S(text) => format!("{{ S: {} }}", quoted(text)),
        // Operands and keys have none of the remaining types. DynamoDB JSON would be valid for them
        // too.
        other => {
            let mut out = String::new();
            json::write_attribute_value(&mut out, other);
            out
        }
    }
}
