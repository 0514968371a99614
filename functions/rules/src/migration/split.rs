//! Splitting: a document becomes a profile and parts in one partition, and they become the document
//! again.
//!
//! What a part cannot take, such as a list that is empty or a value of another type, stays in the
//! profile. Therefore every document goes there and back unchanged. Where items stand, and when, is
//! not known here.

use std::collections::{BTreeMap, BTreeSet};

use model::{AttributeValue, Item, KeySchema};

use super::key_template::KeyTemplate;
use super::plan::{Cut, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Parts};
use super::reads::AttributePath;

/// Items that a document may become. A document of 400 KB has fewer, unless its parts are tiny:
/// then they belong together in pieces.
pub const PARTS_MAX: usize = 1_000;

/// Digits of a part's number in its sort key: more than [`PARTS_MAX`] fit, for those who add parts.
const NUMBER_DIGITS: usize = 6;

/// Characters of a part's name: it is in the sort key of each of its items.
const NAME_LENGTH_MAX: usize = 64;
const NAMES: &str = "write 1 to 64 of A-Z, a-z, 0-9, `_`, `-`, `.` and `:`";

/// What is wrong, as places below the source and reasons.
pub(super) type Misfits = Vec<(String, String)>;

/// How documents are split, checked.
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
    /// The attribute of a part's item that holds its value: the last name of the path.
    attribute: String,
    cut: Cut,
}

impl Split {
    /// Checks how documents with the keys of `documents` are split into items with those of `items`.
    /// `key` are the templates of the items' keys.
    ///
    /// # Errors
    /// What is wrong, as the place below the source and the reason.
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

    /// The partition key of a document's items.
    ///
    /// # Errors
    /// When an attribute is missing that the key is made of.
    pub(super) fn partition_of(&self, document: &Item) -> Result<AttributeValue, String> {
        self.partition.1.value(document)
    }

    /// Whether an item is the profile of its document.
    pub(super) fn is_profile(&self, item: &Item) -> bool {
        item.get(&self.sort).and_then(AttributeValue::as_str) == Some(self.profile.as_str())
    }

    /// The key of the profile in a partition.
    pub(super) fn profile_key(&self, partition: AttributeValue) -> Item {
        Item::new()
            .with(&self.partition.0, partition)
            .with(&self.sort, AttributeValue::S(self.profile.clone()))
    }

    /// The items of a document, with their keys.
    ///
    /// # Errors
    /// When it has an attribute that is a key of the items, or becomes too many of them.
    pub(super) fn cut(&self, document: &Item) -> Result<Vec<Item>, String> {
        for name in [&self.partition.0, &self.sort] {
            if document.contains_key(name) {
                return Err(format!("it has the attribute `{name}`, which is a key of its parts"));
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
                return Err(format!(
                    "it becomes more than {PARTS_MAX} items; cut `{}` into pieces of some bytes",
                    part.path.join(".")
                ));
            }
        }
        profile.extend(item(self.profile.clone()));
        items.push(profile);
        Ok(items)
    }

    /// The document that items are, in the order of their sort keys; none if there is no profile.
    ///
    /// # Errors
    /// When an item has something that the document has no place for.
    pub(super) fn assemble(&self, items: &[Item]) -> Result<Option<Item>, String> {
        let Some(profile) = items.iter().find(|item| self.is_profile(item)) else {
            return match items.first() {
                None => Ok(None),
                Some(item) => {
                    Err(format!("`{}` is there without `{}`", self.sort_of(item), self.profile))
                }
            };
        };
        let mut document = profile.clone();
        document.remove(&self.partition.0);
        document.remove(&self.sort);
        let mut values: BTreeMap<usize, Vec<AttributeValue>> = BTreeMap::new();
        for item in items.iter().filter(|item| !self.is_profile(item)) {
            let sort = self.sort_of(item);
            let found = self.parts.iter().position(|part| part.has(sort));
            let (number, part) =
                found
                    .and_then(|number| Some((number, self.parts.get(number)?)))
                    .ok_or_else(|| format!("`{sort}` is no part that the plan knows"))?;
            let mut rest = item.clone();
            rest.remove(&self.partition.0);
            rest.remove(&self.sort);
            let value = rest.remove(&part.attribute);
            let value = value.ok_or_else(|| format!("`{sort}` has no `{}`", part.attribute))?;
            if let Some(name) = rest.keys().next() {
                return Err(format!("`{sort}` has `{name}`, which has no place in the document"));
            }
            values.entry(number).or_default().push(value);
        }
        for (number, pieces) in values {
            let Some(part) = self.parts.get(number) else { continue };
            let path = part.path.join(".");
            let value = part.joined(pieces).ok_or_else(|| {
                format!(
                    "the pieces of `{path}` are not all texts, all binary, all lists or all maps without a name in common"
                )
            })?;
            put(&mut document, &part.path, value)
                .map_err(|reason| format!("`{path}` has parts, but {reason}"))?;
        }
        Ok(Some(document))
    }

