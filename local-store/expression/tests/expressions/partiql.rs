//! Tests with PartiQL statements that try to overflow the stack or to exceed a limit, and with
//! random sequences of tokens.
//!
//! The server's `testdata/api` tests the execution of statements.

use expression::partiql::{Statement, parse_statement};
use model::{AttributeValue, Item, Number};
use proptest::prelude::*;

/// The stack size of the tests in bytes, which is much smaller than the stack of any thread of the
/// store.
const STACK_BYTES: usize = 1024 * 1024;

/// Applies an update to an item with a list of NULLs.
fn updated(set: &str, nulls: usize) -> Result<Item, String> {
    let text = format!("UPDATE t SET {set} WHERE pk = 'a'");
    let statement = parse_statement(&text, &[]).unwrap();
    let Statement::Update { update, .. } = statement else { panic!("{statement:?}") };
    let list = AttributeValue::L(vec![AttributeValue::Null; nulls]);
    update.apply(&Item::new().with("l", list)).map_err(|error| error.to_string())
}

/// Goal: nested calls cannot create a list that is larger than an item may be. If the size were
/// checked after the list is created, the first case would need gigabytes.
#[test]
fn lists_that_are_appended_stay_below_the_size_of_an_item() {
    let too_large = Err("Item size to update has exceeded the maximum allowed size".to_owned());
    fn tree(leaf: &str, levels: usize) -> String {
        let below = if levels == 1 { leaf.to_owned() } else { tree(leaf, levels - 1) };
        format!("list_append({below}, {below})")
    }
    let behind = |list: &str, with: &str| format!("l = list_append({list}, {with})");
    // The limit is 409,600 bytes. A list takes 3 bytes, plus 2 bytes for each NULL.
    for (set, nulls) in [
        (format!("l = {}", tree("l", 9)), 200_000),
        (format!("l = {}", tree("if_not_exists(m, l)", 7)), 200_000),
        (behind("l", "l"), 102_400),
        (format!("m = {}, l = []", tree("l", 2)), 51_200),
    ] {
        assert_eq!(updated(&set, nulls), too_large, "{nulls}");
    }
    for (set, nulls, expected) in [
        (behind("l", "l"), 102_399, 204_798),
        (format!("l = {}", tree("l", 2)), 51_199, 204_796),
        (behind("l", &tree("[]", 8)), 200_000, 200_000),
    ] {
        let item = updated(&set, nulls).unwrap();
        let Some(AttributeValue::L(list)) = item.get("l") else { panic!("{nulls}") };
        assert_eq!(list.len(), expected);
    }
    let wrong = updated("l = list_append(l, list_append(5, []))", 1);
    assert!(wrong.unwrap_err().contains("incorrect data type"));
    let items = updated("l = list_append(list_append(['a'], l), list_append(['b'], ['c']))", 1);
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let expected = vec![text("a"), AttributeValue::Null, text("b"), text("c")];
    assert_eq!(items.unwrap().get("l"), Some(&AttributeValue::L(expected)));
}

/// Returns the error message of a statement; an empty string if it has no error.
fn outcome(text: &str) -> String {
    let text = text.to_owned();
    let work = move || match parse_statement(&text, &[]) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => {
            error.to_string().replacen("Statement wasn't well formed, can't be processed: ", "", 1)
        }
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap().join().unwrap()
}

const TOO_MANY: &str = "The expression contains too many operators; operator count: 301";
const NESTED: &str = "The statement is nested too deeply";
const LEVELS: &str = "Nesting Levels have exceeded supported limits";

