//! Static checks of filter patterns: whether any record of a stream can match, and which conditions
//! every record meets. They produce warnings about filters that never or always match.
//!
//! The checks use only the form of a stream's records. A pattern without a remark may still match
//! no record that the application writes.
//!
//! Sources: the fields of a record from the AWS DynamoDB Streams API, `Record` and `StreamRecord`;
//! its images from `StreamViewType`; the user identity from the DynamoDB guide, "Time to Live and
//! streams".

use std::collections::BTreeMap;

use model::Number;
use serde_json::Value;

use super::FilterCriteria;
use super::pattern::{ADDED_AFTER_FILTERING, Fields, Leaf, Part, Pattern};
use super::rule::{Literal, Rule};

const EVENT_NAMES: &[&str] = &["INSERT", "MODIFY", "REMOVE"];
const VIEW_TYPES: &[&str] = &["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"];

/// The known structure of a stream's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordShape {
    /// The table's key attributes with their types `S`, `N` or `B`; `None` if unknown.
    pub keys: Option<BTreeMap<String, &'static str>>,
    /// The key attributes of the table's indexes with their types. An item may lack such an
    /// attribute, but if it has the attribute, the attribute has this type.
    pub index_keys: BTreeMap<String, &'static str>,
    /// Whether a record can have the image after the change.
    pub new_image: bool,
    /// Whether a record can have the image before the change.
    pub old_image: bool,
}

/// The kinds of fault: a pattern matches more or fewer records than its author expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternFault {
    /// No record matches the pattern.
    NeverMatches,
    /// Every record meets one of the pattern's conditions.
    AlwaysMatches,
    /// An `anything-but` of the pattern lists only values that no record can have.
    ExcludesNothing,
}

/// A remark about a pattern, for its author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The index of the pattern, counted from 0.
    pub pattern: usize,
    /// The kind of fault.
    pub fault: PatternFault,
    /// The names on the path to the condition, joined by dots; empty if `problem` contains them.
    pub path: String,
    /// The part of the pattern that the remark is about.
    pub marked: String,
    /// A description of the fault, and its reason.
    pub problem: String,
    /// The correction: the text to write instead.
    pub remedy: String,
}

impl FilterCriteria {
    /// Returns remarks about the patterns of a filter, based only on the form of the records.
    #[must_use]
    pub fn remarks(&self, shape: &RecordShape) -> Vec<Remark> {
        let of_pattern = |(index, pattern): (usize, &Pattern)| {
            let reader = Reader { pattern, shape };
            let never = reader.unmet(&pattern.root).or_else(|| reader.contradiction());
            let never = never.map(|said| (PatternFault::NeverMatches, said));
            let found = never
                .or_else(|| {
                    let always = pattern.leaves.iter().find_map(|leaf| reader.always(leaf))?;
                    Some((PatternFault::AlwaysMatches, always))
                })
                .or_else(|| {
                    let nothing =
                        pattern.leaves.iter().find_map(|leaf| reader.excludes_nothing(leaf))?;
                    Some((PatternFault::ExcludesNothing, nothing))
                });
            found.map(|(fault, RemarkText { path, marked, problem, remedy })| Remark {
                pattern: index,
                fault,
                path,
                marked,
                problem,
                remedy,
            })
        };
        self.patterns.iter().enumerate().filter_map(of_pattern).collect()
    }
}

/// The start of a remedy that changes the table's stream instead of the pattern.
const VIEW_TYPE: &str = "`StreamViewType: ";

/// A remark that has no pattern index and no kind of fault yet.
struct RemarkText {
    path: String,
    marked: String,
    problem: String,
    remedy: String,
}

impl RemarkText {
    fn new(marked: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (path, marked) = (String::new(), marked.to_owned());
        Self { path, marked, problem: problem.into(), remedy: remedy.into() }
    }
}

/// The kind of scalar to which a path can lead.
enum Scalar {
    /// A string out of this list.
    OneOf(&'static [&'static str]),
    /// Any string.
    Text,
    /// A number in a string, as DynamoDB writes it.
    NumberText,
    /// A JSON number.
    Number,
    /// True or false.
    Bool,
    /// The JSON value `true`: DynamoDB writes `{"NULL": true}` and no other value.
    True,
}

struct Reader<'a> {
    pattern: &'a Pattern,
    shape: &'a RecordShape,
}

