//! The tables of histories: their keys, their indexes, and the values of keys.

use std::collections::BTreeMap;

use model::{AttributeValue, Item, Number};

/// A key attribute: its name and the descriptor of its type.
pub(super) type KeyAttribute = (&'static str, &'static str);

/// The attributes, other than keys, that an index projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Projection {
    All,
    KeysOnly,
    Include(&'static [&'static str]),
}

/// A secondary index.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) name: &'static str,
    pub(super) is_global: bool,
    pub(super) partition: KeyAttribute,
    pub(super) sort: Option<KeyAttribute>,
    pub(super) projection: Projection,
}

/// A kind of table.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) partition: KeyAttribute,
    pub(super) sort: Option<KeyAttribute>,
    pub(super) indexes: &'static [Index],
}

/// The kinds of tables. Each history has one table of each kind.
pub(super) const KINDS: [Kind; 3] = [
    Kind { partition: ("pk", "S"), sort: None, indexes: &[] },
    Kind {
        partition: ("pk", "S"),
        sort: Some(("sk", "N")),
        indexes: &[
            Index {
                name: "by-k",
                is_global: false,
                partition: ("pk", "S"),
                sort: Some(("k", "S")),
                projection: Projection::Include(&["a"]),
            },
            Index {
                name: "by-g",
                is_global: true,
                partition: ("g", "S"),
                sort: Some(("h", "N")),
                projection: Projection::All,
            },
        ],
    },
    Kind {
        partition: ("pk", "N"),
        sort: Some(("sk", "B")),
        indexes: &[Index {
            name: "flat",
            is_global: true,
            partition: ("g", "S"),
            sort: None,
            projection: Projection::KeysOnly,
        }],
    },
];

/// The value of a key, which can be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyValue {
    N(Number),
    S(String),
    B(Vec<u8>),
}

impl KeyValue {
    pub(super) fn of(value: &AttributeValue) -> Option<Self> {
        match value {
            AttributeValue::N(number) => Some(Self::N(*number)),
            AttributeValue::S(text) => Some(Self::S(text.clone())),
            AttributeValue::B(bytes) => Some(Self::B(bytes.clone())),
            _ => None,
        }
    }
}

/// Returns the key value for a number, with the type of the key attribute. A larger number has a larger value.
pub(super) fn key_value(attribute: KeyAttribute, number: u8) -> AttributeValue {
    match attribute.1 {
        "N" => AttributeValue::N(
            Number::from(u64::from(number)).checked_sub(Number::from(2u64)).unwrap(),
        ),
        "S" => AttributeValue::S(
            ["a", "ab", "b", "ba", "é", "€", "\u{1F600}"][usize::from(number)].to_owned(),
        ),
        _ => AttributeValue::B(
            [&[0][..], &[0, 0], &[0, 1], &[1], &[1, 255], &[128], &[255]][usize::from(number)]
                .to_vec(),
        ),
    }
}

/// The number of different values that [`key_value`] returns.
pub(super) const KEY_VALUES: u8 = 7;

/// The numbers of a partition key's value and a sort key's value.
pub(super) type KeyNumbers = (u8, u8);

impl Kind {
    /// Returns the key with the given numbers.
    pub(super) fn key(&self, numbers: KeyNumbers) -> Item {
        let mut key = Item::new();
        key.0.insert(self.partition.0.to_owned(), key_value(self.partition, numbers.0));
        if let Some(sort) = self.sort {
            key.0.insert(sort.0.to_owned(), key_value(sort, numbers.1));
        }
        key
    }

    /// Returns the key of an item, which determines its order in the table.
    pub(super) fn order(&self, item: &Item) -> (KeyValue, Option<KeyValue>) {
        let value = |name: &str| KeyValue::of(&item.0[name]).unwrap();
        (value(self.partition.0), self.sort.map(|sort| value(sort.0)))
    }

    /// Returns whether every index key attribute of an item has the right type and is not empty.
    pub(super) fn fits_indexes(&self, item: &Item) -> bool {
        let keys = self.indexes.iter().flat_map(|index| [Some(index.partition), index.sort]);
        keys.flatten().all(|(name, descriptor)| match (item.0.get(name), descriptor) {
            (None, _) | (Some(AttributeValue::N(_)), "N") => true,
            (Some(AttributeValue::S(text)), "S") => !text.is_empty(),
            (Some(AttributeValue::B(bytes)), "B") => !bytes.is_empty(),
            _ => false,
        })
    }

    /// Returns the JSON of `CreateTable`.
    pub(super) fn create(&self, name: &str) -> String {
        let mut types: BTreeMap<&str, &str> = BTreeMap::new();
        let mut schema = |partition: KeyAttribute, sort: Option<KeyAttribute>| {
            let mut out = Vec::new();
            for (attribute, role) in [(Some(partition), "HASH"), (sort, "RANGE")] {
                if let Some((name, descriptor)) = attribute {
                    types.insert(name, descriptor);
                    out.push(format!(r#"{{"AttributeName":"{name}","KeyType":"{role}"}}"#));
                }
            }
            format!(r#""KeySchema":[{}]"#, out.join(","))
        };
        let key = schema(self.partition, self.sort);
        let mut indexes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for index in self.indexes {
            let projection = match index.projection {
                Projection::All => r#"{"ProjectionType":"ALL"}"#.to_owned(),
                Projection::KeysOnly => r#"{"ProjectionType":"KEYS_ONLY"}"#.to_owned(),
                Projection::Include(names) => format!(
                    r#"{{"ProjectionType":"INCLUDE","NonKeyAttributes":["{}"]}}"#,
                    names.join("\",\"")
                ),
            };
            let member =
                if index.is_global { "GlobalSecondaryIndexes" } else { "LocalSecondaryIndexes" };
            indexes.entry(member).or_default().push(format!(
                r#"{{"IndexName":"{}",{},"Projection":{projection}}}"#,
                index.name,
                schema(index.partition, index.sort)
            ));
        }
        let indexes: String = indexes
            .iter()
            .map(|(member, parts)| format!(r#","{member}":[{}]"#, parts.join(",")))
            .collect();
        let types: Vec<String> = types
            .iter()
            .map(|(name, descriptor)| {
                format!(r#"{{"AttributeName":"{name}","AttributeType":"{descriptor}"}}"#)
            })
            .collect();
        format!(
            r#"{{"TableName":"{name}","BillingMode":"PAY_PER_REQUEST","StreamSpecification":{{"StreamEnabled":true,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"AttributeDefinitions":[{}],{key}{indexes}}}"#,
            types.join(",")
        )
    }
}

impl Index {
    /// Returns the names of the attributes in entries of the index, for a table of this kind; `None` if
    /// entries have all attributes.
    pub(super) fn projected(&self, kind: &Kind) -> Option<Vec<&'static str>> {
        let included = match self.projection {
            Projection::All => return None,
            Projection::KeysOnly => &[],
            Projection::Include(names) => names,
        };
        let keys = [Some(self.partition), self.sort, Some(kind.partition), kind.sort];
        Some(keys.into_iter().flatten().map(|key| key.0).chain(included.iter().copied()).collect())
    }
}
