//! Tests of forms, with the request or the problem that results from each.

use model::KeyAttributeType;

use super::*;
use crate::query::Query;
use crate::table_shape::IndexShape;

/// Returns a table with two indexes. One has a partition key of two attributes.
pub(in crate::pages::table) fn films() -> TableShape {
    let key = |name: &str, attribute_type| KeyAttribute { name: name.to_owned(), attribute_type };
    let number = KeyAttributeType::N;
    let index = |name: &str, keys| IndexShape {
        name: name.to_owned(),
        kind: "global",
        status: "ACTIVE".to_owned(),
        keys,
        projection: "ALL".to_owned(),
    };
    let text = KeyAttributeType::S;
    TableShape {
        name: "films".to_owned(),
        status: "ACTIVE".to_owned(),
        keys: Keys { partition: vec![key("year", number)], sort: vec![key("ti'tle", text)] },
        indexes: vec![
            index(
                "by-hash",
                Keys { partition: vec![key("hash", KeyAttributeType::B)], sort: vec![] },
            ),
            index(
                "by-two",
                Keys {
                    partition: vec![key("a", text), key("b", number)],
                    sort: vec![key("c", text)],
                },
            ),
        ],
        ..TableShape::default()
    }
}

/// Returns the form of a query string. In the string, `'` stands for characters that a browser
/// encodes.
pub(in crate::pages::table) fn form(query: &str) -> Form {
    Form::of(&Query::parse(query).unwrap())
}

/// Returns the body of the request of a query string, without the parts that are common to all
/// requests.
fn body(query: &str) -> String {
    match Request::of(&form(query), &films()) {
        Err(problem) => format!("{}: {} -> {}", problem.place, problem.what, problem.instead),
        Ok(request) => {
            let body = request.body();
            let operation = format!("{:?}", request.operation);
            let body = body.strip_prefix("{\"TableName\":\"films\"").unwrap();
            let body = body.strip_suffix(",\"ReturnConsumedCapacity\":\"INDEXES\"}").unwrap();
            operation + body
        }
    }
}

