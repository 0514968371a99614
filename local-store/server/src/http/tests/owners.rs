//! Tests of separate tables for each owner: an account and Region of signed requests.
//!
//! Goal: owners do not see each other's tables, and responses have the owner's account and Region. The store
//! in these tests accepts any signature; `access` tests signatures.

use serde_json::Value;

use super::{Answer, Server, TABLE};
use crate::access::AccessKeys;
use crate::http::Access;

/// An access key and a Region.
type Signer = (&'static str, &'static str);

const FIRST: Signer = ("111122223333", "eu-west-1");
/// The account of [`FIRST`] in another Region.
const SECOND: Signer = ("111122223333", "us-east-1");
/// A key without an account, which uses the account of the store.
const THIRD: Signer = ("anything", "eu-west-1");

async fn start() -> Server {
    Server::start_with(Access { separate_tables: true, ..Access::default() }).await
}

impl Server {
    async fn call_as(&self, (key, region): Signer, operation: &str, body: &str) -> Answer {
        let api = if operation == "ListStreams" { "DynamoDBStreams" } else { "DynamoDB" };
        let head = format!(
            "POST / HTTP/1.1\r\nX-Amz-Target: {api}_20120810.{operation}\r\nX-Amz-Date: 20261118T110640Z\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential={key}/20261118/{region}/dynamodb/aws4_request, SignedHeaders=host, Signature=00"
        );
        self.send(&head, body).await
    }

    async fn succeed_as(&self, signer: Signer, operation: &str, body: &str) -> Value {
        let answer = self.call_as(signer, operation, body).await;
        assert_eq!(answer.status, 200, "{operation} as {signer:?}: {answer:?}");
        answer.json()
    }