impl Reader<'_> {
    /// Returns the reason why no record can match all of these fields; `None` if a record can
    /// match.
    fn unmet(&self, fields: &Fields) -> Option<RemarkText> {
        let by_name = fields.named.iter().find_map(|(_, part)| match part {
            Part::Leaf(index) => self.never(self.pattern.leaves.get(*index)?),
            Part::Fields(inner) => self.unmet(inner),
        });
        by_name.or_else(|| {
            fields.choices.iter().find_map(|choice| {
                let mut first = None;
                for alternative in choice {
                    let said = self.unmet(alternative)?;
                    first = first.or(Some(said));
                }
                first
            })
        })
    }

    /// Returns the reason why no record can match this leaf; `None` if a record can match.
    fn never(&self, leaf: &Leaf) -> Option<RemarkText> {
        if leaf.rules.iter().any(|rule| matches!(rule, Rule::Exists(false))) {
            return None;
        }
        match self.expect(&leaf.path) {
            Err(said) => Some(said),
            Ok(scalar) if leaf.rules.iter().any(|rule| scalar.admits(rule)) => None,
            Ok(scalar) => Some(scalar.refusal(leaf)),
        }
    }

    /// Returns the reason why every record matches this leaf: the leaf requires the absence of a
    /// value that is always absent. `None` if a record may fail to match.
    fn always(&self, leaf: &Leaf) -> Option<RemarkText> {
        leaf.rules.iter().find(|rule| matches!(rule, Rule::Exists(false)))?;
        let RemarkText { path, marked, problem, remedy } = self.expect(&leaf.path).err()?;
        let remedy = match leaf.path.split_last() {
            _ if remedy.starts_with(VIEW_TYPE) => format!("{remedy}, or remove the condition"),
            Some((name, [_, ..])) if marked == *name => {
                format!(
                    "{{\"{name}\": {{\"S\": [{{\"exists\": false}}]}}}} with the attribute's type"
                )
            }
            _ if marked == "userIdentity" => {
                r#"{"userIdentity": {"type": [{"exists": false}]}}"#.to_owned()
            }
            _ => "a field of a stream record, such as `eventName` or `dynamodb`".to_owned(),
        };
        Some(RemarkText { path, marked, problem, remedy })
    }

    /// Returns the reason why an `anything-but` of this leaf excludes nothing: no record can have
    /// one of its values.
    fn excludes_nothing(&self, leaf: &Leaf) -> Option<RemarkText> {
        let scalar = self.expect(&leaf.path).ok()?;
        leaf.rules.iter().find_map(|rule| {
            let Rule::AnythingBut(literals) = rule else { return None };
            let can_stand = |literal: &Literal| scalar.admits(&Rule::Equals(literal.clone()));
            if literals.iter().any(can_stand) {
                return None;
            }
            let refused = Leaf {
                rules: literals.iter().cloned().map(Rule::Equals).collect(),
                ..leaf.clone()
            };
            Some(scalar.refusal(&refused))
        })
    }

    /// Returns a contradiction between the event name and the images that the pattern requires.
    /// `None` if some kind of change satisfies all conditions.
    fn contradiction(&self) -> Option<RemarkText> {
        let mut demanded = Vec::new();
        self.demanded(&self.pattern.root, &mut demanded);
        let mut possible: Vec<&str> = EVENT_NAMES.to_vec();
        let mut reasons = Vec::new();
        for leaf in demanded {
            let path: Vec<&str> = leaf.path.iter().map(String::as_str).collect();
            match path.as_slice() {
                ["eventName"] => possible.retain(|name| {
                    let name = Value::String((*name).to_owned());
                    leaf.rules.iter().any(|rule| rule.accepts(&name))
                }),
                ["dynamodb", "NewImage", ..] => {
                    possible.retain(|name| *name != "REMOVE");
                    reasons.push("a REMOVE has no NewImage");
                }
                ["dynamodb", "OldImage", ..] => {
                    possible.retain(|name| *name != "INSERT");
                    reasons.push("an INSERT has no OldImage");
                }
                ["userIdentity", ..] => {
                    possible.retain(|name| *name == "REMOVE");
                    reasons.push("only a REMOVE by TTL has a userIdentity");
                }
                _ => {}
            }
        }
        reasons.dedup();
        possible.is_empty().then(|| {
            RemarkText::new(
                "eventName",
                format!("no change meets all of these conditions: {}", reasons.join(", and ")),
                "two patterns, one for each kind of change",
            )
        })
    }

    /// Collects the leaves for which a matching record must have a value.
    fn demanded<'l>(&'l self, fields: &Fields, into: &mut Vec<&'l Leaf>) {
        for (_, part) in &fields.named {
            match part {
                Part::Fields(inner) => self.demanded(inner, into),
                Part::Leaf(index) => {
                    let wants_absence = |rule: &Rule| matches!(rule, Rule::Exists(false));
                    let leaf = self.pattern.leaves.get(*index);
                    into.extend(leaf.filter(|leaf| !leaf.rules.iter().any(wants_absence)));
                }
            }
        }
    }

    /// Returns the kind of scalar to which a path leads, or a remark if the path leads to no
    /// scalar.
    fn expect(&self, path: &[String]) -> Result<Scalar, RemarkText> {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        match names.as_slice() {
            ["eventName"] => Ok(Scalar::OneOf(EVENT_NAMES)),
            ["eventID" | "eventVersion"] => Ok(Scalar::Text),
            ["userIdentity", "type"] => Ok(Scalar::OneOf(&["Service"])),
            ["userIdentity", "principalId"] => Ok(Scalar::OneOf(&["dynamodb.amazonaws.com"])),
            ["dynamodb", rest @ ..] => self.expect_change(rest),
            ["userIdentity", name, ..] => Err(RemarkText::new(
                name,
                format!("`userIdentity` has no field `{name}`, only `type` and `principalId`"),
                r#"{"userIdentity": {"type": ["Service"], "principalId": ["dynamodb.amazonaws.com"]}}"#,
            )),
            ["userIdentity"] => Err(RemarkText::new(
                "userIdentity",
                "`userIdentity` is an object, and rules match only the values in it",
                r#"{"userIdentity": {"type": ["Service"]}}"#,
            )),
            [name, ..] if ADDED_AFTER_FILTERING.contains(name) => Err(RemarkText::new(
                name,
                format!("Lambda adds `{name}` to a record only after filtering"),
                "a filter without this field, because a mapping reads only one stream",
            )),
            [name @ ("eventName" | "eventID" | "eventVersion"), ..] => Err(RemarkText::new(
                name,
                format!("`{name}` is a string"),
                format!("{{\"{name}\": [\"…\"]}}"),
            )),
            [name, ..] => Err(RemarkText::new(
                name,
                format!("a record has no field `{name}`"),
                "eventName, userIdentity or dynamodb; attributes are below dynamodb.NewImage",
            )),
            [] => {
                Err(RemarkText::new("{", "a record is an object", "{\"eventName\": [\"INSERT\"]}"))
            }
        }
    }

    fn expect_change(&self, path: &[&str]) -> Result<Scalar, RemarkText> {
        let lacking = |image: &str, view: &str| {
            RemarkText::new(
                image,
                format!("the stream's view type excludes `{image}` from every record"),
                format!("{VIEW_TYPE}{view}` in the table"),
            )
        };
        match path {
            ["ApproximateCreationDateTime" | "SizeBytes"] => Ok(Scalar::Number),
            ["SequenceNumber"] => Ok(Scalar::Text),
            ["StreamViewType"] => Ok(Scalar::OneOf(VIEW_TYPES)),
            ["NewImage", ..] if !self.shape.new_image => {
                Err(lacking("NewImage", "NEW_AND_OLD_IMAGES"))
            }
            ["OldImage", ..] if !self.shape.old_image => {
                Err(lacking("OldImage", "NEW_AND_OLD_IMAGES"))
            }
            ["NewImage" | "OldImage", name, types @ ..] => {
                let of_table = self.shape.keys.as_ref().and_then(|keys| keys.get(*name));
                let kind = of_table.or_else(|| self.shape.index_keys.get(*name));
                expect_typed(name, types, kind.copied())
            }
            ["Keys", name, types @ ..] => match &self.shape.keys {
                None => expect_typed(name, types, None),
                Some(keys) => match keys.get(*name) {
                    Some(kind) => expect_typed(name, types, Some(kind)),
                    None => Err(RemarkText::new(
                        name,
                        format!("`{name}` is not a key of the table"),
                        keys.keys().cloned().collect::<Vec<_>>().join(" or "),
                    )),
                },
            },
            [name @ ("Keys" | "NewImage" | "OldImage")] => Err(RemarkText::new(
                name,
                format!("`{name}` is an object, and rules match only the values in it"),
                format!("{{\"{name}\": {{\"attribute\": {{\"S\": [\"…\"]}}}}}}"),
            )),
            [name, ..] => Err(RemarkText::new(
                name,
                format!("a record's `dynamodb` has no field `{name}`"),
                "Keys, NewImage or OldImage",
            )),
            [] => Err(RemarkText::new(
                "dynamodb",
                "`dynamodb` is an object, and rules match only the values in it",
                "Keys, NewImage or OldImage below it",
            )),
        }
    }
}

