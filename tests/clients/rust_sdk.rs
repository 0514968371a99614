//! A test with the AWS SDK for Rust: waiters, paginators, typed errors, transactions with
//! cancellation reasons, statements. `tests/clients/run` runs this test.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that ends at what is not as expected, and tells what was"
)]

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::client::Waiters;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, ConditionCheck, GlobalSecondaryIndex,
    KeySchemaElement, KeyType, Projection, ProjectionType, Put, PutRequest, ReturnValue,
    ScalarAttributeType, TransactWriteItem, WriteRequest,
};

type Outcome = Result<(), Box<dyn Error>>;

const TABLE: &str = "rust-sdk";

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn n(number: usize) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

#[tokio::main]
async fn main() -> Outcome {
    let config = aws_config::from_env().http_client(client::https::client()).load().await;
    let client = Client::new(&config);
    create(&client).await?;
    write(&client).await?;
    read_pages(&client).await?;
    meet_errors(&client).await?;
    state(&client).await?;
    client.delete_table().table_name(TABLE).send().await?;
    let gone = client.wait_until_table_not_exists().table_name(TABLE);
    gone.wait(Duration::from_secs(20)).await?;
    println!("rust sdk: waiters, paginators, errors, transactions and statements agree");
    Ok(())
}

/// Creates a table with a global index whose sort key has two attributes.
async fn create(client: &Client) -> Outcome {
    let attribute = |name: &str, kind| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build()
    };
    let key =
        |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    let projection = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    let index = GlobalSecondaryIndex::builder()
        .index_name("by-state")
        .key_schema(key("state", KeyType::Hash)?)
        .key_schema(key("pk", KeyType::Range)?)
        .key_schema(key("sk", KeyType::Range)?)
        .projection(projection)
        .build()?;
    client
        .create_table()
        .table_name(TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute("pk", ScalarAttributeType::S)?)
        .attribute_definitions(attribute("sk", ScalarAttributeType::N)?)
        .attribute_definitions(attribute("state", ScalarAttributeType::S)?)
        .key_schema(key("pk", KeyType::Hash)?)
        .key_schema(key("sk", KeyType::Range)?)
        .global_secondary_indexes(index)
        .send()
        .await?;
    let made = client.wait_until_table_exists().table_name(TABLE);
    made.wait(Duration::from_secs(20)).await?;
    Ok(())
}

fn item(number: usize) -> HashMap<String, AttributeValue> {
    let state = if number.is_multiple_of(5) { "closed" } else { "open" };
    HashMap::from([
        ("pk".to_owned(), s(&format!("p{}", number % 2))),
        ("sk".to_owned(), n(number)),
        ("state".to_owned(), s(state)),
        ("blob".to_owned(), AttributeValue::B(Blob::new([0, 255, 7]))),
        ("list".to_owned(), AttributeValue::L(vec![n(1), AttributeValue::Null(true)])),
    ])
}

async fn write(client: &Client) -> Outcome {
    for start in (0..100).step_by(25) {
        let mut writes = Vec::new();
        for number in start..start + 25 {
            let put = PutRequest::builder().set_item(Some(item(number))).build()?;
            writes.push(WriteRequest::builder().put_request(put).build());
        }
        let answer = client.batch_write_item().request_items(TABLE, writes).send().await?;
        assert!(answer.unprocessed_items().is_none_or(HashMap::is_empty));
    }
    Ok(())
}

async fn read_pages(client: &Client) -> Outcome {
    let found = client
        .query()
        .table_name(TABLE)
        .key_condition_expression("pk = :p AND sk >= :n")
        .expression_attribute_values(":p", s("p1"))
        .expression_attribute_values(":n", n(11))
        .limit(7)
        .into_paginator()
        .items()
        .send()
        .collect::<Result<Vec<_>, _>>()
        .await?;
    let expected: Vec<_> = (11..100).filter(|number| number % 2 == 1).map(item).collect();
    assert_eq!(found, expected);
    let scan = client.scan().table_name(TABLE).limit(9).into_paginator().items().send();
    assert_eq!(scan.collect::<Result<Vec<_>, _>>().await?.len(), 100);
    let of_index = client
        .query()
        .table_name(TABLE)
        .index_name("by-state")
        .key_condition_expression("#s = :s AND pk = :p AND sk < :n")
        .expression_attribute_names("#s", "state")
        .expression_attribute_values(":s", s("closed"))
        .expression_attribute_values(":p", s("p0"))
        .expression_attribute_values(":n", n(40))
        .send()
        .await?;
    let numbers: Vec<_> = of_index.items().iter().filter_map(|item| item.get("sk")).collect();
    assert_eq!(numbers, [&n(0), &n(10), &n(20), &n(30)]);
    Ok(())
}

async fn meet_errors(client: &Client) -> Outcome {
    let absent = client.describe_table().table_name("absent").send().await;
    assert!(absent.unwrap_err().into_service_error().is_resource_not_found_exception());
    let refused = client
        .put_item()
        .table_name(TABLE)
        .set_item(Some(item(1)))
        .condition_expression("attribute_not_exists(pk)")
        .send()
        .await;
    assert!(refused.unwrap_err().into_service_error().is_conditional_check_failed_exception());
    let put = Put::builder().table_name(TABLE).set_item(Some(item(100))).build()?;
    let check = ConditionCheck::builder()
        .table_name(TABLE)
        .key("pk", s("p1"))
        .key("sk", n(1))
        .condition_expression("attribute_not_exists(pk)")
        .build()?;
    let cancelled = client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().put(put).build())
        .transact_items(TransactWriteItem::builder().condition_check(check).build())
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = cancelled else {
        return Err(format!("another error: {cancelled}").into());
    };
    let reasons = cancelled.cancellation_reasons();
    let codes: Vec<_> = reasons.iter().filter_map(|reason| reason.code()).collect();
    assert_eq!(codes, ["None", "ConditionalCheckFailed"]);
    Ok(())
}

async fn state(client: &Client) -> Outcome {
    let updated = client
        .update_item()
        .table_name(TABLE)
        .key("pk", s("p0"))
        .key("sk", n(2))
        .update_expression("ADD tally :n")
        .expression_attribute_values(":n", n(42))
        .return_values(ReturnValue::UpdatedNew)
        .send()
        .await?;
    assert_eq!(updated.attributes().and_then(|new| new.get("tally")), Some(&n(42)));
    let found = client
        .execute_statement()
        .statement("SELECT tally FROM \"rust-sdk\" WHERE pk = ? AND sk = ?")
        .parameters(s("p0"))
        .parameters(n(2))
        .consistent_read(true)
        .send()
        .await?;
    assert_eq!(found.items(), [HashMap::from([("tally".to_owned(), n(42))])]);
    let twice = client
        .execute_statement()
        .statement("INSERT INTO \"rust-sdk\" VALUE {'pk': 'p0', 'sk': 2}")
        .send()
        .await;
    assert!(twice.unwrap_err().into_service_error().is_duplicate_item_exception());
    Ok(())
}
