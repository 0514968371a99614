//! Filters without arguments or with one value argument, and functions that other modules share with
//! them.

use std::sync::Arc;

use super::arithmetic::{computed, float, negative, split};
use super::arrays;
use super::builtin::Builtin;
use super::formats;
use super::json::{self, ParseFailure};
use super::machine::Machine;
use super::number::Num;
use super::paths::{delete, described, index};
use super::stop::{Flow, Stop};
use super::texts;
use super::times;
use super::value::{Object, Val};

/// Returns whether a filter that selects by type, such as `strings`, selects a value. Returns `None`
/// for any other filter.
pub(super) fn selects(builtin: Builtin, value: &Val) -> Flow<Option<bool>> {
    Ok(Some(match builtin {
        Builtin::Arrays => matches!(value, Val::Arr(_)),
        Builtin::Objects => matches!(value, Val::Obj(_)),
        Builtin::Iterables => matches!(value, Val::Arr(_) | Val::Obj(_)),
        Builtin::Scalars => !matches!(value, Val::Arr(_) | Val::Obj(_)),
        Builtin::Booleans => matches!(value, Val::Bool(_)),
        Builtin::Numbers => matches!(value, Val::Num(_)),
        Builtin::Strings => matches!(value, Val::Str(_)),
        Builtin::Nulls => matches!(value, Val::Null),
        Builtin::Values => !matches!(value, Val::Null),
        Builtin::Finites => matches!(value, Val::Num(number) if number.rounded().is_finite()),
        Builtin::Normals => matches!(value, Val::Num(number) if number.rounded().is_normal()),
        _ => return Ok(None),
    }))
}

/// Returns the result of a filter without arguments.
pub(super) fn of(machine: &Machine, builtin: Builtin, value: &Val) -> Flow<Val> {
    machine.charge(1)?;
    match builtin {
        Builtin::Format(format) => formats::format(machine, format, value).map(Val::from),
        Builtin::Not => Ok(Val::Bool(!value.is_true())),
        Builtin::Length => length(value),
        Builtin::Utf8bytelength => match value {
            Val::Str(text) => Ok(Val::count(text.len())),
            value => Err(Stop::error(format!(
                "{} only strings have UTF-8 byte length",
                described(value)
            ))),
        },
        Builtin::Type => Ok(Val::from(value.kind())),
        Builtin::Infinite => Ok(Val::from(f64::INFINITY)),
        Builtin::Nan => Ok(Val::from(f64::NAN)),
        Builtin::Keys | Builtin::KeysUnsorted => keys(value, builtin == Builtin::Keys),
        Builtin::ToEntries => to_entries(value),
        Builtin::FromEntries => from_entries(machine, value),
        Builtin::Tostring => {
            machine.charge(value.nodes())?;
            Ok(json::text_of(value))
        }
        Builtin::Tojson => {
            machine.charge(value.nodes())?;
            Ok(Val::from(json::write(value)))
        }
        Builtin::Fromjson => from_json(machine, value),
        Builtin::Tonumber => to_number(value),
        Builtin::Toboolean => match value {
            Val::Bool(_) => Ok(value.clone()),
            Val::Str(text) if &**text == "true" => Ok(Val::Bool(true)),
            Val::Str(text) if &**text == "false" => Ok(Val::Bool(false)),
            value => {
                Err(Stop::error(format!("{} cannot be parsed as a boolean", described(value))))
            }
        },
        Builtin::Abs if value.compare(&Val::count(0)).is_lt() => negative(value),
        Builtin::Abs => Ok(value.clone()),
        Builtin::Ceil
        | Builtin::Fabs
        | Builtin::Floor
        | Builtin::Isinfinite
        | Builtin::Isnan
        | Builtin::Isnormal
        | Builtin::Round
        | Builtin::Sqrt
        | Builtin::Trunc => number(builtin, value),
        Builtin::Fromdate
        | Builtin::Fromdateiso8601
        | Builtin::Gmtime
        | Builtin::Mktime
        | Builtin::Todate
        | Builtin::Todateiso8601 => times::of(builtin, value),
        Builtin::AsciiDowncase
        | Builtin::AsciiUpcase
        | Builtin::Explode
        | Builtin::Implode
        | Builtin::Ltrim
        | Builtin::Rtrim
        | Builtin::Trim => texts::of(machine, builtin, value),
        _ => arrays::of(machine, builtin, value),
    }
}

