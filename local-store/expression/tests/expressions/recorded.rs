//! Runs `testdata/*.txt`. `UPDATE=1 cargo test -p expression` records the current results.
//!
//! A file consists of blocks that are separated by empty lines. Lines that begin with `#` are
//! comments. A block with `----` is a case: fields above, the recorded outcome below. A block of
//! only fields sets the names, values, items and schema of the following cases. A case receives
//! only the names and values that its expressions use, because an unused name or value is an error.
//!
//! Fields: `condition`, `filter`, `key`, `projection`, `update` (expressions, parsed in the given
//! order), `names`, `values`, `schema` (`pk S, sk N`), `item` (may occur several times), and `show`
//! (`updated`: also the changed attributes; `missing`: the item does not exist yet).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use expression::{
    Condition, ExpressionKind, KeyCondition, Placeholders, Projection, Update, parse_condition,
    parse_key_condition, parse_projection, parse_update,
};
use model::json::{Json, decode_attribute_value, item_from_str, item_to_string, parse};
use model::{AttributeValue, Item, KeyAttribute, KeyAttributeType, KeySchema};

#[derive(Clone, Default)]
struct Fields(Vec<(String, String)>);

impl Fields {
    fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, text)| text.as_str())
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns the fields of `self`, with missing fields taken from `defaults`.
    fn or(&self, defaults: &Self) -> Self {
        let missing = defaults.0.iter().filter(|(name, _)| self.one(name).is_none());
        Self(self.0.iter().chain(missing).cloned().collect())
    }
}

enum Parsed {
    Condition(Condition),
    Projection(Projection),
    Update(Update),
    Key(KeyCondition),
}

fn object(text: &str) -> Vec<(String, Json<'_>)> {
    match parse(text.as_bytes()).unwrap() {
        Json::Object(pairs) => {
            pairs.into_iter().map(|(name, value)| (name.into_owned(), value)).collect()
        }
        other => panic!("not an object: {other:?}"),
    }
}

fn names(text: &str) -> BTreeMap<String, String> {
    object(text)
        .into_iter()
        .map(|(key, name)| (key, name.as_str().expect("a name is a string").to_owned()))
        .collect()
}

fn values(text: &str) -> BTreeMap<String, AttributeValue> {
    object(text)
        .into_iter()
        .map(|(key, value)| (key, decode_attribute_value(&value).unwrap()))
        .collect()
}

fn schema(text: &str) -> KeySchema {
    let mut attributes = text.split(", ").map(|attribute| {
        let (name, descriptor) = attribute.split_once(' ').unwrap();
        let attribute_type = KeyAttributeType::from_descriptor(descriptor).unwrap();
        KeyAttribute { name: name.to_owned(), attribute_type }
    });
    KeySchema { partition: attributes.next().unwrap(), sort: attributes.next() }
}

fn mentioned<T>(all: BTreeMap<String, T>, texts: &str) -> Option<BTreeMap<String, T>> {
    let mentions = |placeholder: &str| {
        texts.match_indices(placeholder).any(|(at, _)| {
            let behind = texts[at + placeholder.len()..].chars().next();
            !behind.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_')
        })
    };
    let used: BTreeMap<String, T> = all.into_iter().filter(|(key, _)| mentions(key)).collect();
    Some(used).filter(|used| !used.is_empty())
}

fn placeholders(case: &Fields, defaults: &Fields) -> Result<Placeholders, String> {
    let is_expression = |name: &str| EXPRESSIONS.contains(&name);
    let texts: String = case
        .0
        .iter()
        .filter(|(name, _)| is_expression(name))
        .map(|(_, text)| text.clone() + " ")
        .collect();
    let names = match (case.one("names"), defaults.one("names")) {
        (Some(text), _) => Some(names(text)),
        (None, pool) => pool.and_then(|pool| mentioned(names(pool), &texts)),
    };
    let values = match (case.one("values"), defaults.one("values")) {
        (Some(text), _) => Some(values(text)),
        (None, pool) => pool.and_then(|pool| mentioned(values(pool), &texts)),
    };
    Placeholders::new(names, values).map_err(|error| error.to_string())
}

const EXPRESSIONS: [&str; 5] = ["condition", "filter", "key", "projection", "update"];