    async fn fail_as(&self, signer: Signer, operation: &str, body: &str) -> String {
        let answer = self.call_as(signer, operation, body).await;
        assert_eq!(answer.status, 400, "{operation} as {signer:?}: {answer:?}");
        answer.text().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_have_tables_of_the_same_name() {
    let server = start().await;
    assert_eq!(server.call("CreateTable", TABLE).await.status, 200);
    for (signer, account) in
        [(FIRST, "111122223333"), (SECOND, "111122223333"), (THIRD, "000000000000")]
    {
        assert_eq!(
            server.succeed_as(signer, "ListTables", "{}").await["TableNames"],
            Value::Array(Vec::new())
        );
        let made = server.succeed_as(signer, "CreateTable", TABLE).await;
        let arn = format!("arn:aws:dynamodb:{}:{account}:table/votes", signer.1);
        assert_eq!(made["TableDescription"]["TableArn"], arn.as_str());
        assert_eq!(made["TableDescription"]["TableName"], "votes");
        let again = server.fail_as(signer, "CreateTable", TABLE).await;
        assert!(again.contains("Table already exists: votes"), "{again}");
        let put = format!(
            r#"{{"TableName":"{arn}","Item":{{"pk":{{"S":"a"}},"of":{{"S":"{}"}}}},"ReturnConsumedCapacity":"TOTAL"}}"#,
            signer.0
        );
        let written = server.succeed_as(signer, "PutItem", &put).await;
        assert_eq!(written["ConsumedCapacity"]["TableName"], arn.as_str());
    }
    let get = r#"{"TableName":"votes","Key":{"pk":{"S":"a"}},"ConsistentRead":true}"#;
    for signer in [FIRST, SECOND, THIRD] {
        let item = &server.succeed_as(signer, "GetItem", get).await["Item"];
        assert_eq!(item["of"]["S"], signer.0);
        assert_eq!(server.succeed_as(signer, "ListTables", "{}").await["TableNames"][0], "votes");
    }
    assert_eq!(server.call("GetItem", get).await.text(), "{}", "the store's own table is empty");

    server.succeed_as(FIRST, "DeleteTable", r#"{"TableName":"votes"}"#).await;
    assert!(server.fail_as(FIRST, "GetItem", get).await.contains("ResourceNotFoundException"));
    assert_eq!(server.succeed_as(SECOND, "GetItem", get).await["Item"]["pk"]["S"], "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_owner_reaches_the_tables_of_another() {
    let server = start().await;
    let stream = r#","StreamSpecification":{"StreamEnabled":true,"StreamViewType":"KEYS_ONLY"}}"#;
    let table = format!("{}{stream}", TABLE.trim_end().strip_suffix('}').unwrap());
    let made = server.succeed_as(FIRST, "CreateTable", &table).await;
    let arn = made["TableDescription"]["TableArn"].as_str().unwrap();
    for (name, refusal) in [(arn, "Invalid AWS region in"), ("votes", "ResourceNotFound")] {
        let get = format!(r#"{{"TableName":"{name}","Key":{{"pk":{{"S":"a"}}}}}}"#);
        assert!(server.fail_as(SECOND, "GetItem", &get).await.contains(refusal), "{name}");
        assert!(server.call("GetItem", &get).await.text().contains(refusal), "{name}");
    }
    let get = format!(r#"{{"TableName":"{arn}","Key":{{"pk":{{"S":"a"}}}}}}"#);
    assert!(server.fail_as(THIRD, "GetItem", &get).await.contains("Access is denied"));
    let whole = "111122223333/eu-west-1/votes";
    let select = format!(r#"{{"Statement":"SELECT * FROM \"{whole}\""}}"#);
    assert_eq!(server.call("ExecuteStatement", &select).await.status, 400);
    assert_eq!(server.send(&format!("GET /_weir/streams/{whole} HTTP/1.1"), "").await.status, 404);
    assert_eq!(
        server.succeed_as(FIRST, "ListStreams", "{}").await["Streams"][0]["TableName"],
        "votes"
    );
    for other in [SECOND, THIRD] {
        let none = Value::Array(Vec::new());
        assert_eq!(server.succeed_as(other, "ListStreams", "{}").await["Streams"], none);
    }
    assert!(server.store.find_table("votes").is_none(), "the store itself has no such table");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_one_owner_is_invalid_for_another() {
    let server = start().await;
    for (signer, key) in [(FIRST, "a"), (SECOND, "b")] {
        server.succeed_as(signer, "CreateTable", TABLE).await;
        let write = format!(
            r#"{{"ClientRequestToken":"once","TransactItems":[{{"Put":{{"TableName":"votes","Item":{{"pk":{{"S":"{key}"}}}}}}}}]}}"#
        );
        server.succeed_as(signer, "TransactWriteItems", &write).await;
        let get = format!(r#"{{"TableName":"votes","Key":{{"pk":{{"S":"{key}"}}}}}}"#);
        assert_eq!(server.succeed_as(signer, "GetItem", &get).await["Item"]["pk"]["S"], key);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_access_key_belongs_to_the_account_in_its_file() {
    let text =
        "[a]\naws_access_key_id=AKIA1\naws_secret_access_key=secret\naws_account_id=444455556666\n";
    let keys = AccessKeys::parse(text).unwrap();
    for (key, region, expected) in [
        ("AKIA1", "eu-west-1", Ok(Some("444455556666"))),
        ("111122223333", "eu-west-1", Ok(Some("111122223333"))),
        ("AKIA2", "eu-west-1", Ok(None)),
        ("AKIA1", "Europe", Err(())),
        ("AKIA1", "", Err(())),
    ] {
        let request = http::Request::builder()
            .header("x-amz-date", "20261118T110640Z")
            .header("authorization", format!("AWS4-HMAC-SHA256 Credential={key}/20261118/{region}/dynamodb/aws4_request, SignedHeaders=host, Signature=00"));
        let (head, ()) = request.body(()).unwrap().into_parts();
        let found = crate::access::requester(Some(&keys), &head).map_err(drop);
        let account = found.map(|found| found.unwrap().account);
        assert_eq!(
            account.as_ref().map(Option::as_deref),
            expected.as_ref().copied(),
            "{key} {region}"
        );
    }
}
