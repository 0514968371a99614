//! Tests of statements that read several item collections in pages.

use super::*;

/// Returns all results of a statement, read in pages of the given size.
async fn pages_of(store: &Store, statement: &str, limit: usize) -> Vec<String> {
    let (mut found, mut token) = (Vec::new(), None);
    // More than 100 pages would be a bug.
    for _ in 0..100 {
        let next = token.map_or_else(String::new, |token| format!(r#","NextToken":{token}"#));
        let body = format!(r#"{{"Statement":"{statement}","Limit":{limit}{next}}}"#);
        let page = succeed(store, "ExecuteStatement", &body).await;
        let items = page["Items"].as_array().unwrap();
        assert!(items.len() <= limit);
        found.extend(items.iter().map(|item| {
            format!("{}{}", item["pk"]["S"].as_str().unwrap(), item["sk"]["N"].as_str().unwrap())
        }));
        match &page["NextToken"] {
            Value::Null => return found,
            next => token = Some(next.clone()),
        }
    }
    panic!("{statement} does not end");
}

/// Goal: pages over several collections return each item once, in the requested key order, for every
/// page size. This also applies if several ranges select items of one collection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_go_over_several_collections() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path()).await;
    let create = r#"{"TableName":"parts","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"},{"AttributeName":"sk","AttributeType":"N"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"},{"AttributeName":"sk","KeyType":"RANGE"}]}"#;
    succeed(&store, "CreateTable", create).await;
    for pk in ["a", "b", "c", "d"] {
        for sk in 1..=3 {
            let item = format!(r#"{{"pk":{{"S":"{pk}"}},"sk":{{"N":"{sk}"}}}}"#);
            let body = format!(r#"{{"TableName":"parts","Item":{item}}}"#);
            succeed(&store, "PutItem", &body).await;
        }
    }
    for (condition, expected) in [
        ("pk IN ['c','a','x','b'] ORDER BY pk, sk", "a1 a2 a3 b1 b2 b3 c1 c2 c3"),
        ("pk IN ['c','a'] ORDER BY pk DESC, sk", "c1 c2 c3 a1 a2 a3"),
        ("pk IN ['c','a'] ORDER BY pk", "a3 a2 a1 c3 c2 c1"),
        ("pk IN ['c','a'] AND sk > 1", "a2 a3 c2 c3"),
        ("pk IN ['c','a'] AND sk IN [1, 3] ORDER BY pk, sk DESC", "a3 a1 c3 c1"),
        ("pk='b' AND sk=2 OR pk='a' AND sk=3 OR pk='b' AND sk=1", "a3 b1 b2"),
        ("pk='a' AND NOT sk=1 OR pk='a' AND sk=2", "a2 a3"),
        ("pk IN ['x','y']", ""),
    ] {
        let statement = format!("SELECT * FROM parts WHERE {condition}");
        for limit in 1..=10 {
            let found = pages_of(&store, &statement, limit).await;
            assert_eq!(found.join(" "), expected, "{condition} by {limit}");
        }
    }
}