/// Returns the kind of scalar at a path below an attribute's name. The path begins with the type of
/// the attribute.
fn expect_typed(name: &str, path: &[&str], kind: Option<&str>) -> Result<Scalar, RemarkText> {
    let wanted = |types: &str| format!("{{\"{name}\": {{\"{types}\": [\"…\"]}}}}");
    if let ([found, ..], Some(kind)) = (path, kind)
        && *found != kind
    {
        let problem = format!("the key `{name}` is of type {kind}, not {found}");
        return Err(RemarkText::new(found, problem, wanted(kind)));
    }
    match path {
        [] => Err(RemarkText::new(
            name,
            format!(
                "an attribute is an object such as {{\"S\": \"text\"}}, so a rule directly on `{name}` never matches"
            ),
            wanted(kind.unwrap_or("S")),
        )),
        ["S" | "B" | "SS" | "BS"] => Ok(Scalar::Text),
        ["N" | "NS"] => Ok(Scalar::NumberText),
        ["BOOL"] => Ok(Scalar::Bool),
        ["NULL"] => Ok(Scalar::True),
        ["M", inner, rest @ ..] => expect_typed(inner, rest, None),
        ["L", rest @ ..] if !rest.is_empty() => expect_typed("L", rest, None),
        [kind @ ("M" | "L")] => Err(RemarkText::new(
            kind,
            format!("`{kind}` contains objects, and rules match only the values in them"),
            match *kind {
                "L" => r#"{"L": {"S": ["…"]}}"#,
                _ => r#"{"M": {"name": {"S": ["…"]}}}"#,
            },
        )),
        [kind @ ("S" | "N" | "B" | "SS" | "NS" | "BS" | "BOOL" | "NULL"), next, ..] => Err(
            RemarkText::new(next, format!("a value of type `{kind}` has no fields"), wanted(kind)),
        ),
        [unknown, ..] => Err(RemarkText::new(
            unknown,
            format!("`{unknown}` is not an attribute type"),
            format!("{} with S, N, B, BOOL, NULL, M, L, SS, NS or BS", wanted("S")),
        )),
    }
}