    /// The paths of the parts.
    pub(super) fn paths(&self) -> impl Iterator<Item = AttributePath> {
        self.parts.iter().map(|part| AttributePath::of_names(&part.path))
    }

    /// The paths that some documents have and at which none of them is cut, as the value is of another
    /// type or empty, with the types that it has there.
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

    /// An item's sort key.
    pub(super) fn sort_of<'i>(&self, item: &'i Item) -> &'i str {
        item.get(&self.sort).and_then(AttributeValue::as_str).unwrap_or_default()
    }
}

/// Whether a text can be a sort key, or what comes before `#` in one.
fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    (1..=NAME_LENGTH_MAX).contains(&text.len()) && text.chars().all(is_allowed)
}

/// What is wrong with the keys of the items.
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
            format!("a split needs a template for `{name}`, and for nothing else: sort keys are the names of parts"),
        ));
    }
    let references = partition.map(KeyTemplate::references).unwrap_or_default();
    if let Some(reference) = references.into_iter().find(|name| !documents.contains(name)) {
        // A document that moved would be written from two partitions.
        wrong.push((
            format!("key.{}", items.partition.name),
            format!("`{reference}` is no key of the document; its parts stay in one partition"),
        ));
    }
    if let Some(template) = partition
        && let Some(lacks) =
            documents.attributes().find(|key| !template.references().contains(&key.name.as_str()))
    {
        // Two documents would stand in one partition, and could not be told apart.
        wrong.push((
            format!("key.{}", items.partition.name),
            format!("`{}` is a key of the document and has to be part of this one", lacks.name),
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
            "`{}` is a key of both tables, and a part cannot have both values",
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
        return Err(("name", format!("`{}` is there twice", part.name)));
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
            format!("`{first}` is a key of the document; it stays in the profile"),
        ));
    }
    if items.contains(last) {
        return Err(("path", format!("`{last}` is a key of the parts; a part cannot hold it")));
    }
    if let Some(other) =
        before.iter().find(|other| other.path.starts_with(path) || path.starts_with(&other.path))
    {
        return Err((
            "path",
            format!("`{}` lies in or around `{}`", part.path, other.path.join(".")),
        ));
    }
    if let Cut::Bytes(bytes) = part.cut
        && !(PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&bytes)
    {
        let reason = format!("pieces have {PIECE_BYTES_MIN} to {PIECE_BYTES_MAX} bytes");
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

    /// Whether a sort key is one of this part's.
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
                // A member of a list has one byte beside its own. Source: DynamoDB developer guide,
                // "Item sizes and formats".
                let size = |member: &AttributeValue| member.size() + 1;
                runs(members, size, most).map(AttributeValue::L).collect()
            }
            (Cut::Bytes(most), AttributeValue::M(members)) => {
                // Its name counts too.
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

    /// The value whose pieces these are, in order.
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

/// Cuts members into runs of at most `most` bytes; a member that is larger is a run of its own.
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

/// The value at a path of a document.
fn value_at<'d>(document: &'d Item, path: &[String]) -> Option<&'d AttributeValue> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(document.get(first)?, |value, name| value.as_map()?.get(name))
}

/// Takes the value at a path out of a document, if there is one that `takes` wants.
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

/// Puts a value where it was taken from. Maps on the way are made; what is empty gives way.
fn put(document: &mut Item, path: &[String], value: AttributeValue) -> Result<(), String> {
    let Some((last, above)) = path.split_last() else { return Ok(()) };
    let mut members = &mut document.0;
    for name in above {
        let inner =
            members.entry(name.clone()).or_insert_with(|| AttributeValue::M(BTreeMap::new()));
        members = match inner {
            AttributeValue::M(inner) => inner,
            _ => return Err(format!("`{name}` is no map in the profile")),
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
        return Err(format!("the profile has a `{last}` as well"));
    }
    members.insert(last.clone(), value);
    Ok(())
}
