//! Filters that match a pattern.
//!
//! A string is refused if jq's regex library and Rust's may match it differently. An example is a
//! non-ASCII string and a pattern with a character class. The module `regex` refuses patterns that
//! the two libraries may interpret differently.

use std::sync::Arc;

use super::arithmetic;
use super::builtin::Builtin;
use super::evaluation::Scope;
use super::machine::Machine;
use super::paths::described;
use super::regex::Regex;
use super::stop::{Flow, Stop};
use super::syntax::Term;
use super::value::{Object, Val};

/// The maximum number of compiled patterns that one evaluation caches.
const KEPT_MAX: usize = 64;

/// A match: the byte ranges of the whole match and of each group.
struct MatchGroups(Vec<Option<(usize, usize)>>);

impl MatchGroups {
    fn whole(&self) -> (usize, usize) {
        self.0.first().copied().flatten().unwrap_or_default()
    }
}

impl Machine {
    /// Returns the matches of a pattern in a string.
    fn matches(&self, regex: &Regex, text: &str) -> Flow<Vec<MatchGroups>> {
        if regex.needs_ascii && !text.is_ascii() {
            return Err(Stop::refused(
                "the pattern uses character classes, so it is available only for ASCII strings",
            ));
        }
        if regex.has_end && text.ends_with('\n') {
            return Err(Stop::refused(
                "`$` is not available for a string that ends with a line break",
            ));
        }
        let mut found = Vec::new();
        let mut start = 0;
        while let Some(captures) =
            text.get(start..).and_then(|_| regex.regex.captures_at(text, start))
        {
            let groups =
                captures.iter().map(|group| group.map(|group| (group.start(), group.end())));
            let one = MatchGroups(groups.collect());
            let (from, to) = one.whole();
            self.charge(1 + (to - start) as u64 / 8)?;
            let next = text.get(to..).and_then(|rest| rest.chars().next());
            if from == to && next.is_some_and(|next| !next.is_ascii()) {
                return Err(Stop::refused(
                    "an empty match before a character that is not ASCII is not available",
                ));
            }
            start = if from == to { to + next.map_or(1, char::len_utf8) } else { to };
            if from != to || !regex.skips_empty {
                found.push(one);
            }
            if !regex.is_global || start > text.len() {
                break;
            }
        }
        Ok(found)
    }

    fn regex(&self, pattern: &str, flags: &str) -> Flow<Arc<Regex>> {
        let key = (pattern.to_owned(), flags.to_owned());
        if let Some(regex) = self.patterns.borrow().get(&key) {
            return Ok(regex.clone());
        }
        self.charge(100)?;
        let regex = Arc::new(Regex::compile(pattern, flags)?);
        let mut kept = self.patterns.borrow_mut();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(key, regex.clone());
        Ok(regex)
    }

    /// Evaluates filters that match a pattern.
    pub(super) fn pattern(
        &self,
        builtin: Builtin,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let is_replacing = matches!(builtin, Builtin::Sub | Builtin::Gsub);
        let none = Term::Literal(Val::Null);
        let flags = arguments.get(if is_replacing { 2 } else { 1 }).unwrap_or(&none);
        let pattern = arguments.first().unwrap_or(&none);
        self.pairs(pattern, flags, scope, input, &mut |pattern, flags| {
            let (pattern, flags) = self.asked(builtin, pattern, flags)?;
            let Val::Str(text) = input else {
                return Err(Stop::error(format!(
                    "{} cannot be matched, as it is not a string",
                    described(input)
                )));
            };
            let regex = self.regex(&pattern, &flags)?;
            let found = self.matches(&regex, text)?;
            match builtin {
                Builtin::Test => receive(Val::Bool(!found.is_empty())),
                Builtin::Match => {
                    found.iter().try_for_each(|found| receive(match_of(text, &regex, found)))
                }
                Builtin::Capture => {
                    found.iter().try_for_each(|found| receive(captures_of(text, &regex, found)))
                }
                Builtin::Scan => found.iter().try_for_each(|found| receive(scanned(text, found))),
                Builtin::Split => receive(parts(text, &found).map(Val::from).collect()),
                Builtin::Splits => {
                    parts(text, &found).try_for_each(|part| receive(Val::from(part)))
                }
                _ => {
                    let Some(with) = arguments.get(1) else { return Ok(()) };
                    receive(self.replace(with, scope, text, &regex, &found)?)
                }
            }
        })
    }

