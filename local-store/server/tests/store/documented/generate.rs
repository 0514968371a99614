//! Generates random operations. There are few names and values, so that operations affect the same items.
//!
//! Only requests with a documented outcome are generated. `testdata/api` and the crate `expression` test
//! malformed requests.

use std::collections::BTreeSet;

use model::{AttributeValue, Item, Number};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option::{self, of as maybe};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::expression::{Action, Assigned, Comparator, Condition, Operand, Path, Source, Step};
use super::request::{Operation, Read, Returns, SortCondition};
use super::state::{Change, Write};
use super::table::{KEY_VALUES, KINDS, KeyNumbers, Projection};

/// The attributes that are not keys. Other attributes, `g`, `h` and `k`, are keys of indexes.
const PLAIN: [&str; 7] = ["a", "b", "c", "m", "l", "s", "n"];
/// The number of partition keys of a table. It is small, so that item collections become large.
const PARTITIONS: u8 = 3;

fn number() -> impl Strategy<Value = Number> {
    const TEXTS: [&str; 9] = [
        "-1",
        "0",
        "1",
        "2",
        "10",
        "1.5",
        "-2.25",
        "1e20",
        "12345678901234567890123456789012345678",
    ];
    select(TEXTS.as_slice()).prop_map(|text| text.parse().unwrap())
}

fn text() -> impl Strategy<Value = String> {
    select(["", "a", "ab", "b", "ba", "é", "\u{1F600}"].as_slice()).prop_map(str::to_owned)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    const VALUES: [&[u8]; 5] = [&[], &[0], &[0, 1], &[1], &[255]];
    select(VALUES.as_slice()).prop_map(<[u8]>::to_vec)
}

fn string_set() -> impl Strategy<Value = AttributeValue> {
    btree_set(text().prop_filter("not empty", |text| !text.is_empty()), 1..4)
        .prop_map(AttributeValue::Ss)
}

fn number_set() -> impl Strategy<Value = AttributeValue> {
    btree_set(number(), 1..4).prop_map(AttributeValue::Ns)
}

fn binary_set() -> impl Strategy<Value = AttributeValue> {
    btree_set(bytes().prop_filter("not empty", |bytes| !bytes.is_empty()), 1..3)
        .prop_map(AttributeValue::Bs)
}

fn scalar() -> impl Strategy<Value = AttributeValue> {
    prop_oneof![
        3 => text().prop_map(AttributeValue::S),
        3 => number().prop_map(AttributeValue::N),
        2 => bytes().prop_map(AttributeValue::B),
    ]
}

fn value() -> impl Strategy<Value = AttributeValue> {
    let leaf = prop_oneof![
        6 => scalar(),
        1 => any::<bool>().prop_map(AttributeValue::Bool),
        1 => Just(AttributeValue::Null),
        1 => string_set(),
        1 => number_set(),
        1 => binary_set(),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| prop_oneof![map(inner.clone()), list(inner)])
}

fn map(inner: impl Strategy<Value = AttributeValue>) -> impl Strategy<Value = AttributeValue> {
    btree_map(select(["x", "y"].as_slice()).prop_map(str::to_owned), inner, 0..3)
        .prop_map(AttributeValue::M)
}

fn list(inner: impl Strategy<Value = AttributeValue>) -> impl Strategy<Value = AttributeValue> {
    vec(inner, 0..4).prop_map(AttributeValue::L)
}

/// Returns a value of the type that the attribute usually has.
fn value_of(name: &'static str) -> BoxedStrategy<AttributeValue> {
    let usual = match name {
        "m" => map(value()).boxed(),
        "l" => list(value()).boxed(),
        "s" => prop_oneof![string_set(), number_set(), binary_set()].boxed(),
        "n" => number().prop_map(AttributeValue::N).boxed(),
        _ => return value().boxed(),
    };
    prop_oneof![4 => usual, 1 => value()].boxed()
}

/// Returns a value for an attribute that is a key of an index.
fn index_key(name: &'static str, only_right: bool) -> BoxedStrategy<AttributeValue> {
    let right = match name {
        "h" => {
            select([1u64, 2, 3].as_slice()).prop_map(|n| AttributeValue::N(Number::from(n))).boxed()
        }
        _ => select(["a", "ab", "b"].as_slice()).prop_map(AttributeValue::from).boxed(),
    };
    if only_right {
        return right;
    }
    let wrong = prop_oneof![Just(AttributeValue::from("")), Just(AttributeValue::Bool(true))];
    prop_oneof![15 => right, 1 => wrong].boxed()
}

