//! Filters of strings.

use std::sync::Arc;

use super::arithmetic::add;
use super::arrays;
use super::builtin::Builtin;
use super::json;
use super::machine::Machine;
use super::paths::{described, index, places};
use super::stop::{Flow, Stop};
use super::value::Val;

/// The replacement of a code point that is not a character.
const REPLACEMENT: char = '\u{fffd}';

/// Returns the result of a string filter without arguments.
pub(super) fn of(machine: &Machine, builtin: Builtin, value: &Val) -> Flow<Val> {
    if builtin == Builtin::Implode {
        return implode(machine, value);
    }
    let Val::Str(text) = value else {
        return Err(Stop::error(match builtin {
            Builtin::Trim | Builtin::Ltrim | Builtin::Rtrim => "trim input must be a string",
            _ => "explode input must be a string",
        }));
    };
    machine.charge(text.len() as u64 / 8)?;
    Ok(match builtin {
        Builtin::AsciiDowncase => Val::from(text.to_ascii_lowercase()),
        Builtin::AsciiUpcase => Val::from(text.to_ascii_uppercase()),
        Builtin::Trim => Val::from(text.trim()),
        Builtin::Ltrim => Val::from(text.trim_start()),
        Builtin::Rtrim => Val::from(text.trim_end()),
        _ => text.chars().map(|character| Val::from(f64::from(u32::from(character)))).collect(),
    })
}

fn implode(machine: &Machine, value: &Val) -> Flow<Val> {
    let Val::Arr(array) = value else {
        return Err(Stop::error("implode input must be an array"));
    };
    machine.charge(array.members().len() as u64)?;
    let mut text = String::new();
    for member in array.members() {
        let point = match member {
            Val::Num(number) if !number.rounded().is_nan() => number.rounded(),
            member => {
                return Err(Stop::error(format!(
                    "{} can't be imploded, unicode codepoint needs to be numeric",
                    described(member)
                )));
            }
        };
        let is_point = (0.0..=f64::from(u32::from(char::MAX))).contains(&point.trunc());
        #[expect(clippy::cast_possible_truncation, reason = "it is a code point")]
        let point = is_point.then_some(point as u32);
        text.push(point.and_then(char::from_u32).unwrap_or(REPLACEMENT));
    }
    Ok(Val::from(text))
}

/// Returns the result of a filter that tests or removes the start or the end of a string.
pub(super) fn affixes(builtin: Builtin, value: &Val, affix: &Val) -> Flow<Val> {
    let (Val::Str(text), Val::Str(affix)) = (value, affix) else {
        return Err(Stop::error(match builtin {
            Builtin::Endswith | Builtin::Rtrimstr => "endswith() requires string inputs",
            _ => "startswith() requires string inputs",
        }));
    };
    let after = |text: &str| text.strip_prefix(&**affix).unwrap_or(text).to_owned();
    let before = |text: &str| text.strip_suffix(&**affix).unwrap_or(text).to_owned();
    Ok(match builtin {
        Builtin::Startswith => Val::Bool(text.starts_with(&**affix)),
        Builtin::Endswith => Val::Bool(text.ends_with(&**affix)),
        Builtin::Ltrimstr => Val::from(after(text)),
        Builtin::Rtrimstr => Val::from(before(text)),
        _ => Val::from(before(&after(text))),
    })
}

/// Returns the members of an array as one string.
pub(super) fn join(machine: &Machine, value: &Val, separator: &Val) -> Flow<Val> {
    let members = arrays::members_of(value)?;
    let mut text = String::new();
    for (place, member) in members.iter().enumerate() {
        let before = match (place, separator) {
            (0, _) | (_, Val::Null) => "",
            (_, Val::Str(separator)) => separator,
            (_, separator) => {
                add(machine, Val::from(text), separator.clone())?;
                return Err(Stop::refused("`join` takes a string"));
            }
        };
        text.push_str(before);
        match member {
            Val::Null => {}
            Val::Str(part) => text.push_str(part),
            Val::Bool(_) | Val::Num(_) => text.push_str(&json::write(member)),
            member => {
                add(machine, Val::from(text), member.clone())?;
                return Err(Stop::refused("`join` takes strings"));
            }
        }
        machine.charge(1)?;
        machine.text_of(text.len().min(64 * place))?;
    }
    Ok(Val::from(text))
}

/// Returns the positions at which `searched` occurs in a string or an array.
pub(super) fn indices(machine: &Machine, value: &Val, searched: &Val) -> Flow<Val> {
    match (value, searched) {
        (Val::Str(text), Val::Str(searched)) => {
            machine.charge(text.len() as u64)?;
            if searched.is_empty() {
                return Ok(Val::Arr(Arc::default()));
            }
            let characters = text.char_indices().enumerate();
            let found = characters.filter(|(_, (at, _))| {
                text.get(*at..).is_some_and(|rest| rest.starts_with(&**searched))
            });
            Ok(found.map(|(place, _)| Val::count(place)).collect())
        }
        (Val::Arr(array), Val::Arr(searched)) => Ok(places(array.members(), searched.members())),
        (Val::Arr(array), searched) => Ok(places(array.members(), std::slice::from_ref(searched))),
        (value, searched) => index(value, searched),
    }
}