/// Returns the result of a filter with one value argument.
pub(super) fn with(machine: &Machine, builtin: Builtin, value: &Val, argument: &Val) -> Flow<Val> {
    machine.charge(1)?;
    match builtin {
        Builtin::Has => has(value, argument),
        Builtin::Contains => contains(machine, value, argument),
        Builtin::Startswith
        | Builtin::Endswith
        | Builtin::Ltrimstr
        | Builtin::Rtrimstr
        | Builtin::Trimstr => texts::affixes(builtin, value, argument),
        Builtin::Split => match (value, argument) {
            (Val::Str(text), Val::Str(separator)) => split(machine, text, separator),
            _ => Err(Stop::error("split input and separator must be strings")),
        },
        Builtin::Join => texts::join(machine, value, argument),
        Builtin::Flatten => arrays::flatten(machine, value, Some(argument)),
        Builtin::Indices => texts::indices(machine, value, argument),
        Builtin::Index => index(&texts::indices(machine, value, argument)?, &Val::count(0)),
        Builtin::Rindex => index(&texts::indices(machine, value, argument)?, &Val::from(-1.0)),
        Builtin::Delpaths => match argument {
            Val::Arr(paths) => delete(machine, value, paths.members().to_vec()),
            _ => Err(Stop::error("Paths must be specified as an array")),
        },
        Builtin::Strftime | Builtin::Strptime => times::with(builtin, value, argument),
        _ => Err(Stop::refused("the filter takes no argument")),
    }
}

fn length(value: &Val) -> Flow<Val> {
    match value {
        Val::Null => Ok(Val::count(0)),
        Val::Bool(_) => Err(Stop::error(format!("{} has no length", described(value)))),
        Val::Num(number) => Ok(absolute(number)),
        Val::Str(text) => Ok(Val::count(text.chars().count())),
        Val::Arr(array) => Ok(Val::count(array.members().len())),
        Val::Obj(object) => Ok(Val::count(object.members().len())),
    }
}

fn absolute(number: &Num) -> Val {
    Val::Num(if number.is_negative() { number.negated() } else { number.clone() })
}

fn number(builtin: Builtin, value: &Val) -> Flow<Val> {
    let Val::Num(number) = value else {
        let message = format!("{} number required", described(value));
        // The results for NaN differ between versions of jq.
        let is_unsure = matches!(builtin, Builtin::Isinfinite | Builtin::Isnan | Builtin::Isnormal);
        return Err(if is_unsure { Stop::Refused(message) } else { Stop::error(message) });
    };
    let float = float(number)?;
    match builtin {
        Builtin::Isinfinite => Ok(Val::Bool(float.is_infinite())),
        Builtin::Isnan => Ok(Val::Bool(float.is_nan())),
        Builtin::Isnormal => Ok(Val::Bool(float.is_normal())),
        Builtin::Ceil => computed(float.ceil()),
        Builtin::Fabs => computed(float.abs()),
        Builtin::Floor => computed(float.floor()),
        Builtin::Round => computed(float.round()),
        Builtin::Sqrt => computed(float.sqrt()),
        _ => computed(float.trunc()),
    }
}

/// Returns the result of `pow`.
pub(super) fn power(base: &Val, power: &Val) -> Flow<Val> {
    match (base, power) {
        (Val::Num(base), Val::Num(power)) => computed(float(base)?.powf(float(power)?)),
        (Val::Num(_), value) | (value, _) => {
            Err(Stop::error(format!("{} number required", described(value))))
        }
    }
}

fn to_number(value: &Val) -> Flow<Val> {
    let not_a_number = || Stop::error(format!("{} cannot be parsed as a number", described(value)));
    match value {
        Val::Num(_) => Ok(value.clone()),
        Val::Str(text) => match Num::parse(text) {
            Some(number) => Ok(Val::Num(number)),
            None if Num::is_unsure(text) => Err(Stop::refused(format!(
                "{} is not a number that can be stored",
                described(value)
            ))),
            None => Err(not_a_number()),
        },
        _ => Err(not_a_number()),
    }
}

fn from_json(machine: &Machine, value: &Val) -> Flow<Val> {
    let Val::Str(text) = value else {
        let message = format!("{} only strings can be parsed", described(value));
        return Err(Stop::error(message));
    };
    machine.charge(text.len() as u64 / 8)?;
    json::read(text).map_err(|why| match why {
        ParseFailure::NotJson => Stop::error(format!("{} (while parsing JSON)", described(value))),
        ParseFailure::MaybeValid => Stop::refused(format!(
            "{} may be parsed differently by jq: use JSON without `nan`, unpaired surrogates or very deep nesting",
            described(value)
        )),
    })
}

