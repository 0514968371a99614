//! Splitting: a document becomes a profile and parts in one partition, and is assembled from them
//! again.
//!
//! A value that cannot become a part, such as an empty list or a value of a type that cannot be
//! cut, stays in the profile. The assembly of a document's items therefore restores every document
//! unchanged.

use std::collections::{BTreeMap, BTreeSet};

use model::key::KeyError;
use model::limits::ITEM_BYTES_MAX;
use model::{AttributeValue, Item, KeySchema};
use thiserror::Error;

use super::key_template::{KeyTemplate, KeyTemplateError};
use super::plan::{Cut, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Parts};
use super::reads::AttributePath;

/// The maximum number of items of a document. A document of 400 KB has fewer, unless its parts are
/// tiny. An operator should cut tiny parts into larger pieces.
pub const PARTS_MAX: usize = 1_000;

/// The number of digits of the number in a part's sort key. It allows more than [`PARTS_MAX`]
/// items, because clients may add parts.
const NUMBER_DIGITS: usize = 6;

/// The maximum length of a part's name in characters, because the sort key of each of its items
/// contains the name.
const NAME_LENGTH_MAX: usize = 64;
const NAMES: &str = "write 1 to 64 of A-Z, a-z, 0-9, `_`, `-`, `.` and `:`";

/// Errors of a split: pairs of a place, relative to the source, and a reason.
pub(super) type Misfits = Vec<(String, String)>;

/// The reason why a document cannot be split, or items form no document.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// The key template has no value for the document.
    #[error(transparent)]
    Template(#[from] KeyTemplateError),
    /// The key has wrong attributes.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A table without a known key schema.
    #[error("there is no table `{0}`")]
    NoTable(String),
    /// A table that is not split.
    #[error("`{0}` is not split")]
    NotSplit(String),
    /// A table that is not a table of parts.
    #[error("`{0}` is not a table of parts")]
    NotParts(String),
    /// A key of no document of this table of parts.
    #[error("the key does not belong to a document of `{0}`")]
    ForeignKey(String),
    /// An attribute of the document that is a key attribute of its parts.
    #[error("the document has the attribute `{0}`, which is a key attribute of its parts")]
    KeyOfParts(String),
    /// The path of a part of which the document has too many items.
    #[error(
        "the document becomes more than {PARTS_MAX} items; cut `{0}` into larger pieces, by bytes"
    )]
    TooManyParts(String),
    /// An item without the profile of its document.
    #[error("`{part}` exists without `{profile}`")]
    PartWithoutProfile {
        /// The sort key of the item.
        part: String,
        /// The sort key of the profile.
        profile: String,
    },
    /// Items without a profile.
    #[error("the document has parts but no profile")]
    NoProfile,
    /// A profile without the key of a document in this table.
    #[error("the profile lacks the key of `{0}`")]
    ProfileWithoutKey(String),
    /// A profile in the partition of another document.
    #[error("the profile belongs to a document of another partition")]
    OtherPartition,
    /// The sort key of an item that belongs to no part.
    #[error("`{0}` matches no part in the plan")]
    UnknownPart(String),
    /// An item without the attribute of its part.
    #[error("`{part}` has no `{attribute}`")]
    NoAttribute {
        /// The sort key of the item.
        part: String,
        /// The attribute of the part.
        attribute: String,
    },
    /// An attribute of a part that has no place in the document.
    #[error("`{part}` has `{attribute}`, which has no place in the document")]
    ForeignAttribute {
        /// The sort key of the item.
        part: String,
        /// The attribute.
        attribute: String,
    },
    /// The path of a part whose pieces have different types or common names.
    #[error(
        "the pieces of `{0}` cannot be joined: they must be all strings, all binary values, all lists, or all maps with distinct names"
    )]
    NotJoinable(String),
    /// A name on the path of a part that is no map in the profile.
    #[error("`{path}` has parts, but `{name}` is not a map in the profile")]
    NotAMap {
        /// The path of the part.
        path: String,
        /// The name.
        name: String,
    },
    /// A part whose value the profile has too.
    #[error("`{path}` has parts, but the profile also has `{name}`")]
    AlsoInProfile {
        /// The path of the part.
        path: String,
        /// The last name of the path.
        name: String,
    },
    /// A document that is too large for an item.
    #[error("the document has {0} bytes with its mark, but an item has at most {ITEM_BYTES_MAX}")]
    TooLarge(usize),
}

