//! Static analysis: the attribute paths that a jq program reads.
//!
//! A path that no item has is probably misspelt. The analysis walks the program's syntax tree once.
//! It tracks the place in the item that each part yields. If the place is unknown, the part adds no
//! path. The program therefore reads every returned path, and may read further paths.
//! (`attribute_analysis` returns the attributes that a program *can* read.)

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::{AttributeValue, Item};

use crate::jq::{Binding, Builtin, Change, Math, Pattern, Piece, Term};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Name(String),
    /// Any member of a list.
    Member,
}

/// The path of an attribute, such as `.lines[].sku`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AttributePath(Vec<Step>);

impl fmt::Display for AttributePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            match step {
                Step::Name(name) => write!(f, ".{name}")?,
                Step::Member => f.write_str("[]")?,
            }
        }
        Ok(())
    }
}

/// A name that no item of a sample has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Absent {
    /// The path including the name, such as `.info.actrs`.
    pub path: String,
    /// The name.
    pub name: String,
    /// The names that items of the sample have at the same place.
    pub known: BTreeSet<String>,
}

impl AttributePath {
    /// Returns a path of names, without list members.
    pub(super) fn of_names(names: &[String]) -> Self {
        Self(names.iter().cloned().map(Step::Name).collect())
    }

    /// Returns the first name of this path that no item has. Returns `None` if an item has the
    /// path, or if no item has any name at that place.
    pub(super) fn absent(&self, items: &[Item]) -> Option<Absent> {
        let mut tops: Vec<&BTreeMap<String, AttributeValue>> =
            items.iter().map(|item| &item.0).collect();
        let mut lists: Vec<&AttributeValue> = Vec::new();
        for (number, step) in self.0.iter().enumerate() {
            let values: Vec<&AttributeValue> = match step {
                // In the program, sets and binary values are objects with names that begin with
                // `$`, see `view`.
                Step::Name(name) if name.starts_with('$') => return None,
                Step::Name(name) => tops.iter().filter_map(|members| members.get(name)).collect(),
                Step::Member => lists.iter().flat_map(|list| members_of(list)).collect(),
            };
            if values.is_empty() {
                let Step::Name(name) = step else { return None };
                let known: BTreeSet<String> =
                    tops.iter().flat_map(|members| members.keys().cloned()).collect();
                let path = Self(self.0.iter().take(number + 1).cloned().collect()).to_string();
                // If no item has a name at this place, a missing name proves nothing.
                return (!known.is_empty()).then(|| Absent { path, name: name.clone(), known });
            }
            tops = values.iter().filter_map(|value| value.as_map()).collect();
            lists = values;
        }
        None
    }
}

