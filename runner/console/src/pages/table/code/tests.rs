//! Tests that requests become correct code in four languages, with strings that each language
//! quotes differently.

use super::*;
use crate::pages::table::request::tests::{films, form};

fn code(query: &str) -> Code {
    Code::of(&Request::of(&form(query), &films()).unwrap())
}

#[test]
fn a_query_is_the_same_in_every_language() {
    let code = code("pk=2013&sk=R&sk_op=begins_with&order=desc&limit=5&project=info.rating");
    assert_eq!(code.cli, include_str!("../../../../testdata/table_code/query.cli.txt"));
    assert_eq!(code.python, include_str!("../../../../testdata/table_code/query.python.txt"));
    assert_eq!(
        code.javascript,
        include_str!("../../../../testdata/table_code/query.javascript.txt")
    );
    assert_eq!(code.rust, include_str!("../../../../testdata/table_code/query.rust.txt"));
}

/// Query strings, and a part of the code that each produces, in the order of the fields of
/// [`Code`]. The first value contains quotes, a backslash, `$`, backticks, a newline and more.
const QUOTED: [(&str, [&str; 4]); 6] = [
    (
        "filter=a&filter_value=it%27s+%22q%22+%5C+%24x+%60y%60%0A%C3%A9+%3Cb%3E",
        [
            r#"'{":v0":{"S":"it'\''s \"q\" \\ $x `y`\né <b>"}}'"#,
            r#"{":v0": {"S": "it's \"q\" \\ $x `y`\né <b>"}}"#,
            r#"{ ":v0": { S: "it's \"q\" \\ $x `y`\né <b>" } }"#,
            r#"(":v0", AttributeValue::S("it's \"q\" \\ $x `y`\né <b>".to_owned()))"#,
        ],
    ),
    (
        "filter=a&filter_type=B&filter_value=AAH/",
        [
            "'{\":v0\":{\"B\":\"AAH/\"}}' \\\n    --limit 25 \\\n    --return-consumed-capacity INDEXES \\\n    --cli-binary-format base64\n",
            r#"{":v0": {"B": bytes.fromhex("0001ff")}}"#,
            r#"{ ":v0": { B: Uint8Array.of(0, 1, 255) } }"#,
            r#"(":v0", AttributeValue::B(Blob::new(vec![0, 1, 255])))"#,
        ],
    ),
    (
        "filter=a&filter_value=%E2%80%AE%01",
        [
            "'{\":v0\":{\"S\":\"\u{202e}\\u0001\"}}'",
            "{\":v0\": {\"S\": \"\u{202e}\\u0001\"}}",
            "{ \":v0\": { S: \"\u{202e}\\u0001\" } }",
            // rustc rejects characters that change the text direction.
            r#"AttributeValue::S("\u{202e}\u{1}".to_owned())"#,
        ],
    ),
    (
        "after=%7B%22__proto__%22:%7B%22S%22:%22x%22%7D%7D",
        [
            r#"--exclusive-start-key '{"__proto__":{"S":"x"}}'"#,
            r#"ExclusiveStartKey={"__proto__": {"S": "x"}}"#,
            r#"ExclusiveStartKey: { ["__proto__"]: { S: "x" } }"#,
            r#".exclusive_start_key("__proto__", AttributeValue::S("x".to_owned()))"#,
        ],
    ),
    (
        "filter=a&filter_type=BOOL&filter_value=true&consistent=1",
        [
            "--consistent-read",
            r#"{"BOOL": True}"#,
            "ConsistentRead: true",
            "AttributeValue::Bool(true)",
        ],
    ),
    (
        "filter=a&filter_type=NULL",
        [r#"{"NULL":true}"#, r#"{"NULL": True}"#, "{ NULL: true }", "AttributeValue::Null(true)"],
    ),
];

#[test]
fn every_text_is_quoted_as_its_language_does() {
    for (query, parts) in QUOTED {
        let code = code(query);
        for (text, part) in [code.cli, code.python, code.javascript, code.rust].iter().zip(parts) {
            assert!(text.contains(part), "{query}: {part}\n{text}");
        }
    }
}

#[test]
fn a_name_like_an_option_is_no_option() {
    let table = crate::table_shape::TableShape { name: "-films".to_owned(), ..films() };
    let code = Code::of(&Request::of(&form(""), &table).unwrap());
    assert!(code.cli.starts_with("aws dynamodb scan --table-name=-films \\\n"), "{}", code.cli);
}