#[test]
fn a_form_is_one_request() {
    let names = r##","ExpressionAttributeNames":"##;
    let values = r#","ExpressionAttributeValues":"#;
    let year = r##"Query,"KeyConditionExpression":"#n0 = :v0"##;
    for (query, expected) in [
        ("", r#"Scan,"Limit":25"#.to_owned()),
        ("limit=100&consistent=1", r#"Scan,"Limit":100,"ConsistentRead":true"#.to_owned()),
        ("index=by-hash", r#"Scan,"IndexName":"by-hash","Limit":25"#.to_owned()),
        (
            "pk=2013",
            format!(
                r##"{year}"{names}{{"#n0":"year"}}{values}{{":v0":{{"N":"2013"}}}},"Limit":25"##
            ),
        ),
        (
            "pk=+2013.0&sk=a%22b&sk_op=begins_with&order=desc",
            format!(
                r##"{year} AND begins_with(#n1, :v1)"{names}{{"#n0":"year","#n1":"ti'tle"}}{values}{{":v0":{{"N":"2013"}},":v1":{{"S":"a\"b"}}}},"Limit":25,"ScanIndexForward":false"##
            ),
        ),
        (
            "pk=1&sk_op=between&sk=a&sk_to=b",
            format!(
                r##"{year} AND #n1 BETWEEN :v1 AND :v2"{names}{{"#n0":"year","#n1":"ti'tle"}}{values}{{":v0":{{"N":"1"}},":v1":{{"S":"a"}},":v2":{{"S":"b"}}}},"Limit":25"##
            ),
        ),
        (
            "index=by-hash&pk=AAE%3D",
            format!(
                r##"Query,"IndexName":"by-hash","KeyConditionExpression":"#n0 = :v0"{names}{{"#n0":"hash"}}{values}{{":v0":{{"B":"AAE="}}}},"Limit":25"##
            ),
        ),
        (
            "index=by-two&pk=x&pk2=2&sk=z&sk_op=%3E%3D",
            format!(
                r##"Query,"IndexName":"by-two","KeyConditionExpression":"#n0 = :v0 AND #n1 = :v1 AND #n2 >= :v2"{names}{{"#n0":"a","#n1":"b","#n2":"c"}}{values}{{":v0":{{"S":"x"}},":v1":{{"N":"2"}},":v2":{{"S":"z"}}}},"Limit":25"##
            ),
        ),
        (
            "project=year,info.%22a.b%22%5B2%5D,year.x",
            format!(
                r##"Scan,"ProjectionExpression":"#n0, #n1.#n2[2], #n0.#n3"{names}{{"#n0":"year","#n1":"info","#n2":"a.b","#n3":"x"}},"Limit":25"##
            ),
        ),
        (
            "after=%7B%22year%22:%7B%22N%22:%227%22%7D%7D",
            r#"Scan,"Limit":25,"ExclusiveStartKey":{"year":{"N":"7"}}"#.to_owned(),
        ),
    ] {
        assert_eq!(body(query), expected, "{query}");
    }
}

/// Returns the filter and the values of a query string.
fn filter_of(query: &str) -> String {
    match Request::of(&form(query), &films()) {
        Err(problem) => format!("{}: {} -> {}", problem.place, problem.what, problem.instead),
        Ok(request) => {
            let names = request.placeholders.names_json();
            format!("{} {names} {}", request.filter.unwrap(), request.placeholders.values_json())
        }
    }
}

#[test]
fn every_operator_of_a_filter_has_its_expression() {
    let name = r##"{"#n0":"<script>"}"##;
    for (query, expression, values) in [
        ("filter_value=x", "#n0 = :v0", r#"{":v0":{"S":"x"}}"#),
        ("filter_op=%3C%3E&filter_type=N&filter_value=1e2", "#n0 <> :v0", r#"{":v0":{"N":"100"}}"#),
        (
            "filter_op=%3C&filter_type=B&filter_value=AQ%3D%3D",
            "#n0 < :v0",
            r#"{":v0":{"B":"AQ=="}}"#,
        ),
        (
            "filter_op=%3D&filter_type=BOOL&filter_value=true",
            "#n0 = :v0",
            r#"{":v0":{"BOOL":true}}"#,
        ),
        ("filter_op=%3D&filter_type=NULL", "#n0 = :v0", r#"{":v0":{"NULL":true}}"#),
        ("filter_op=%3D", "#n0 = :v0", r#"{":v0":{"S":""}}"#),
        (
            "filter_op=between&filter_type=N&filter_value=1&filter_to=2",
            "#n0 BETWEEN :v0 AND :v1",
            r#"{":v0":{"N":"1"},":v1":{"N":"2"}}"#,
        ),
        (
            "filter_op=in&filter_value=a,+b",
            "#n0 IN (:v0, :v1)",
            r#"{":v0":{"S":"a"},":v1":{"S":"b"}}"#,
        ),
        (
            "filter_op=in&filter_value=%5B%22a,b%22,+1.50%5D",
            "#n0 IN (:v0, :v1)",
            r#"{":v0":{"S":"a,b"},":v1":{"S":"1.50"}}"#,
        ),
        ("filter_op=begins_with&filter_value=a", "begins_with(#n0, :v0)", r#"{":v0":{"S":"a"}}"#),
        (
            "filter_op=contains&filter_type=N&filter_value=3",
            "contains(#n0, :v0)",
            r#"{":v0":{"N":"3"}}"#,
        ),
        ("filter_op=attribute_exists", "attribute_exists(#n0)", "{}"),
        ("filter_op=attribute_not_exists", "attribute_not_exists(#n0)", "{}"),
        (
            "filter_op=attribute_type&filter_type=SS",
            "attribute_type(#n0, :v0)",
            r#"{":v0":{"S":"SS"}}"#,
        ),
        ("filter_op=size+%3E%3D&filter_value=7", "size(#n0) >= :v0", r#"{":v0":{"N":"7"}}"#),
    ] {
        let query = format!("filter=%3Cscript%3E&{query}");
        assert_eq!(filter_of(&query), format!("{expression} {name} {values}"), "{query}");
    }
}

/// Query strings, with the beginning of the problem of each.
const WRONG: [(&str, &str); 25] = [
    (
        "index=by-name",
        "Index: the table has no index `by-name` -> the table, or one of by-hash, by-two",
    ),
    (
        "pk=abc",
        "Partition key `year`: `abc` is not a number -> a number of at most 38 digits, such as 2013 or -1.5e3",
    ),
    (
        "index=by-hash&pk=A",
        "Partition key `hash`: `A` is not base64 -> base64 with its padding, such as AAEC",
    ),
    ("index=by-two&pk=x", "Partition key `b`: the value is missing -> a value of type N"),
    (
        "sk=a",
        "Sort key: the partition key has no value -> a value of the partition key, or no condition on the sort key",
    ),
    (
        "index=by-hash&pk=AQ%3D%3D&sk=x",
        "Sort key: the table or index has no sort key -> no condition on a sort key, or an index with a sort key",
    ),
    (
        "pk=1&sk=a&sk_op=%3C%3E",
        "Sort key `ti'tle`: unknown operator `<>` -> =, <, <=, >, >=, between, begins_with",
    ),
    (
        "pk=1&sk=a&sk_op=between",
        "Sort key `ti'tle`, upper bound: the value is missing -> a value of type S",
    ),
    (
        "order=desc",
        "Order: a Scan has no order -> a value of the partition key, or the order `forward`",
    ),
    ("order=up", "Order: unknown order `up` -> asc or desc"),
    ("limit=0", "Limit: `0` is not a limit -> a whole number from 1 to 100"),
    ("limit=101", "Limit: `101` is not a limit -> a whole number from 1 to 100"),
    ("limit=x", "Limit: `x` is not a limit -> a whole number from 1 to 100"),
    (
        "filter_value=1",
        "Filter: the filter has no attribute -> the name of an attribute, such as rating or info.rating",
    ),
    ("filter=a&filter_op=like", "Filter: unknown operator `like` -> "),
    (
        "filter=a&filter_type=X",
        "Filter type: unknown type `X` -> S, N, B, BOOL, NULL, M, L, SS, NS, BS",
    ),
    (
        "filter=a&filter_type=L&filter_value=1",
        "Filter value: the operator accepts no operand of type L -> the type S, N, B, BOOL or NULL",
    ),
    (
        "filter=a&filter_type=BOOL&filter_value=yes",
        "Filter value: `yes` is not a Boolean -> true or false",
    ),
    ("filter=a&filter_op=size+%3D&filter_value=x", "Filter value: `x` is not a number -> "),
    (
        "filter=a&filter_op=in&filter_value=%5B%5D",
        "Filter value: `in` has 0 values -> 1 to 100 values",
    ),
    ("filter=a&filter_op=in&filter_value=%5B1", "Filter value: not a JSON array: "),
    ("filter=a..b", "Filter: a name is missing -> "),
    ("project=a,,b", "Projection: a name is missing -> "),
    ("after=%7B", "after: not JSON: "),
    (
        "after=%7B%22a%22:%7B%22L%22:%5B%5D%7D%7D",
        "after: a key has only values of the types S, N and B -> ",
    ),
];

#[test]
fn a_wrong_field_says_what_to_write() {
    for (query, expected) in WRONG {
        let found = body(query);
        assert!(found.starts_with(expected), "{query}: {found}");
    }
    let deep = format!("filter={}", vec!["a"; 33].join("."));
    assert_eq!(body(&deep), "Filter: the path has 33 steps -> at most 32 steps");
}