/// The checked definition of a split.
#[derive(Debug)]
pub(super) struct Split {
    partition: (String, KeyTemplate),
    sort: String,
    profile: String,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    name: String,
    path: Vec<String>,
    /// The attribute that holds the value in a part's item: the last name of the path.
    attribute: String,
    cut: Cut,
}

impl Split {
    /// Checks how documents are split into items. `documents` and `items` are the key schemas of
    /// the two tables, and `key` has the templates of the items' keys.
    ///
    /// # Errors
    /// Returns the errors: places, relative to the source, with reasons.
    pub(super) fn new(
        parts: &Parts,
        mut key: BTreeMap<String, KeyTemplate>,
        documents: &KeySchema,
        items: &KeySchema,
    ) -> Result<Self, Misfits> {
        let mut wrong = check_keys(&key, &parts.profile, documents, items);
        let partition = key.remove(&items.partition.name);
        let sort = items.sort.as_ref();
        let mut made: Vec<Part> = Vec::new();
        for (number, part) in parts.list.iter().enumerate() {
            let path: Vec<String> =
                part.path.split('.').map(|name| name.trim().to_owned()).collect();
            match check(part, &path, &made, &parts.profile, documents, items) {
                Err((place, reason)) => wrong.push((format!("parts[{number}].{place}"), reason)),
                Ok(attribute) => {
                    made.push(Part { name: part.name.clone(), path, attribute, cut: part.cut });
                }
            }
        }
        match (partition, sort) {
            (Some(partition), Some(sort)) if wrong.is_empty() => Ok(Self {
                partition: (items.partition.name.clone(), partition),
                sort: sort.name.clone(),
                profile: parts.profile.clone(),
                parts: made,
            }),
            _ => Err(wrong),
        }
    }

    /// Returns the partition key of a document's items.
    ///
    /// # Errors
    /// The document lacks an attribute of the key template.
    pub(super) fn partition_of(&self, document: &Item) -> Result<AttributeValue, KeyTemplateError> {
        self.partition.1.value(document)
    }

    /// Returns whether an item is the profile of its document.
    pub(super) fn is_profile(&self, item: &Item) -> bool {
        item.get(&self.sort).and_then(AttributeValue::as_str) == Some(self.profile.as_str())
    }

    /// Returns the key of the profile in a partition.
    pub(super) fn profile_key(&self, partition: AttributeValue) -> Item {
        Item::new()
            .with(&self.partition.0, partition)
            .with(&self.sort, AttributeValue::S(self.profile.clone()))
    }

    /// Returns the items of a document, with their keys.
    ///
    /// # Errors
    /// When the document has an attribute that is a key attribute of the items, or becomes too many
    /// items.
    pub(super) fn cut(&self, document: &Item) -> Result<Vec<Item>, DocumentError> {
        for name in [&self.partition.0, &self.sort] {
            if document.contains_key(name) {
                return Err(DocumentError::KeyOfParts(name.clone()));
            }
        }
        let partition = self.partition_of(document)?;
        let item = |sort: String| {
            Item::new()
                .with(&self.partition.0, partition.clone())
                .with(&self.sort, AttributeValue::S(sort))
        };
        let mut profile = document.clone();
        let mut items = Vec::new();
        for part in &self.parts {
            let Some(value) = take(&mut profile, &part.path, |value| part.takes(value)) else {
                continue;
            };
            for (sort, value) in part.pieces(value) {
                items.push(item(sort).with(&part.attribute, value));
            }
            if items.len() >= PARTS_MAX {
                return Err(DocumentError::TooManyParts(part.path.join(".")));
            }
        }
        profile.extend(item(self.profile.clone()));
        items.push(profile);
        Ok(items)
    }