fn attributes(only_right: bool) -> impl Strategy<Value = Item> {
    let plain = subsequence(PLAIN.to_vec(), 0..5).prop_flat_map(|names| {
        names.into_iter().map(|name| (Just(name), value_of(name))).collect::<Vec<_>>()
    });
    let keys = subsequence(vec!["g", "h", "k"], 0..=3).prop_flat_map(move |names| {
        names.into_iter().map(|name| (Just(name), index_key(name, only_right))).collect::<Vec<_>>()
    });
    (plain, keys).prop_map(|(plain, keys)| {
        plain.into_iter().chain(keys).map(|(name, value)| (name.to_owned(), value)).collect()
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        select(["x", "y"].as_slice()).prop_map(Step::Member),
        (0..4usize).prop_map(Step::Element),
    ]
}

fn path_from(root: &'static str) -> impl Strategy<Value = Path> {
    prop_oneof![2 => Just(Vec::new()), 1 => vec(step(), 1..=2)]
        .prop_map(move |steps| Path { root, steps })
}

fn path() -> impl Strategy<Value = Path> {
    select(PLAIN.as_slice()).prop_flat_map(path_from)
}

fn comparator() -> impl Strategy<Value = Comparator> {
    use Comparator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Unequal};
    select([Equal, Unequal, Less, LessOrEqual, Greater, GreaterOrEqual].as_slice())
}

/// Returns two values of one ordered type, the lower value first.
fn ordered_pair() -> impl Strategy<Value = (AttributeValue, AttributeValue)> {
    let sorted = |mut pair: [AttributeValue; 2]| {
        pair.sort_by(|left, right| left.compare(right).unwrap());
        let [low, high] = pair;
        (low, high)
    };
    prop_oneof![
        [number(), number()].prop_map(|pair| pair.map(AttributeValue::N)),
        [text(), text()].prop_map(|pair| pair.map(AttributeValue::S)),
        [bytes(), bytes()].prop_map(|pair| pair.map(AttributeValue::B)),
    ]
    .prop_map(sorted)
}

pub(super) fn condition() -> impl Strategy<Value = Condition> {
    use Comparator::{Equal, Unequal};
    let place = || path().prop_map(Operand::Path);
    let size = || path().prop_map(Operand::Size);
    let count = || (0..4u64).prop_map(|n| Operand::Value(AttributeValue::N(Number::from(n))));
    const TYPES: [&str; 10] = ["S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS"];
    let leaf = prop_oneof![
        4 => (place(), comparator(), scalar().prop_map(Operand::Value))
            .prop_map(|(left, by, right)| Condition::Compare(left, by, right)),
        2 => (place(), select([Equal, Unequal].as_slice()), value().prop_map(Operand::Value))
            .prop_map(|(left, by, right)| Condition::Compare(left, by, right)),
        1 => (path(), comparator(), path())
            .prop_filter("different operands", |(left, _, right)| left != right)
            .prop_map(|(left, by, right)| {
                Condition::Compare(Operand::Path(left), by, Operand::Path(right))
            }),
        2 => (size(), comparator(), count())
            .prop_map(|(left, by, right)| Condition::Compare(left, by, right)),
        1 => (place(), ordered_pair())
            .prop_map(|(operand, (low, high))| Condition::Between(operand, low, high)),
        1 => (place(), vec(value(), 1..4)).prop_map(|(operand, values)| Condition::In(operand, values)),
        3 => path().prop_map(Condition::Exists),
        3 => path().prop_map(Condition::NotExists),
        1 => (path(), select(TYPES.as_slice())).prop_map(|(path, name)| Condition::Type(path, name)),
        1 => (path(), prop_oneof![text().prop_map(AttributeValue::S), bytes().prop_map(AttributeValue::B)])
            .prop_map(|(path, value)| Condition::BeginsWith(path, value)),
        2 => (path(), scalar()).prop_map(|(path, value)| Condition::Contains(path, value)),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            pair.clone().prop_map(|(left, right)| Condition::And(left.into(), right.into())),
            pair.prop_map(|(left, right)| Condition::Or(left.into(), right.into())),
            inner.prop_map(|inner| Condition::Not(inner.into())),
        ]
    })
}