/// Returns the members of a list or the values of a map.
fn members_of(value: &AttributeValue) -> Vec<&AttributeValue> {
    match value {
        AttributeValue::L(members) => members.iter().collect(),
        AttributeValue::M(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

/// The place in the item that a part of a program yields; `None` if it is unknown.
type Place = Option<AttributePath>;
/// The places of variables.
type Vars = BTreeMap<Binding, Place>;

/// Returns the paths that a program reads. The result does not contain paths that the program sets
/// itself.
pub(super) fn of(term: &Term) -> BTreeSet<AttributePath> {
    let mut walk = PathAnalysis::default();
    walk.term(term, &Some(AttributePath::default()), &Vars::new());
    let is_made = |path: &AttributePath| match path.0.first() {
        Some(Step::Name(name)) => walk.made.contains(name),
        _ => false,
    };
    walk.paths.iter().filter(|path| !is_made(path)).cloned().collect()
}

#[derive(Default)]
struct PathAnalysis {
    paths: BTreeSet<AttributePath>,
    /// The outermost names that the program sets.
    made: BTreeSet<String>,
}

impl PathAnalysis {
    fn term(&mut self, term: &Term, input: &Place, vars: &Vars) -> Place {
        match term {
            Term::Identity => input.clone(),
            Term::Literal(_) | Term::Array(None) | Term::Break(_) => None,
            Term::Variable(name) => vars.get(name).cloned().flatten(),
            Term::Text(_, pieces) => {
                for piece in pieces {
                    if let Piece::Term(term) = piece {
                        self.term(term, input, vars);
                    }
                }
                None
            }
            Term::Array(Some(inner)) | Term::Negative(inner) => {
                self.term(inner, input, vars);
                None
            }
            Term::Object(members) => {
                self.object(members, input, vars);
                None
            }
            Term::Label(_, inner) => self.term(inner, input, vars),
            Term::Index(of, key, _) => {
                let place = self.term(of, input, vars);
                self.term(key, input, vars);
                self.read(place, key.literal())
            }
            Term::Slice(of, from, to, _) => {
                for bound in [from, to].into_iter().flatten() {
                    self.term(bound, input, vars);
                }
                self.term(of, input, vars)
            }
            Term::Each(of, _) => member(&self.term(of, input, vars)),
            Term::Call(builtin, arguments) => self.call(*builtin, arguments, input, vars),
            _ => self.flow(term, input, vars),
        }
    }

    /// Walks terms that return, compare or change values.
    fn flow(&mut self, term: &Term, input: &Place, vars: &Vars) -> Place {
        match term {
            Term::Pipe(first, then) => {
                let place = self.term(first, input, vars);
                self.term(then, &place, vars)
            }
            Term::Bind(source, pattern, body) => {
                let place = self.term(source, input, vars);
                let inner = self.bind(pattern, &place, vars);
                self.term(body, input, &inner)
            }
            Term::Comma(left, right) | Term::Alternative(left, right) => {
                let left = self.term(left, input, vars);
                either(left, &self.term(right, input, vars))
            }
            Term::If(condition, then, otherwise) => {
                self.term(condition, input, vars);
                let then = self.term(then, input, vars);
                either(then, &self.term(otherwise, input, vars))
            }
            Term::Try(inner, catch) => {
                let place = self.term(inner, input, vars);
                match catch {
                    None => place,
                    Some(catch) => either(place, &self.term(catch, &None, vars)),
                }
            }
            Term::And(left, right) | Term::Or(left, right) | Term::Compare(_, left, right) => {
                self.term(left, input, vars);
                self.term(right, input, vars);
                None
            }
            Term::Math(math, left, right) => {
                let place = self.term(left, input, vars);
                self.term(right, input, vars);
                let is_item = place.as_ref().is_some_and(|path| path.0.is_empty());
                // The result is the same item with more attributes.
                place.filter(|_| is_item && matches!(math, Math::Add | Math::Multiply))
            }
            Term::Update(left, right) => {
                let place = self.term(left, input, vars);
                self.term(right, &place, vars);
                input.clone()
            }
            Term::Change(change, left, right) => {
                match change {
                    Change::Assign | Change::Alternative => self.assign(left, input, vars),
                    Change::Math(_) => drop(self.term(left, input, vars)),
                }
                self.term(right, input, vars);
                input.clone()
            }
            Term::Reduce(over, pattern, begin, update) => {
                let inner = self.over(over, pattern, input, vars);
                self.term(begin, input, vars);
                self.term(update, &None, &inner);
                None
            }
            Term::Foreach(over, pattern, begin, update, extract) => {
                let inner = self.over(over, pattern, input, vars);
                self.term(begin, input, vars);
                for term in [Some(update), extract.as_ref()].into_iter().flatten() {
                    self.term(term, &None, &inner);
                }
                None
            }
            _ => None,
        }
    }

    fn over(&mut self, over: &Term, pattern: &Pattern, input: &Place, vars: &Vars) -> Vars {
        let place = self.term(over, input, vars);
        self.bind(pattern, &place, vars)
    }

    /// Records that a name is read, and returns its place. Without a literal name, returns the
    /// place of a list member.
    fn read(&mut self, place: Place, name: Option<&str>) -> Place {
        let Some(name) = name else { return member(&place) };
        let mut path = place?;
        path.0.push(Step::Name(name.to_owned()));
        self.paths.insert(path.clone());
        Some(path)
    }

    /// Walks an assignment. The assigned path may be new, so it does not count as read.
    fn assign(&mut self, left: &Term, input: &Place, vars: &Vars) {
        let mut apart = Self::default();
        let place = apart.term(left, input, vars);
        if let Some(Step::Name(name)) = place.as_ref().and_then(|path| path.0.first()) {
            self.made.insert(name.clone());
        }
    }

    fn object(&mut self, members: &[(Term, Term)], input: &Place, vars: &Vars) {
        for (key, value) in members {
            self.term(key, input, vars);
            let place = self.term(value, input, vars);
            let Some(name) = key.literal() else { continue };
            // `{name}` copies the attribute. Any other value sets it.
            let own = AttributePath(vec![Step::Name(name.to_owned())]);
            if place != Some(own) {
                self.made.insert(name.to_owned());
            }
        }
    }

    fn bind(&mut self, pattern: &Pattern, place: &Place, vars: &Vars) -> Vars {
        let mut bound = vars.clone();
        let mut open = vec![(pattern, place.clone())];
        while let Some((pattern, place)) = open.pop() {
            match pattern {
                Pattern::Variable(name) => drop(bound.insert(*name, place)),
                Pattern::Array(members) => {
                    open.extend(members.iter().map(|inner| (inner, member(&place))));
                }
                Pattern::Object(members) => {
                    for (key, name, inner) in members {
                        let place = self.read(place.clone(), Some(key));
                        bound.extend(name.map(|name| (name, place.clone())));
                        open.extend(inner.as_ref().map(|inner| (inner, place.clone())));
                    }
                }
            }
        }
        bound
    }

    /// Walks filters. The input of their arguments is the filter's own input, a member of it, or an
    /// unknown value.
    fn call(&mut self, name: Builtin, arguments: &[Term], input: &Place, vars: &Vars) -> Place {
        use Builtin as B;
        match (name, arguments) {
            (B::Arrays | B::Booleans | B::Iterables | B::Nulls | B::Numbers, [])
            | (B::Objects | B::Scalars | B::Strings | B::Values, []) => input.clone(),
            (B::Select | B::Del, [inner]) => {
                self.term(inner, input, vars);
                input.clone()
            }
            (B::Has, [key]) => {
                self.term(key, input, vars);
                if key.literal().is_some() {
                    self.read(input.clone(), key.literal());
                }
                None
            }
            (B::Any | B::All, [of, condition]) => {
                let place = self.term(of, input, vars);
                self.term(condition, &place, vars);
                None
            }
            (B::Any | B::All | B::Map | B::MapValues, [inner])
            | (B::GroupBy | B::UniqueBy | B::SortBy | B::MinBy | B::MaxBy, [inner]) => {
                self.term(inner, &member(input), vars);
                input.clone().filter(|_| name == B::SortBy)
            }
            (B::First | B::Last, [of]) => self.term(of, input, vars),
            (B::Limit | B::Skip | B::Nth, [count, of]) => {
                self.term(count, input, vars);
                self.term(of, input, vars)
            }
            (B::Add | B::Error | B::Isempty | B::Path | B::Pick, _)
            | (B::Contains | B::Inside | B::Startswith | B::Endswith | B::Join | B::Split, _)
            | (B::Test | B::Match | B::Capture | B::Scan | B::Sub | B::Gsub, _)
            | (B::Ltrimstr | B::Rtrimstr | B::Trimstr | B::Strftime | B::Index, _) => {
                for argument in arguments {
                    self.term(argument, input, vars);
                }
                None
            }
            _ => {
                for argument in arguments {
                    self.term(argument, &None, vars);
                }
                None
            }
        }
    }
}

fn member(place: &Place) -> Place {
    let mut path = place.clone()?;
    path.0.push(Step::Member);
    Some(path)
}

/// Returns the place of a value that comes from one of two parts; `None` if their places differ.
fn either(left: Place, right: &Place) -> Place {
    left.filter(|left| right.as_ref() == Some(left))
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;
    use crate::jq::Program;

    fn paths(program: &str) -> String {
        let program = Program::parse(program).unwrap();
        let paths = of(program.term());
        paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_paths_of_programs() {
        for (program, expected) in [
            (".tennant == \"2\"", ".tennant"),
            ("select(.town) | {p, town}", ".p .town"),
            (". + {kind: \"cat\"} | .kind", ""),
            (".state //= \"open\"", ""),
            (".state = .old | del(.old)", ".old"),
            ("any(.tags[]?; . == \"x\")", ".tags"),
            ("any(.lines[]; .sku == \"x\")", ".lines .lines[].sku"),
            (".lines |= map(.sku)", ".lines .lines[].sku"),
            (".info.actors | length", ".info .info.actors"),
            ("has(\"hold\") and (.a.b // .c)", ".a .a.b .c .hold"),
            (". as {id: $id, $name} | $id + $name", ".id .name"),
            ("if .a then . else {b: 1} end | .c", ".a"),
            ("to_entries | map(.value)", ""),
            (".text | startswith(\"x\")", ".text"),
            ("reduce .lines[] as $l (0; . + $l.price)", ".lines .lines[].price"),
            ("with_entries(select(.key != \"x\"))", ""),
            ("\"\\(.first) \\(.last)\"", ".first .last"),
            (".p |= ltrimstr(\"cat/\")", ".p"),
        ] {
            assert_eq!(paths(program), expected, "{program}");
        }
    }

    #[test]
    fn an_absent_name_is_reported_with_the_existing_ones() {
        let items = [
            r#"{"tenant":{"S":"2"},"info":{"M":{"actors":{"L":[{"M":{"name":{"S":"x"}}}]}}},"tags":{"L":[]}}"#,
            r#"{"id":{"S":"1"},"set":{"SS":["x"]}}"#,
        ]
        .map(|item| item_from_str(item).unwrap());
        let absent = |program: &str, items: &[Item]| {
            let program = Program::parse(program).unwrap();
            let absent = of(program.term());
            let absent = absent.iter().filter_map(|path| path.absent(items));
            absent
                .map(|absent| (absent.path, absent.known.into_iter().collect::<Vec<_>>()))
                .map(|(path, known)| format!("{path}: {}", known.join(",")))
                .collect::<Vec<_>>()
                .join("; ")
        };
        for (program, expected) in [
            (".tennant == \"2\"", ".tennant: id,info,set,tags,tenant"),
            (".tenant == \"2\" and .id == 1", ""),
            (".info.actrs", ".info.actrs: actors"),
            (".info.actors[].nam", ".info.actors[].nam: name"),
            (".info.actors[0].name", ""),
            // If a list is empty in all items, the names of its members are unknown.
            (".tags[].name", ""),
            (".set[\"$ss\"]", ""),
        ] {
            assert_eq!(absent(program, &items), expected, "{program}");
        }
        assert_eq!(absent(".tennant", &[]), "");
    }
}