    /// Assembles a document from items in the order of their sort keys; `None` if there is no
    /// profile.
    ///
    /// # Errors
    /// When an item contains an attribute that does not belong to the document.
    pub(super) fn assemble(&self, items: &[Item]) -> Result<Option<Item>, DocumentError> {
        let Some(profile) = items.iter().find(|item| self.is_profile(item)) else {
            return match items.first() {
                None => Ok(None),
                Some(item) => Err(DocumentError::PartWithoutProfile {
                    part: self.sort_of(item).to_owned(),
                    profile: self.profile.clone(),
                }),
            };
        };
        let mut document = profile.clone();
        document.remove(&self.partition.0);
        document.remove(&self.sort);
        let mut values: BTreeMap<usize, Vec<AttributeValue>> = BTreeMap::new();
        for item in items.iter().filter(|item| !self.is_profile(item)) {
            let sort = self.sort_of(item);
            let found = self.parts.iter().position(|part| part.has(sort));
            let (number, part) = found
                .and_then(|number| Some((number, self.parts.get(number)?)))
                .ok_or_else(|| DocumentError::UnknownPart(sort.to_owned()))?;
            let mut rest = item.clone();
            rest.remove(&self.partition.0);
            rest.remove(&self.sort);
            let value = rest.remove(&part.attribute).ok_or_else(|| DocumentError::NoAttribute {
                part: sort.to_owned(),
                attribute: part.attribute.clone(),
            })?;
            if let Some((attribute, _)) = rest.0.pop_first() {
                return Err(DocumentError::ForeignAttribute { part: sort.to_owned(), attribute });
            }
            values.entry(number).or_default().push(value);
        }
        for (number, pieces) in values {
            let Some(part) = self.parts.get(number) else { continue };
            let value = part
                .joined(pieces)
                .ok_or_else(|| DocumentError::NotJoinable(part.path.join(".")))?;
            put(&mut document, &part.path, value)?;
        }
        Ok(Some(document))
    }

    /// Returns the paths of the parts.
    pub(super) fn paths(&self) -> impl Iterator<Item = AttributePath> {
        self.parts.iter().map(|part| AttributePath::of_names(&part.path))
    }

    /// Returns the paths of parts that exist in some documents but are cut from no document, with
    /// the types of their values. These values are empty or of a type that cannot be cut.
    pub(super) fn uncut(&self, documents: &[Item]) -> Vec<(String, BTreeSet<&'static str>)> {
        let uncut = self.parts.iter().filter_map(|part| {
            let values = documents.iter().filter_map(|document| value_at(document, &part.path));
            let values: Vec<&AttributeValue> = values.collect();
            let is_cut = values.is_empty() || values.iter().any(|value| part.takes(value));
            let types = values.iter().map(|value| value.attribute_type().descriptor());
            (!is_cut).then(|| (part.path.join("."), types.collect()))
        });
        uncut.collect()
    }

    /// Returns the sort key of an item.
    pub(super) fn sort_of<'i>(&self, item: &'i Item) -> &'i str {
        item.get(&self.sort).and_then(AttributeValue::as_str).unwrap_or_default()
    }
}

/// Returns whether a string can be a sort key, or the prefix of a sort key before `#`.
fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    (1..=NAME_LENGTH_MAX).contains(&text.len()) && text.chars().all(is_allowed)
}

/// Returns the errors in the key templates of the items.
fn check_keys(
    key: &BTreeMap<String, KeyTemplate>,
    profile: &str,
    documents: &KeySchema,
    items: &KeySchema,
) -> Misfits {
    let mut wrong = Vec::new();
    let partition = key.get(&items.partition.name);
    if partition.is_none() || key.len() > 1 {
        let name = &items.partition.name;
        wrong.push((
            "key".to_owned(),
            format!("a split needs exactly one key template, for `{name}`: sort keys are the names of parts"),
        ));
    }
    let references = partition.map(KeyTemplate::references).unwrap_or_default();
    if let Some(reference) = references.into_iter().find(|name| !documents.contains(name)) {
        // If this attribute changed, the document would move to another partition and be assembled
        // from both.
        wrong.push((
            format!("key.{}", items.partition.name),
            format!("`{reference}` is not a key attribute of the document; all parts of a document must stay in one partition"),
        ));
    }
    if let Some(template) = partition
        && let Some(lacks) =
            documents.attributes().find(|key| !template.references().contains(&key.name.as_str()))
    {
        // Without this key attribute in the template, two documents could share a partition.
        wrong.push((
            format!("key.{}", items.partition.name),
            format!(
                "`{}` is a key attribute of the document, so the template must contain it",
                lacks.name
            ),
        ));
    }
    if !is_name(profile) {
        wrong.push(("profile".to_owned(), NAMES.to_owned()));
    }
    let sort = items.sort.as_ref().filter(|sort| sort.attribute_type.descriptor() == "S");
    if sort.is_none() {
        let reason = "parts need a table with a sort key of type S".to_owned();
        wrong.push(("to".to_owned(), reason));
    }
    for attribute in items.attributes().filter(|found| documents.contains(&found.name)) {
        let reason = format!(
            "`{}` is a key attribute of both tables, and a part cannot store both values",
            attribute.name
        );
        wrong.push(("to".to_owned(), reason));
    }
    wrong
}