/// Returns a source for an operator. `own` generates its literal value, which must have the type that the
/// operator needs.
fn source(
    own: impl Strategy<Value = AttributeValue> + Clone,
    usual: &'static str,
) -> impl Strategy<Value = Source> {
    let path = || prop_oneof![3 => Just(Path { root: usual, steps: Vec::new() }), 1 => path()];
    prop_oneof![
        2 => path().prop_map(Source::Path),
        2 => own.clone().prop_map(Source::Value),
        2 => (path(), own).prop_map(|(path, value)| Source::IfNotExists(path, value)),
    ]
}

fn assigned() -> impl Strategy<Value = Assigned> {
    let number = || source(number().prop_map(AttributeValue::N).boxed(), "n");
    let list = || source(list(value()).boxed(), "l");
    prop_oneof![
        3 => source(value().boxed(), "a").prop_map(Assigned::Plain),
        2 => (number(), number()).prop_map(|(left, right)| Assigned::Sum(left, right)),
        1 => (number(), number()).prop_map(|(left, right)| Assigned::Difference(left, right)),
        2 => (list(), list()).prop_map(|(left, right)| Assigned::Joined(left, right)),
    ]
}

fn action(root: &'static str) -> BoxedStrategy<Action> {
    if ["g", "h", "k"].contains(&root) {
        let whole = Path { root, steps: Vec::new() };
        let removed = whole.clone();
        return prop_oneof![
            3 => index_key(root, false).prop_map(move |value| {
                Action::Set(whole.clone(), Assigned::Plain(Source::Value(value)))
            }),
            1 => Just(Action::Remove(removed)),
        ]
        .boxed();
    }
    let sets = || prop_oneof![string_set(), number_set(), binary_set()];
    let number = number().prop_map(AttributeValue::N);
    let add = prop_oneof![number, sets()].prop_map(move |value| Action::Add(root, value));
    prop_oneof![
        4 => (path_from(root), assigned()).prop_map(|(path, value)| Action::Set(path, value)),
        2 => path_from(root).prop_map(Action::Remove),
        1 => add,
        1 => sets().prop_map(move |value| Action::Delete(root, value)),
    ]
    .boxed()
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let roots: Vec<&str> = PLAIN.into_iter().chain(["g", "h", "k"]).collect();
    subsequence(roots, 0..4)
        .prop_flat_map(|roots| roots.into_iter().map(action).collect::<Vec<_>>())
}

fn key() -> impl Strategy<Value = KeyNumbers> {
    (0..PARTITIONS, 0..KEY_VALUES)
}

fn table() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(0usize), 4 => Just(1usize), 3 => Just(2usize)]
}

fn write(only_right: bool, with_check: bool) -> impl Strategy<Value = Write> {
    let change = prop_oneof![
        4 => attributes(only_right).prop_map(Change::Put),
        4 => actions().prop_map(Change::Update),
        2 => Just(Change::Delete),
        u32::from(with_check) => Just(Change::Check),
    ];
    (table(), key(), change, option::weighted(0.35, condition()), condition()).prop_map(
        |(table, key, change, condition, other)| {
            // A check must have a condition.
            let condition =
                if matches!(change, Change::Check) { condition.or(Some(other)) } else { condition };
            Write { table, key, change, condition }
        },
    )
}

/// Removes operations on the same item, because batches and transactions refuse them.
fn on_different_items<T>(mut all: Vec<T>, place: impl Fn(&T) -> (usize, KeyNumbers)) -> Vec<T> {
    let mut seen = BTreeSet::new();
    all.retain(|one| {
        let (table, (partition, sort)) = place(one);
        let sort = KINDS[table].sort.map(|_| sort);
        seen.insert((table, partition, sort))
    });
    all
}

fn writes(with_check: bool, max: usize) -> impl Strategy<Value = Vec<Write>> {
    vec(write(true, with_check), 1..max)
        .prop_map(|all| on_different_items(all, |write| (write.table, write.key)))
}

fn keys() -> impl Strategy<Value = Vec<(usize, KeyNumbers)>> {
    vec((table(), key()), 1..8).prop_map(|all| on_different_items(all, |place| *place))
}