impl Scalar {
    /// Returns true if the rule accepts at least one value of this kind.
    fn admits(&self, rule: &Rule) -> bool {
        let is_negative = matches!(rule, Rule::AnythingBut(_) | Rule::AnythingButText(_));
        match (self, rule) {
            (_, Rule::Exists(_)) => true,
            (Self::OneOf(texts), rule) => {
                texts.iter().any(|text| rule.accepts(&Value::String((*text).to_owned())))
            }
            (Self::True, rule) => rule.accepts(&Value::Bool(true)),
            (Self::NumberText, Rule::Equals(Literal::Text(text))) => {
                canonical(text).is_some_and(|canonical| canonical == *text)
            }
            (Self::Text, Rule::Equals(Literal::Text(_)))
            | (Self::Text | Self::NumberText, Rule::Text(_))
            | (Self::Number, Rule::Equals(Literal::Number(_)) | Rule::Numeric(_))
            | (Self::Bool, Rule::Equals(Literal::Bool(_))) => true,
            _ => is_negative,
        }
    }

    /// Returns the reason why no rule of a leaf accepts a value of this kind, and a remedy.
    fn refusal(&self, leaf: &Leaf) -> RemarkText {
        let name = leaf.path.last().map_or("", String::as_str);
        let rule = leaf.rules.first();
        let marked = match rule {
            Some(Rule::Equals(Literal::Text(text))) => format!("\"{text}\""),
            Some(Rule::Equals(literal)) => literal.to_string(),
            Some(Rule::Numeric(_)) => "numeric".to_owned(),
            _ => name.to_owned(),
        };
        let (problem, remedy) = match (self, rule) {
            (Self::OneOf(texts), _) => {
                let texts: Vec<String> = texts.iter().map(|text| format!("\"{text}\"")).collect();
                let written = marked.trim_matches('"').to_owned();
                let remedy = match written.as_str() {
                    "DELETE" => "\"REMOVE\"".to_owned(),
                    "UPDATE" => "\"MODIFY\"".to_owned(),
                    "PUT" | "CREATE" => "\"INSERT\"".to_owned(),
                    _ => texts.join(" or "),
                };
                (format!("`{name}` never has this value; it is always {}", texts.join(" or ")), remedy)
            }
            (Self::NumberText, Some(Rule::Numeric(_))) => (
                "a record contains a DynamoDB number as a string, and `numeric` never matches a string".to_owned(),
                "[\"300\"] for single values, or compare in the function".to_owned(),
            ),
            (Self::NumberText, Some(Rule::Equals(Literal::Number(number)))) => (
                "a record contains a DynamoDB number as a string, which never equals a JSON number"
                    .to_owned(),
                format!("\"{}\"", canonical(number).unwrap_or_else(|| number.clone())),
            ),
            (Self::NumberText, Some(Rule::Equals(Literal::Text(text)))) => match canonical(text) {
                Some(canonical) => (
                    format!("DynamoDB writes this number as \"{canonical}\""),
                    format!("\"{canonical}\""),
                ),
                None => (
                    format!("\"{text}\" is not a number"),
                    "a number as a string, such as \"300\"".to_owned(),
                ),
            },
            (Self::Text | Self::NumberText, _) => (
                "the value of this field is a string, which the rule does not match".to_owned(),
                "[\"text\"]".to_owned(),
            ),
            (Self::Number, _) => (
                "the value of this field is a number, which the rule does not match".to_owned(),
                "{\"numeric\": [\">\", 0]}".to_owned(),
            ),
            (Self::Bool, _) => (
                "the value of this field is true or false, which the rule does not match".to_owned(),
                "[true]".to_owned(),
            ),
            (Self::True, _) => ("the value of this field is always true".to_owned(), "[true]".to_owned()),
        };
        let path = match leaf.path.as_slice() {
            [_] => String::new(),
            path => path.join("."),
        };
        RemarkText { path, marked, problem, remedy }
    }
}

