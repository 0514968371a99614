//! Property tests: no text makes a parser panic, and the evaluation of a condition agrees with a
//! simple model.

use std::collections::BTreeMap;

use expression::{
    ExpressionKind, KeyExpression, Placeholders, parse_condition, parse_projection, parse_update,
};
use model::{AttributeValue, Item, Number};
use proptest::prelude::*;

fn placeholders() -> Placeholders {
    let names = [("#n", "name"), ("#a", "a"), ("#b", "b")];
    let list = AttributeValue::L(vec![AttributeValue::Null]);
    let values = [(":n", number(1)), (":s", AttributeValue::S("x".into())), (":l", list)];
    let owned = |(key, name): (&str, &str)| (key.to_owned(), name.to_owned());
    Placeholders::new(
        Some(names.map(owned).into()),
        Some(values.map(|(key, value)| (key.to_owned(), value)).into()),
    )
    .unwrap()
}

fn number(value: i64) -> AttributeValue {
    AttributeValue::N(Number::from(value))
}

/// Parses the text with every parser, and evaluates or applies what a parser accepts.
fn read_everywhere(text: &str) {
    let item = Item::new().with("a", number(1)).with("b", AttributeValue::L(vec![number(2)]));
    for kind in [ExpressionKind::Condition, ExpressionKind::Filter] {
        if let Ok(condition) = parse_condition(text, kind, &mut placeholders()) {
            let _ = condition.evaluate(&item);
        }
    }
    if let Ok(projection) = parse_projection(text, &mut placeholders()) {
        let _ = projection.apply(&item);
    }
    if let Ok(update) = parse_update(text, &mut placeholders()) {
        if let Ok(new) = update.apply(&item) {
            let _ = update.updated_attributes(&new);
        }
        let _ = update.apply_to_missing(&Item::new());
    }
    let _ = KeyExpression::parse(text, &mut placeholders());
    let _ = placeholders().check_all_used();
}

fn near_grammar() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "a",
        "b",
        "name",
        "#n",
        "#a",
        "#x",
        ":n",
        ":s",
        ":l",
        ":x",
        "(",
        ")",
        "[",
        "]",
        "0",
        "17",
        "99999999999",
        ",",
        ".",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "AND",
        "or",
        "Not",
        "BETWEEN",
        "IN",
        "SET",
        "REMOVE",
        "add",
        "DELETE",
        "size(",
        "contains(",
        "begins_with(",
        "attribute_exists(",
        "attribute_type(",
        "if_not_exists(",
        "list_append(",
        "f(",
        "_",
        "é",
        "\"",
        " ",
    ]);
    prop::collection::vec((word, prop::sample::select(vec!["", " "])), 0..60)
        .prop_map(|words| words.into_iter().flat_map(|(word, space)| [word, space]).collect())
}

/// A condition over the numbers `n0` to `n3`. An item may lack some of them.
#[derive(Clone, Debug)]
enum Model {
    Compare(usize, &'static str, i64),
    Between(usize, i64, i64),
    In(usize, Vec<i64>),
    Exists(usize),
    Not(Box<Model>),
    And(Box<Model>, Box<Model>),
    Or(Box<Model>, Box<Model>),
}

fn model() -> impl Strategy<Value = Model> {
    let comparator = prop::sample::select(vec!["=", "<>", "<", "<=", ">", ">="]);
    let leaf = prop_oneof![
        (0usize..4, comparator, 0i64..4).prop_map(|(n, c, v)| Model::Compare(n, c, v)),
        (0usize..4, 0i64..4, 0i64..4).prop_map(|(n, a, b)| Model::Between(n, a.min(b), a.max(b))),
        (0usize..4, prop::collection::vec(0i64..4, 1..4)).prop_map(|(n, list)| Model::In(n, list)),
        (0usize..4).prop_map(Model::Exists),
    ];
    leaf.prop_recursive(6, 40, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|m| Model::Not(Box::new(m))),
            (inner.clone(), inner.clone()).prop_map(|(l, r)| Model::And(Box::new(l), Box::new(r))),
            (inner.clone(), inner).prop_map(|(l, r)| Model::Or(Box::new(l), Box::new(r))),
        ]
    })
}