fn check(
    part: &super::plan::Part,
    path: &[String],
    before: &[Part],
    profile: &str,
    documents: &KeySchema,
    items: &KeySchema,
) -> Result<String, (&'static str, String)> {
    if !is_name(&part.name) {
        return Err(("name", NAMES.to_owned()));
    }
    if part.name == profile || before.iter().any(|other| other.name == part.name) {
        return Err(("name", format!("`{}` is listed twice", part.name)));
    }
    let (Some(first), Some(last)) = (path.first(), path.last()) else {
        return Err(("path", "write the path of an attribute, such as `info.actors`".to_owned()));
    };
    if path.iter().any(String::is_empty) {
        return Err(("path", format!("`{}` names no attribute", part.path)));
    }
    if documents.contains(first) {
        return Err((
            "path",
            format!("`{first}` is a key attribute of the document, so it must stay in the profile"),
        ));
    }
    if items.contains(last) {
        return Err((
            "path",
            format!("`{last}` is a key attribute of the parts, so a part cannot store it"),
        ));
    }
    if let Some(other) =
        before.iter().find(|other| other.path.starts_with(path) || path.starts_with(&other.path))
    {
        return Err(("path", format!("`{}` overlaps `{}`", part.path, other.path.join("."))));
    }
    if let Cut::Bytes(bytes) = part.cut
        && !(PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&bytes)
    {
        let reason = format!("write a size from {PIECE_BYTES_MIN} to {PIECE_BYTES_MAX} bytes");
        return Err(("cut", reason));
    }
    Ok(last.clone())
}

impl Part {
    fn takes(&self, value: &AttributeValue) -> bool {
        match (self.cut, value) {
            (Cut::Whole, _) => true,
            (Cut::Each | Cut::Bytes(_), AttributeValue::L(members)) => !members.is_empty(),
            (Cut::Bytes(_), AttributeValue::M(members)) => !members.is_empty(),
            (Cut::Bytes(_), AttributeValue::S(text)) => !text.is_empty(),
            (Cut::Bytes(_), AttributeValue::B(bytes)) => !bytes.is_empty(),
            _ => false,
        }
    }

