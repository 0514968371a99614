//! Tests with texts at and beyond the limits, and with texts that try to overflow the stack or to
//! take a long time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use expression::{
    ExpressionKind, KeyExpression, Placeholders, parse_condition, parse_projection, parse_update,
};
use model::{AttributeValue, Item, Number};

/// The stack size of the tests in bytes, which is much smaller than the stack of any thread of the
/// store.
const STACK_BYTES: usize = 1024 * 1024;

fn on_a_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap();
    thread.join().unwrap()
}

fn one(value: AttributeValue) -> Placeholders {
    Placeholders::new(None, Some(BTreeMap::from([(":v".to_owned(), value)]))).unwrap()
}

fn number() -> Placeholders {
    one(AttributeValue::N(Number::from(1u64)))
}

fn condition_error(text: &str) -> String {
    let text = text.to_owned();
    on_a_small_stack(move || {
        match parse_condition(&text, ExpressionKind::Condition, &mut number()) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string().replacen("Invalid ConditionExpression: ", "", 1),
        }
    })
}

const TOO_MANY: &str = "The expression contains too many operators; operator count: 301";
const REDUNDANT: &str = "The expression has redundant parentheses;";

#[test]
fn the_text_is_at_most_4096_bytes() {
    let name = |bytes: usize| "a".repeat(bytes);
    assert_eq!(condition_error(&format!("{}=:v", name(4093))), "accepted");
    assert_eq!(
        condition_error(&format!("{}=:v", name(4094))),
        "Expression size has exceeded the maximum allowed size;"
    );
    let mut none = Placeholders::new(None, None).unwrap();
    assert!(parse_projection(&name(4096), &mut none).is_ok());
    assert!(parse_projection(&name(4097), &mut none).is_err());
    assert!(parse_update(&format!("REMOVE {}", name(4089)), &mut none).is_ok());
    let error = parse_update(&format!("REMOVE {}", name(4090)), &mut none).unwrap_err();
    let expected =
        "Invalid UpdateExpression: Expression size has exceeded the maximum allowed size;";
    assert_eq!(error.to_string(), expected);
    assert!(KeyExpression::parse(&format!("{}=:v", name(4093)), &mut number()).is_ok());
    assert!(KeyExpression::parse(&format!("{}=:v", name(4094)), &mut number()).is_err());
}

#[test]
fn operators_and_functions_are_at_most_300() {
    let chain = |comparisons: usize| vec!["a<b"; comparisons].join(" OR ");
    assert_eq!(condition_error(&chain(150)), "accepted");
    assert_eq!(condition_error(&chain(151)), TOO_MANY);
    assert_eq!(condition_error(&format!("{}a=b", "NOT ".repeat(299))), "accepted");
    assert_eq!(condition_error(&format!("{}a=b", "NOT ".repeat(300))), TOO_MANY);
    let calls = |count: usize| vec!["attribute_exists(a)"; count].join(" AND ");
    assert_eq!(condition_error(&calls(150)), "accepted");
    assert_eq!(condition_error(&calls(151)), TOO_MANY);
}

#[test]
fn in_has_at_most_100_candidates_and_counts_once() {
    let list = |count: usize| format!("a IN ({})", vec![":v"; count].join(","));
    assert_eq!(condition_error(&list(100)), "accepted");
    assert_eq!(
        condition_error(&list(101)),
        "The IN operator is provided with too many operands; number of operands: 101"
    );
    assert_eq!(condition_error(&[list(100), list(100), list(100)].join(" OR ")), "accepted");
}

#[test]
fn nesting_ends_in_an_error_and_never_in_an_overflow() {
    for (text, error) in [
        (format!("{}a=b{}", "(".repeat(2046), ")".repeat(2046)), REDUNDANT),
        ("(".repeat(4096), REDUNDANT),
        (format!("{}a=b{}", "NOT (".repeat(299), ")".repeat(299)), "accepted"),
        (format!("{}a=b{}", "NOT (".repeat(680), ")".repeat(680)), TOO_MANY),
        (format!("a<b {}{}", "or (a<b ".repeat(149), ")".repeat(149)), "accepted"),
        (format!("a<b {}{}", "or (a<b ".repeat(454), ")".repeat(454)), TOO_MANY),
        (
            format!("a<{}b{}", "f(".repeat(1355), ")".repeat(1355)),
            "Invalid function name; function: f",
        ),
        (format!("a<{}b{}", "size(".repeat(680), ")".repeat(680)), TOO_MANY),
        (format!("{}a", "not ".repeat(1000)), "Syntax error; token: \"<EOF>\", near: \"a\""),
    ] {
        assert_eq!(condition_error(&text), error, "{}", &text[..40]);
    }
}