impl Model {
    fn holds(&self, numbers: &[Option<i64>]) -> bool {
        match self {
            Self::Compare(n, comparator, value) => match (numbers[*n], *comparator) {
                (None, comparator) => comparator == "<>",
                (Some(number), "=") => number == *value,
                (Some(number), "<>") => number != *value,
                (Some(number), "<") => number < *value,
                (Some(number), "<=") => number <= *value,
                (Some(number), ">") => number > *value,
                (Some(number), _) => number >= *value,
            },
            Self::Between(n, low, high) => numbers[*n].is_some_and(|n| *low <= n && n <= *high),
            Self::In(n, list) => numbers[*n].is_some_and(|n| list.contains(&n)),
            Self::Exists(n) => numbers[*n].is_some(),
            Self::Not(inner) => !inner.holds(numbers),
            Self::And(left, right) => left.holds(numbers) && right.holds(numbers),
            Self::Or(left, right) => left.holds(numbers) || right.holds(numbers),
        }
    }

    /// Returns the precedence: `OR` 0, `AND` 1, `NOT` 2, comparisons 3.
    fn precedence(&self) -> u8 {
        match self {
            Self::Or(..) => 0,
            Self::And(..) => 1,
            Self::Not(_) => 2,
            _ => 3,
        }
    }

    /// Returns the condition as text, with only the parentheses that the precedence needs.
    fn text(&self) -> String {
        let part = |inner: &Self, least: u8| {
            if inner.precedence() < least { format!("({})", inner.text()) } else { inner.text() }
        };
        match self {
            Self::Compare(n, comparator, value) => format!("n{n} {comparator} :v{value}"),
            Self::Between(n, low, high) => format!("n{n} BETWEEN :v{low} AND :v{high}"),
            Self::In(n, list) => {
                let list: Vec<String> = list.iter().map(|value| format!(":v{value}")).collect();
                format!("n{n} IN ({})", list.join(", "))
            }
            Self::Exists(n) => format!("attribute_exists(n{n})"),
            Self::Not(inner) => format!("NOT {}", part(inner, 2)),
            Self::And(left, right) => format!("{} AND {}", part(left, 1), part(right, 1)),
            Self::Or(left, right) => format!("{} OR {}", part(left, 0), part(right, 0)),
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "\\PC{0,80}") {
        read_everywhere(&text);
    }

    #[test]
    fn texts_near_the_grammar_are_answered(text in near_grammar()) {
        read_everywhere(&text);
        read_everywhere(&format!("SET {text}"));
    }

    #[test]
    fn a_condition_means_what_was_written(
        model in model(),
        numbers in prop::collection::vec(prop::option::of(0i64..4), 4),
    ) {
        let values: BTreeMap<String, AttributeValue> =
            (0..4).map(|value| (format!(":v{value}"), number(value))).collect();
        let mut placeholders = Placeholders::new(None, Some(values)).unwrap();
        let text = model.text();
        let condition = parse_condition(&text, ExpressionKind::Filter, &mut placeholders).unwrap();
        let attributes = numbers.iter().enumerate();
        let item: Item = attributes
            .filter_map(|(n, value)| Some((format!("n{n}"), number((*value)?))))
            .collect();
        prop_assert_eq!(condition.evaluate(&item), model.holds(&numbers), "{}", text);
    }

    /// Goal: an update of a list equals the same changes applied directly to the list, with each
    /// index as a position in the old list.
    #[test]
    fn list_indexes_are_positions_in_the_old_list(
        length in 0usize..6,
        set in prop::collection::btree_set(0usize..9, 0..4),
        removed in prop::collection::btree_set(0usize..9, 0..4),
    ) {
        let removed: Vec<usize> = removed.difference(&set).copied().collect();
        let sets: Vec<String> = set.iter().rev().map(|index| format!("l[{index}] = :n")).collect();
        let removes: Vec<String> = removed.iter().map(|index| format!("l[{index}]")).collect();
        let mut text = String::new();
        if !removes.is_empty() {
            text = format!("REMOVE {} ", removes.join(", "));
        }
        if !sets.is_empty() {
            text += &format!("SET {}", sets.join(", "));
        }
        if text.is_empty() {
            return Ok(());
        }
        let old: Vec<AttributeValue> = (0..length).map(|n| number(100 + n as i64)).collect();
        let item = Item::new().with("l", AttributeValue::L(old.clone()));
        let mut expected: Vec<AttributeValue> = Vec::new();
        for (index, element) in old.iter().enumerate() {
            if set.contains(&index) {
                expected.push(number(1));
            } else if !removed.contains(&index) {
                expected.push(element.clone());
            }
        }
        expected.extend(set.iter().filter(|index| **index >= length).map(|_| number(1)));
        let new = parse_update(&text, &mut placeholders()).unwrap().apply(&item).unwrap();
        prop_assert_eq!(new, Item::new().with("l", AttributeValue::L(expected)), "{}", text);
    }
}