    /// Returns whether a sort key belongs to this part.
    fn has(&self, sort: &str) -> bool {
        match self.cut {
            Cut::Whole => sort == self.name,
            Cut::Each | Cut::Bytes(_) => {
                sort.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with('#'))
            }
        }
    }

    fn pieces(&self, value: AttributeValue) -> Vec<(String, AttributeValue)> {
        let pieces = match (self.cut, value) {
            (Cut::Whole, value) => return vec![(self.name.clone(), value)],
            (Cut::Each, AttributeValue::L(members)) => members,
            (Cut::Bytes(most), AttributeValue::L(members)) => {
                // A member of a list takes one byte more than its value. Source: DynamoDB developer
                // guide, "Item sizes and formats".
                let size = |member: &AttributeValue| member.size() + 1;
                runs(members, size, most).map(AttributeValue::L).collect()
            }
            (Cut::Bytes(most), AttributeValue::M(members)) => {
                // A member of a map also takes the bytes of its name.
                let size =
                    |(name, member): &(String, AttributeValue)| name.len() + member.size() + 1;
                let maps = runs(members.into_iter().collect(), size, most);
                maps.map(|run| AttributeValue::M(run.into_iter().collect())).collect()
            }
            (Cut::Bytes(most), AttributeValue::S(text)) => {
                let texts = runs(text.chars().collect(), |c: &char| c.len_utf8(), most);
                texts.map(|run| AttributeValue::S(run.into_iter().collect())).collect()
            }
            (Cut::Bytes(most), AttributeValue::B(bytes)) => {
                bytes.chunks(most.max(1)).map(|run| AttributeValue::B(run.to_vec())).collect()
            }
            (_, value) => vec![value],
        };
        let numbered = pieces.into_iter().enumerate();
        numbered.map(|(n, value)| (format!("{}#{n:0>NUMBER_DIGITS$}", self.name), value)).collect()
    }

    /// Joins the pieces, in their order, to one value.
    fn joined(&self, pieces: Vec<AttributeValue>) -> Option<AttributeValue> {
        let mut pieces = pieces.into_iter();
        match self.cut {
            Cut::Whole => pieces.next(),
            Cut::Each => Some(AttributeValue::L(pieces.collect())),
            Cut::Bytes(_) => {
                let mut all = pieces.next()?;
                for piece in pieces {
                    match (&mut all, piece) {
                        (AttributeValue::S(all), AttributeValue::S(more)) => all.push_str(&more),
                        (AttributeValue::B(all), AttributeValue::B(more)) => all.extend(more),
                        (AttributeValue::L(all), AttributeValue::L(more)) => all.extend(more),
                        (AttributeValue::M(all), AttributeValue::M(more)) => {
                            for (name, value) in more {
                                if all.insert(name, value).is_some() {
                                    return None;
                                }
                            }
                        }
                        _ => return None,
                    }
                }
                Some(all)
            }
        }
    }
}

/// Cuts members into runs of at most `most` bytes. A larger member becomes a separate run.
fn runs<T>(
    members: Vec<T>,
    size: impl Fn(&T) -> usize,
    most: usize,
) -> impl Iterator<Item = Vec<T>> {
    let mut members = members.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut run = vec![members.next()?];
        let mut bytes = run.iter().map(&size).sum::<usize>();
        while let Some(next) = members.next_if(|next| bytes + size(next) <= most) {
            bytes += size(&next);
            run.push(next);
        }
        Some(run)
    })
}

/// Returns the value at a path of a document.
fn value_at<'d>(document: &'d Item, path: &[String]) -> Option<&'d AttributeValue> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(document.get(first)?, |value, name| value.as_map()?.get(name))
}

/// Removes and returns the value at a path of a document, if the value exists and `takes` returns
/// true for it.
fn take(
    document: &mut Item,
    path: &[String],
    takes: impl Fn(&AttributeValue) -> bool,
) -> Option<AttributeValue> {
    let (last, above) = path.split_last()?;
    let mut members = &mut document.0;
    for name in above {
        members = match members.get_mut(name)? {
            AttributeValue::M(inner) => inner,
            _ => return None,
        };
    }
    if members.get(last).is_some_and(takes) { members.remove(last) } else { None }
}

/// Inserts a value at its path in the document. Creates missing maps on the path.
fn put(document: &mut Item, path: &[String], value: AttributeValue) -> Result<(), DocumentError> {
    let Some((last, above)) = path.split_last() else { return Ok(()) };
    let mut members = &mut document.0;
    for name in above {
        let inner =
            members.entry(name.clone()).or_insert_with(|| AttributeValue::M(BTreeMap::new()));
        members = match inner {
            AttributeValue::M(inner) => inner,
            _ => {
                let (path, name) = (path.join("."), name.clone());
                return Err(DocumentError::NotAMap { path, name });
            }
        };
    }
    let is_empty = match members.get(last) {
        None => true,
        Some(AttributeValue::L(members)) => members.is_empty(),
        Some(AttributeValue::M(members)) => members.is_empty(),
        Some(AttributeValue::S(text)) => text.is_empty(),
        Some(AttributeValue::B(bytes)) => bytes.is_empty(),
        Some(_) => false,
    };
    if !is_empty {
        return Err(DocumentError::AlsoInProfile { path: path.join("."), name: last.clone() });
    }
    members.insert(last.clone(), value);
    Ok(())
}