#[test]
fn the_deepest_expression_can_be_stored_read_evaluated_and_dropped() {
    let text = format!("{}a = :v{}", "NOT (".repeat(299), ")".repeat(299));
    let answers = on_a_small_stack(move || {
        let condition = parse_condition(&text, ExpressionKind::Filter, &mut number()).unwrap();
        let bytes = postcard::to_allocvec(&condition).unwrap();
        let read: expression::Condition = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, condition);
        let item = Item::new().with("a", Number::from(1u64));
        (read.evaluate(&item), read.clone().evaluate(&Item::new()), read.paths().count())
    });
    assert_eq!(answers, (false, true, 1));

    // At most about 200 calls, each in its own parentheses, fit in 4 KB.
    let text = format!("SET a = {}:v{}", "(if_not_exists(b,".repeat(200), "))".repeat(200));
    let sum = on_a_small_stack(move || {
        let update = parse_update(&text, &mut number()).unwrap();
        let bytes = postcard::to_allocvec(&update).unwrap();
        let read: expression::Update = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, update);
        read.apply(&Item::new()).unwrap()
    });
    assert_eq!(sum, Item::new().with("a", Number::from(1u64)));
}

#[test]
fn a_large_value_is_stored_once_however_often_it_is_used() {
    let mut placeholders = one(AttributeValue::S("x".repeat(2_000_000)));
    let text = vec!["a=:v"; 150].join(" OR ");
    let condition = parse_condition(&text, ExpressionKind::Filter, &mut placeholders).unwrap();
    assert!(postcard::to_allocvec(&condition).unwrap().len() < 2_100_000);
}

#[test]
fn a_large_name_cannot_be_named_beyond_2_megabytes() {
    let names = BTreeMap::from([("#n".to_owned(), "n".repeat(65_535))]);
    let mut placeholders = Placeholders::new(Some(names), None).unwrap();
    let text = vec!["attribute_exists(#n)"; 33].join(" OR ");
    let error = parse_condition(&text, ExpressionKind::Filter, &mut placeholders).unwrap_err();
    assert!(error.to_string().contains("Expression size has exceeded"), "{error}");
}

#[test]
fn placeholders_are_bounded() {
    let name = |key: String, name: String| {
        let names = Some(BTreeMap::from([(key, name)]));
        Placeholders::new(names, None).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(name(format!("#{}", "n".repeat(254)), "a".into()), Ok(()));
    let too_long = name(format!("#{}", "n".repeat(255)), "a".into()).unwrap_err();
    assert!(too_long.ends_with("size of key: 256"), "{too_long}");
    assert_eq!(name("#n".into(), "a".repeat(65_535)), Ok(()));
    assert!(name("#n".into(), "a".repeat(65_536)).is_err());
    let values = |bytes: usize| {
        let value = AttributeValue::S("x".repeat(bytes));
        Placeholders::new(None, Some(BTreeMap::from([(":v".to_owned(), value)]))).is_ok()
    };
    assert!(values(2 * 1024 * 1024 - 2));
    assert!(!values(2 * 1024 * 1024 - 1));
}

#[test]
fn an_update_cannot_write_more_than_an_item_holds() {
    let mut placeholders = one(AttributeValue::S("x".repeat(300_000)));
    let update = parse_update("SET a = :v, b = :v", &mut placeholders).unwrap();
    assert_eq!(
        update.apply(&Item::new()).unwrap_err().to_string(),
        "Item size to update has exceeded the maximum allowed size"
    );
}

#[test]
fn the_worst_texts_take_little_time() {
    let wide: Vec<String> = (0..800).map(|n| format!("q{n:x}")).collect();
    let indexes: Vec<String> = (0..590).map(|n| format!("a[{n}]")).collect();
    let started = Instant::now();
    for paths in [wide.join(","), indexes.join(",")] {
        assert!(paths.len() > 3500 && paths.len() < 4089, "{}", paths.len());
        let mut none = Placeholders::new(None, None).unwrap();
        let projection = parse_projection(&paths, &mut none).unwrap();
        let update = parse_update(&format!("REMOVE {paths}"), &mut none).unwrap();
        let elements = vec![AttributeValue::Null; 100_000];
        let item = Item::new().with("a", AttributeValue::L(elements));
        assert!(projection.apply(&item).size() < item.size());
        assert!(update.apply(&item).unwrap().size() <= item.size());
    }
    for text in ["(".repeat(4096), "a[".repeat(2048), "#".repeat(4096), "a.".repeat(2048)] {
        condition_error(&text);
    }
    let long = AttributeValue::B(vec![0; 400_000]);
    let item = Item::new().with("a", long);
    let mut part = vec![0; 200_000];
    part.push(1);
    let mut placeholders = one(AttributeValue::B(part));
    let contains =
        parse_condition("contains(a, :v)", ExpressionKind::Filter, &mut placeholders).unwrap();
    assert!(!contains.evaluate(&item));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