fn parse_all(case: &Fields, defaults: &Fields) -> Result<Vec<Parsed>, String> {
    let mut placeholders = placeholders(case, defaults)?;
    let p = &mut placeholders;
    let mut all = Vec::new();
    for (name, text) in &case.0 {
        let parsed = match name.as_str() {
            "condition" => {
                parse_condition(text, ExpressionKind::Condition, p).map(Parsed::Condition)
            }
            "filter" => parse_condition(text, ExpressionKind::Filter, p).map(Parsed::Condition),
            "projection" => parse_projection(text, p).map(Parsed::Projection),
            "update" => parse_update(text, p).map(Parsed::Update),
            "key" => {
                let schema = schema(case.or(defaults).one("schema").expect("a schema"));
                parse_key_condition(text, p, &schema).map(Parsed::Key)
            }
            _ => continue,
        };
        all.push(parsed.map_err(|error| error.to_string())?);
    }
    placeholders.check_all_used().map_err(|error| error.to_string())?;
    Ok(all)
}

/// Encodes and decodes a value as in the log, and checks that the result equals the value.
fn through_the_log<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq>(value: &T) -> T {
    let bytes = postcard::to_allocvec(value).unwrap();
    let read: T = postcard::from_bytes(&bytes).unwrap();
    assert!(read == *value);
    read
}

fn describe_update(update: &Update, item: &Item, show: &str, out: &mut String) {
    let updated =
        if show == "missing" { update.apply_to_missing(item) } else { update.apply(item) };
    match updated {
        Ok(new) => {
            writeln!(out, "{}", item_to_string(&new)).unwrap();
            if show == "updated" {
                let old = update.updated_attributes(item);
                writeln!(out, "updated old: {}", item_to_string(&old)).unwrap();
                let new = update.updated_attributes(&new);
                writeln!(out, "updated new: {}", item_to_string(&new)).unwrap();
            }
        }
        Err(error) => writeln!(out, "update error: {error}").unwrap(),
    }
}

fn outcome(case: &Fields, defaults: &Fields) -> String {
    let all = match parse_all(case, defaults) {
        Ok(all) => all,
        Err(error) => return format!("error: {error}\n"),
    };
    let fields = case.or(defaults);
    let items: Vec<Item> = fields.all("item").map(|text| item_from_str(text).unwrap()).collect();
    let show = fields.one("show").unwrap_or("");
    let mut out = String::new();
    for parsed in &all {
        if let Parsed::Key(key) = parsed {
            writeln!(out, "{:?}", through_the_log(key)).unwrap();
            continue;
        }
        if items.is_empty() {
            out.push_str("accepted\n");
        }
        for item in &items {
            match parsed {
                Parsed::Condition(condition) => {
                    writeln!(out, "{}", through_the_log(condition).evaluate(item)).unwrap();
                }
                Parsed::Projection(projection) => {
                    let kept = through_the_log(projection).apply(item);
                    writeln!(out, "{}", item_to_string(&kept)).unwrap();
                }
                Parsed::Update(update) => {
                    describe_update(&through_the_log(update), item, show, &mut out);
                }
                Parsed::Key(_) => {}
            }
        }
    }
    out
}

/// Returns the fields of a block, and its text above and below `----`.
fn read_block(block: &str) -> (Fields, &str, Option<&str>) {
    let (above, below) = match block.split_once("----\n") {
        Some((above, below)) => (above, Some(below)),
        None => (block, None),
    };
    let lines = above.lines().filter(|line| !line.starts_with('#'));
    let fields = lines.map(|line| {
        let (name, text) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line}"));
        (name.to_owned(), text.strip_prefix(' ').unwrap_or(text).to_owned())
    });
    (Fields(fields.collect()), above, below)
}

/// Runs one file. Returns the number of cases, and the failures.
fn check(file: &Path, update: bool) -> (usize, Vec<String>) {
    let text = std::fs::read_to_string(file).unwrap();
    let name = file.file_name().unwrap().to_string_lossy();
    let (mut defaults, mut cases) = (Fields::default(), 0);
    let (mut failures, mut rewritten) = (Vec::new(), Vec::new());
    for block in text.trim_end().split("\n\n") {
        let block = format!("{}\n", block.trim_start_matches('\n'));
        let (fields, above, below) = read_block(&block);
        let Some(below) = below else {
            defaults = fields.or(&defaults);
            rewritten.push(block);
            continue;
        };
        cases += 1;
        let found = outcome(&fields, &defaults);
        if found != below {
            failures.push(format!("{name}:\n{above}recorded:\n{below}found:\n{found}"));
        }
        rewritten.push(format!("{above}----\n{found}"));
    }
    if update {
        std::fs::write(file, rewritten.join("\n")).unwrap();
        failures.clear();
    }
    (cases, failures)
}

#[test]
fn text_cases_have_the_recorded_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let update = std::env::var_os("UPDATE").is_some();
    let (mut cases, mut failures) = (0, Vec::new());
    for file in &files {
        let (more, failed) = check(file, update);
        cases += more;
        failures.extend(failed);
    }
    assert!(failures.is_empty(), "{} failed:\n\n{}", failures.len(), failures.join("\n"));
    assert!(cases >= 300, "only {cases} cases found");
}