#[test]
fn limits_end_in_an_error_and_never_in_an_overflow() {
    let read = |condition: String| outcome(&format!("SELECT * FROM t WHERE {condition}"));
    let insert = |value: String| outcome(&format!("INSERT INTO t VALUE {{'a':{value}}}"));
    let around = |open: &str, inner: &str, close: &str, times| {
        open.repeat(times) + inner + &close.repeat(times)
    };
    let below = |step: &str| format!("{LEVELS} under root{}", step.repeat(32));
    for (found, expected) in [
        (read(around("(", "a=1", ")", 40)), "accepted"),
        (read(around("(", "a=1", ")", 4000)), NESTED),
        (read("(".repeat(8000)), NESTED),
        (read(around("NOT ", "a=1", "", 40)), "accepted"),
        (read(around("NOT ", "a=1", "", 2000)), NESTED),
        (read(vec!["a=1"; 150].join(" AND ")), "accepted"),
        (read(vec!["a=1"; 151].join(" AND ")), TOO_MANY),
        (read(vec!["a=1"; 151].join(" OR ")), TOO_MANY),
        (read(format!("a IN [{}]", ["1"; 100].join(","))), "accepted"),
        (
            read(format!("a IN [{}]", ["1"; 101].join(","))),
            "The IN operator is provided with too many operands; number of operands: 101",
        ),
        (read(format!("a{}=1", "[0]".repeat(31))), "accepted"),
        (read(format!("a{}=1", "[0]".repeat(2000))), LEVELS),
        (insert(around("[", "1", "]", 31)), "accepted"),
        (insert(around("[", "1", "]", 32)), &*below("[0]")),
        (insert(around("[", "1", "]", 4000)), &*below("[0]")),
        (insert(around("{'a':", "1", "}", 1000)), &*below(".a")),
        (insert(around("<<", "1", ">>", 4000)), &*below("[0]")),
        (insert("<<".repeat(4000)), "Unexpected term"),
        (
            outcome(&format!(
                "UPDATE t SET a = {}b{} WHERE p='x'",
                "list_append(".repeat(600),
                ",b)".repeat(600)
            )),
            NESTED,
        ),
        (insert("- ".repeat(4000)), "Unexpected term"),
        (
            // A condition that is compared with an attribute occurs twice in the resulting test.
            read(format!("{}contains(a, 'b'){}", "(".repeat(30), " = c)".repeat(30))),
            TOO_MANY,
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn words_have_no_case_and_blanks_and_comments_no_meaning() {
    let plain = parse_statement("SELECT a FROM t WHERE b = 1 AND c IS MISSING", &[]).unwrap();
    for text in [
        "select a from t where b=1 and c is missing;",
        "SELECT\ta\nFROM \"t\" WHERE\r\n\"b\" = 1 -- to the end\n AND c /* in between */ IS MISSING",
        "Select a From t Where b = 1.0 And c Is Missing",
    ] {
        assert_eq!(parse_statement(text, &[]).unwrap(), plain, "{text}");
    }
    // A keyword in quotes is a name. The case of a name matters.
    for text in ["SELECT \"from\" FROM \"select\"", "SELECT a FROM T WHERE b = 1 AND c IS MISSING"]
    {
        assert_ne!(parse_statement(text, &[]).unwrap(), plain, "{text}");
    }
}

#[test]
fn parameters_are_used_in_the_order_of_the_text() {
    let value = |number: u64| AttributeValue::N(Number::from(number));
    let text = "UPDATE t SET a = ?, b = ? + 5 WHERE p = ? AND q > ?";
    let given = parse_statement(text, &[value(1), value(2), value(3), value(4)]).unwrap();
    let written =
        parse_statement("UPDATE t SET a = 1, b = 2 + 5 WHERE p = 3 AND q > 4", &[]).unwrap();
    assert_eq!(given, written);
    assert!(matches!(given, Statement::Update { .. }));
    for wrong in [3, 5] {
        let values: Vec<AttributeValue> = (0..wrong).map(value).collect();
        assert!(parse_statement(text, &values).is_err(), "{wrong} parameters");
    }
}

/// Tokens of statements, and texts that are not tokens.
const TOKENS: [&str; 83] = [
    "SELECT",
    "*",
    "FROM",
    "t",
    "\"t\".\"i\"",
    "WHERE",
    "a",
    "a.b[1]",
    "=",
    "<>",
    "<",
    ">=",
    "'x'",
    "''",
    "5",
    "-1.5e3",
    "?",
    "(",
    ")",
    "[",
    "]",
    "<<",
    ">>",
    "{",
    "}",
    ":",
    ",",
    ".",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "IS",
    "MISSING",
    "NULL",
    "TRUE",
    "begins_with",
    "contains",
    "size",
    "attribute_type",
    "attribute_exists",
    "INSERT",
    "INTO",
    "VALUE",
    "UPDATE",
    "SET",
    "REMOVE",
    "set_add",
    "list_append",
    "if_not_exists",
    "+",
    "-",
    "DELETE",
    "RETURNING",
    "ALL",
    "MODIFIED",
    "OLD",
    "NEW",
    "ORDER",
    "BY",
    "DESC",
    "EXISTS",
    ";",
    "--",
    "/*",
    "*/",
    "é",
    "`",
    "\u{0}",
    "\"",
    "LIMIT",
    "GROUP",
    "HAVING",
    "DISTINCT",
    "JOIN",
    "AS",
    "VALUES",
    "ON",
    "CONFLICT",
    "/",
    "%",
    "user",
];

fn soup() -> impl Strategy<Value = String> {
    let tokens = prop::sample::select(TOKENS.as_slice());
    prop::collection::vec(tokens, 0..40).prop_map(|tokens| tokens.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    /// Goal: no text makes the parser panic or run forever.
    #[test]
    fn any_text_is_read_or_refused(start in prop::sample::select(vec![
        "", "SELECT * FROM t WHERE a = ", "SELECT a ", "INSERT INTO t VALUE {'a': ",
        "UPDATE t SET a = ", "UPDATE t SET a = 1 WHERE p = ", "DELETE FROM t WHERE ",
    ]), rest in prop_oneof![soup(), ".{0,60}"]) {
        let values = [AttributeValue::Bool(true), AttributeValue::Null];
        for parameters in [&values[..0], &values[..1], &values[..]] {
            let _ = parse_statement(&format!("{start}{rest}"), parameters);
        }
    }
}