fn returns(write: &Write) -> BoxedStrategy<Returns> {
    use Returns::{AllNew, AllOld, None, UpdatedNew, UpdatedOld};
    let choices: &[Returns] = match &write.change {
        // The crate `expression` tests `UPDATED_OLD` and `UPDATED_NEW` for updates of nested values.
        Change::Update(actions) if actions.iter().all(Action::changes_whole_attribute) => {
            &[None, AllOld, AllNew, UpdatedOld, UpdatedNew]
        }
        Change::Update(_) => &[None, AllOld, AllNew],
        _ => &[None, AllOld],
    };
    select(choices.to_vec()).boxed()
}

fn paths_of(roots: Vec<&'static str>) -> impl Strategy<Value = Vec<Path>> {
    let count = roots.len().min(4);
    subsequence(roots, 1..=count)
        .prop_flat_map(|roots| roots.into_iter().map(read_path).collect::<Vec<_>>())
}

/// Returns a path for a read. A path must not address a part of a table's key attribute.
fn read_path(root: &'static str) -> BoxedStrategy<Path> {
    match PLAIN.contains(&root) {
        true => path_from(root).boxed(),
        false => Just(Path { root, steps: Vec::new() }).boxed(),
    }
}

fn paths() -> impl Strategy<Value = Vec<Path>> {
    paths_of(PLAIN.into_iter().chain(["pk", "g"]).collect())
}

fn read() -> impl Strategy<Value = Read> {
    (table(), 0..4usize).prop_flat_map(|(table, index)| {
        let found = KINDS[table].indexes.get(index);
        // A global index returns only the attributes that it projects. A Query refuses filters on other
        // attributes.
        let filter = option::weighted(0.4, condition());
        let (projection, may_have_all) = match found {
            Some(found) if found.is_global && found.projection != Projection::All => {
                let held = found.projected(&KINDS[table]).unwrap();
                (maybe(paths_of(held)).boxed(), false)
            }
            _ => (maybe(paths()).boxed(), true),
        };
        (filter, projection, maybe(1..6u64), any::<bool>(), prop::bool::weighted(0.1)).prop_map(
            move |(filter, projection, limit, all_attributes, count_only)| {
                let all_attributes = all_attributes && may_have_all && projection.is_none();
                let projection = projection.filter(|_| !all_attributes && !count_only);
                Read { table, index, filter, projection, limit, all_attributes, count_only }
            },
        )
    })
}

fn sort_condition() -> impl Strategy<Value = SortCondition> {
    (0..7, 0..KEY_VALUES, 0..KEY_VALUES).prop_map(|(which, n, other)| match which {
        0 => SortCondition::Equal(n),
        1 => SortCondition::Less(n),
        2 => SortCondition::LessOrEqual(n),
        3 => SortCondition::Greater(n),
        4 => SortCondition::GreaterOrEqual(n),
        5 => SortCondition::Between(n.min(other), n.max(other)),
        _ => SortCondition::BeginsWith(n),
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let alone = write(false, false).prop_flat_map(|write| {
        returns(&write).prop_map(move |returns| Operation::Write(write.clone(), returns))
    });
    let get = (table(), key(), maybe(paths()), any::<bool>()).prop_map(
        |(table, key, projection, consistent)| Operation::Get {
            table,
            key,
            projection,
            consistent,
        },
    );
    let query = (read(), 0..PARTITIONS, maybe(sort_condition()), any::<bool>()).prop_map(
        |(read, partition, sort, forward)| Operation::Query { read, partition, sort, forward },
    );
    let batch = writes(false, 10).prop_map(|mut writes| {
        writes.iter_mut().for_each(|write| write.condition = None);
        writes.retain(|write| !matches!(write.change, Change::Update(_)));
        Operation::BatchWrite(writes)
    });
    prop_oneof![
        12 => alone,
        3 => get,
        4 => query,
        1 => (read(), maybe(1..4u32))
            .prop_map(|(read, segments)| Operation::Scan { read, segments }),
        2 => batch,
        1 => keys().prop_map(Operation::BatchGet),
        3 => writes(true, 5).prop_map(Operation::TransactWrite),
        1 => keys().prop_map(Operation::TransactGet),
    ]
}

/// Returns a history of at most `max` operations.
pub(super) fn history(max: usize) -> impl Strategy<Value = Vec<Operation>> {
    vec(operation(), 1..=max)
}
