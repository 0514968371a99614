//! A Lambda function on a DynamoDB stream: writes a line into its log for each new person.
//!
//! It changes nothing, so a record that is delivered twice does no harm.

use lambda_runtime::{Error, LambdaEvent, service_fn, tracing};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    lambda_runtime::run(service_fn(greet)).await
}

/// Greets the person of each record of the batch; the first record that is no person is named in the
/// answer, so that Lambda delivers again from there and not the whole batch.
async fn greet(event: LambdaEvent<Value>) -> Result<Value, Error> {
    let records = event.payload["Records"].as_array().cloned().unwrap_or_default();
    for record in &records {
        let change = &record["dynamodb"];
        let Some(name) = change["NewImage"]["name"]["S"].as_str() else {
            tracing::error!("a record without a name: {record}");
            let failed = json!({"itemIdentifier": change["SequenceNumber"]});
            return Ok(json!({"batchItemFailures": [failed]}));
        };
        tracing::info!("Hello, {name}!");
    }
    Ok(json!({"batchItemFailures": []}))
}