    /// Returns the pattern and the flags from the filter's arguments.
    fn asked(&self, builtin: Builtin, pattern: Val, flags: Val) -> Flow<(String, String)> {
        let (pattern, flags) = match (&pattern, &flags) {
            (Val::Arr(both), Val::Null) => {
                let mut both = both.members().iter().cloned();
                (both.next().unwrap_or_default(), both.next().unwrap_or_default())
            }
            _ => (pattern, flags),
        };
        let Val::Str(pattern) = &pattern else {
            return Err(Stop::error(format!("{} cannot be matched", described(&pattern))));
        };
        let flags = match &flags {
            Val::Null => "",
            Val::Str(flags) => flags,
            flags => return Err(Stop::error(format!("{} is not a string", described(flags)))),
        };
        let is_global =
            matches!(builtin, Builtin::Gsub | Builtin::Scan | Builtin::Split | Builtin::Splits);
        Ok((pattern.to_string(), format!("{flags}{}", if is_global { "g" } else { "" })))
    }

    /// Replaces each match in a string by the value of a term.
    fn replace(
        &self,
        with: &Term,
        scope: &Scope<'_>,
        text: &str,
        regex: &Regex,
        found: &[MatchGroups],
    ) -> Flow<Val> {
        let (mut replaced, mut end) = (String::new(), 0);
        for one in found {
            let (from, to) = one.whole();
            let mut values = self.all(with, scope, &captures_of(text, regex, one))?;
            let (Some(value), true) = (values.pop(), values.is_empty()) else {
                return Err(Stop::refused("a replacement must be exactly one string"));
            };
            replaced.push_str(text.get(end..from).unwrap_or(""));
            match value {
                Val::Null => {}
                Val::Str(value) => replaced.push_str(&value),
                value => {
                    arithmetic::add(self, Val::from(replaced), value)?;
                    return Err(Stop::refused("a replacement must be a string"));
                }
            }
            self.text_of(replaced.len())?;
            end = to;
        }
        replaced.push_str(text.get(end..).unwrap_or(""));
        self.text_of(replaced.len())?;
        Ok(Val::from(replaced))
    }
}

fn slice(text: &str, (from, to): (usize, usize)) -> Val {
    Val::from(text.get(from..to).unwrap_or(""))
}

fn object<const N: usize>(members: [(&str, Val); N]) -> Val {
    members.into_iter().map(|(name, value)| (Arc::from(name), value)).collect()
}

/// Returns the result of `match`.
fn match_of(text: &str, regex: &Regex, found: &MatchGroups) -> Val {
    let characters = |to: usize| text.get(..to).unwrap_or("").chars().count();
    let place = |(from, to): (usize, usize)| {
        let (from, to) = (characters(from), characters(to));
        (Val::count(from), Val::count(to - from))
    };
    let groups = regex.names.iter().zip(found.0.iter().skip(1)).map(|(name, group)| {
        let name = name.as_deref().map_or(Val::Null, Val::from);
        let (offset, length) = group.map_or((Val::from(-1.0), Val::count(0)), place);
        let string = group.map_or(Val::Null, |group| slice(text, group));
        match group {
            Some(_) => {
                object([("offset", offset), ("length", length), ("string", string), ("name", name)])
            }
            None => {
                object([("offset", offset), ("string", string), ("length", length), ("name", name)])
            }
        }
    });
    let captures = groups.collect();
    let (offset, length) = place(found.whole());
    let string = slice(text, found.whole());
    object([("offset", offset), ("length", length), ("string", string), ("captures", captures)])
}

/// Returns the named groups of a match as an object.
fn captures_of(text: &str, regex: &Regex, found: &MatchGroups) -> Val {
    let mut captures = Object::default();
    for (name, group) in regex.names.iter().zip(found.0.iter().skip(1)) {
        if let Some(name) = name {
            captures.set(name.as_str().into(), group.map_or(Val::Null, |group| slice(text, group)));
        }
    }
    Val::Obj(Arc::new(captures))
}

/// Returns the result of `scan`.
fn scanned(text: &str, found: &MatchGroups) -> Val {
    if found.0.len() < 2 {
        return slice(text, found.whole());
    }
    let groups = found.0.iter().skip(1);
    groups.map(|group| group.map_or(Val::Null, |group| slice(text, group))).collect()
}

/// Returns the substrings between the matches.
fn parts<'t>(text: &'t str, found: &[MatchGroups]) -> impl Iterator<Item = &'t str> {
    let ends = found.iter().map(MatchGroups::whole).chain([(text.len(), text.len())]);
    let mut begin = 0;
    let bounds: Vec<_> = ends.map(|(from, to)| (std::mem::replace(&mut begin, to), from)).collect();
    bounds.into_iter().map(|(begin, end)| text.get(begin..end).unwrap_or(""))
}