/// Returns the keys of a value.
fn keys(value: &Val, is_sorted: bool) -> Flow<Val> {
    match value {
        Val::Arr(array) => Ok((0..array.members().len()).map(Val::count).collect()),
        Val::Obj(object) if is_sorted => {
            Ok(object.names().into_iter().map(|name| Val::Str(name.clone())).collect())
        }
        Val::Obj(object) => {
            Ok(object.members().keys().map(|name| Val::Str(name.clone())).collect())
        }
        value => Err(Stop::error(format!("{} has no keys", described(value)))),
    }
}

/// Returns the result of `has`.
pub(super) fn has(value: &Val, key: &Val) -> Flow<Val> {
    match (value, key) {
        (Val::Obj(object), Val::Str(name)) => Ok(Val::Bool(object.members().contains_key(name))),
        (Val::Arr(array), Val::Num(number)) => {
            let place = number.rounded();
            Ok(Val::Bool(place >= 0.0 && place < array.members().len() as f64))
        }
        (Val::Null, Val::Str(_) | Val::Num(_)) => Ok(Val::Bool(false)),
        _ => Err(Stop::error(format!(
            "Cannot check whether {} has a {} key",
            value.kind(),
            key.kind()
        ))),
    }
}

/// Returns the result of `contains`.
pub(super) fn contains(machine: &Machine, value: &Val, part: &Val) -> Flow<Val> {
    // For jq, true and false have different types.
    let is_boolean = matches!(value, Val::Bool(_));
    if value.kind() != part.kind() || (is_boolean && value != part) {
        return Err(Stop::error(format!(
            "{} and {} cannot have their containment checked",
            described(value),
            described(part)
        )));
    }
    Ok(Val::Bool(holds(machine, value, part)?))
}

fn holds(machine: &Machine, value: &Val, part: &Val) -> Flow<bool> {
    machine.charge(1)?;
    match (value, part) {
        (Val::Str(text), Val::Str(part)) => {
            machine.charge(text.len() as u64 / 8)?;
            Ok(text.contains(&**part))
        }
        (Val::Arr(value), Val::Arr(part)) => {
            for wanted in part.members() {
                let mut is_found = false;
                for member in value.members() {
                    is_found = holds(machine, member, wanted)?;
                    if is_found {
                        break;
                    }
                }
                if !is_found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Val::Obj(value), Val::Obj(part)) => {
            for (name, wanted) in part.members() {
                match value.members().get(name) {
                    Some(member) if holds(machine, member, wanted)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (value, part) => Ok(value == part),
    }
}

/// Returns the result of `to_entries`.
pub(super) fn to_entries(value: &Val) -> Flow<Val> {
    let entry = |key: Val, value: &Val| {
        let members = [(Arc::from("key"), key), (Arc::from("value"), value.clone())];
        members.into_iter().collect::<Val>()
    };
    match value {
        Val::Obj(object) => Ok(object
            .members()
            .iter()
            .map(|(name, value)| entry(Val::Str(name.clone()), value))
            .collect()),
        Val::Arr(array) => Ok(array
            .members()
            .iter()
            .enumerate()
            .map(|(place, value)| entry(Val::count(place), value))
            .collect()),
        value => Err(Stop::error(format!("{} has no keys", described(value)))),
    }
}

/// Returns the result of `from_entries`.
pub(super) fn from_entries(machine: &Machine, value: &Val) -> Flow<Val> {
    let mut object = Object::default();
    for entry in arrays::members_of(value)? {
        machine.charge(1)?;
        let find = |names: &[&str]| -> Flow<Val> {
            let mut found = Val::Null;
            for name in names {
                found = index(&entry, &Val::from(*name))?;
                if found.is_true() {
                    break;
                }
            }
            Ok(found)
        };
        let Val::Str(name) = find(&["key", "Key", "name", "Name"])? else {
            let key = described(&find(&["key", "Key", "name", "Name"])?);
            return Err(Stop::error(format!("Cannot use {key} as object key")));
        };
        let has_value = has(&entry, &Val::from("value"))?.is_true();
        let value = index(&entry, &Val::from(if has_value { "value" } else { "Value" }))?;
        object.set(name, value);
    }
    Ok(Val::Obj(Arc::new(object)))
}
