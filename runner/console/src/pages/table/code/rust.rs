//! A request as Rust with the AWS SDK.

use model::AttributeValue;

use crate::pages::table::request::{Operation, Request};

/// Returns the Rust program of a request.
pub(super) fn code(request: &Request) -> String {
    let verb = match request.operation {
        Operation::Query => "query",
        Operation::Scan => "scan",
    };
    let mut calls = Vec::new();
    let mut call =
        |name: &str, arguments: &str| calls.push(format!("        .{name}({arguments})\n"));
    call("table_name", &quoted(&request.table));
    let texts = [
        ("index_name", &request.index),
        ("key_condition_expression", &request.key_condition),
        ("filter_expression", &request.filter),
        ("projection_expression", &request.projection),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            call(name, &quoted(text));
        }
    }
    for (placeholder, name) in &request.placeholders.names {
        call("expression_attribute_names", &format!("{}, {}", quoted(placeholder), quoted(name)));
    }
    for (placeholder, value) in &request.placeholders.values {
        let arguments = format!("{}, {}", quoted(placeholder), literal(value));
        call("expression_attribute_values", &arguments);
    }
    call("limit", &request.limit.to_string());
    if request.backward {
        call("scan_index_forward", "false");
    }
    if request.consistent {
        call("consistent_read", "true");
    }
    for (name, value) in request.start.iter().flatten() {
        call("exclusive_start_key", &format!("{}, {}", quoted(name), literal(value)));
    }
    call("return_consumed_capacity", "ReturnConsumedCapacity::Indexes");
    let calls = calls.concat();
    let types = match (calls.contains("AttributeValue::"), calls.contains("Blob::")) {
        (false, _) => "use aws_sdk_dynamodb::types::ReturnConsumedCapacity;\n",
        (true, false) => "use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};\n",
        (true, true) => {
            "use aws_sdk_dynamodb::primitives::Blob;\n\
             use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};\n"
        }
    };
    format!(
        "use aws_config::BehaviorVersion;\nuse aws_sdk_dynamodb::Client;\n{types}\n\
         #[tokio::main]\nasync fn main() -> Result<(), Box<dyn std::error::Error>> {{\n    \
         let config = aws_config::load_defaults(BehaviorVersion::latest()).await;\n    \
         let client = Client::new(&config);\n    let page = client\n        .{verb}()\n{calls}        \
         .send()\n        .await?;\n    for item in page.items() {{\n        \
         println!(\"{{item:?}}\");\n    }}\n    Ok(())\n}}\n"
    )
}

/// Quotes a string. The `Debug` output of a string is a valid Rust literal.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// Returns the expression of an operand or a key value.
fn literal(value: &AttributeValue) -> String {
    match value {
        AttributeValue::S(text) => format!("AttributeValue::S({}.to_owned())", quoted(text)),
        AttributeValue::N(number) => format!("AttributeValue::N(\"{number}\".to_owned())"),
        AttributeValue::B(bytes) => {
            let bytes: Vec<String> = bytes.iter().map(ToString::to_string).collect();
            format!("AttributeValue::B(Blob::new(vec![{}]))", bytes.join(", "))
        }
        AttributeValue::Bool(flag) => format!("AttributeValue::Bool({flag})"),
        // Operands and keys have none of the remaining types.
        _ => "AttributeValue::Null(true)".to_owned(),
    }
}