/// Returns a number in the notation that DynamoDB uses in records; `None` if the string is not a
/// number.
fn canonical(text: &str) -> Option<String> {
    text.parse::<Number>().ok().map(|number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    /// Runs the cases of `testdata/reach/*.txt`. A case is an optional line `shape`, then patterns.
    #[test]
    fn text_cases() {
        cases::check("reach", || run_case);
    }

    fn run_case(input: &str) -> String {
        let index_keys = BTreeMap::new();
        let mut shape = RecordShape { keys: None, index_keys, new_image: true, old_image: true };
        let mut output = String::new();
        for line in input.lines() {
            match line.split_once(' ').unwrap() {
                ("keys", text) => {
                    let pairs = text.split(' ').map(|pair| pair.split_once(':').unwrap());
                    let kind = |kind| ["S", "N", "B"].into_iter().find(|known| *known == kind);
                    let typed = pairs.map(|(name, text)| (name.to_owned(), kind(text).unwrap()));
                    shape.keys = Some(typed.collect());
                }
                ("index-keys", text) => {
                    let pairs = text.split(' ').map(|pair| pair.split_once(':').unwrap());
                    let kind = |kind| ["S", "N", "B"].into_iter().find(|known| *known == kind);
                    let typed = pairs.map(|(name, text)| (name.to_owned(), kind(text).unwrap()));
                    shape.index_keys = typed.collect();
                }
                ("view", text) => {
                    shape.new_image = text.starts_with("NEW");
                    shape.old_image = text.contains("OLD");
                }
                ("pattern", text) => {
                    let remarks = FilterCriteria::compile(&[text]).unwrap().remarks(&shape);
                    let Some(Remark { fault, marked, problem, remedy, .. }) = remarks.first()
                    else {
                        output.push_str("may match\n");
                        continue;
                    };
                    assert!(text.contains(marked.as_str()), "{marked} is not in {text}");
                    let word = match fault {
                        PatternFault::NeverMatches => "never",
                        PatternFault::AlwaysMatches => "always",
                        PatternFault::ExcludesNothing => "excludes nothing",
                    };
                    output.push_str(&format!("{word} at {marked}: {problem}; write {remedy}\n"));
                }
                (word, _) => panic!("`{word}` is no word of a case"),
            }
        }
        output
    }
}
