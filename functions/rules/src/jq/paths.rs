//! Access to the value at a path: get, set, delete.

use std::sync::Arc;

use super::json;
use super::machine::Machine;
use super::stop::{Flow, Stop};
use super::value::{Array, Val};

/// The maximum length of an array that grows when a value is set beyond its end.
const PLACE_MAX: f64 = 1_000_000.0;
/// The number of bytes of a value that a jq error message shows.
const SHOWN_MAX: usize = 29;

/// Returns a value as jq's error messages show it, truncated.
pub(super) fn shown(value: &Val) -> String {
    let text = json::write(value);
    if text.len() <= SHOWN_MAX {
        return text;
    }
    let closing = match value {
        Val::Str(_) => "\"",
        Val::Arr(_) => "]",
        Val::Obj(_) => "}",
        _ => "",
    };
    let mut end = SHOWN_MAX - 3 - closing.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...{closing}", text.get(..end).unwrap_or(""))
}

/// Returns a value with its type, as jq's error messages show it.
pub(super) fn described(value: &Val) -> String {
    format!("{} ({})", value.kind(), shown(value))
}

fn no_index(value: &Val, key: &Val) -> Stop {
    Stop::error(format!("Cannot index {} with {}", value.kind(), described(key)))
}

/// Returns the position in an array for a number; `None` if it is out of range.
fn place(number: f64, length: usize) -> Option<usize> {
    let number = number.trunc();
    let number = if number < 0.0 { number + length as f64 } else { number };
    if !(0.0..length as f64).contains(&number) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is below a length")]
    Some(number as usize)
}

/// Returns the bounds of a slice of an array of this length.
fn bounds(slice: &Val, length: usize) -> Flow<Option<(usize, usize)>> {
    let Val::Obj(slice) = slice else { return Ok(None) };
    let bound = |name: &str, default: f64| match slice.members().get(name) {
        Some(Val::Null) => Ok(default),
        Some(Val::Num(number)) => Ok(number.rounded()),
        _ => Err(Stop::error("Array/string slice indices must be integers")),
    };
    let length_of = length as f64;
    let within = |bound: f64| {
        let bound = if bound < 0.0 { bound + length_of } else { bound };
        bound.max(0.0).min(length_of)
    };
    let (from, to) = (bound("start", 0.0)?, bound("end", length_of)?);
    if from.is_nan() || to.is_nan() {
        return Err(Stop::refused("a slice with a NaN bound is not available"));
    }
    let (from, to) = (within(from).floor(), within(to).ceil());
    #[expect(clippy::cast_possible_truncation, reason = "both are at most a length")]
    let (from, to) = (from as usize, to as usize);
    Ok(Some((from, to.max(from))))
}

/// Returns the value under one key.
pub(super) fn index(value: &Val, key: &Val) -> Flow<Val> {
    match (value, key) {
        (Val::Obj(object), Val::Str(name)) => {
            Ok(object.members().get(name).cloned().unwrap_or_default())
        }
        (Val::Arr(array), Val::Num(number)) => {
            let members = array.members();
            let found = place(number.rounded(), members.len()).and_then(|place| members.get(place));
            Ok(found.cloned().unwrap_or_default())
        }
        (Val::Null, Val::Str(_) | Val::Num(_)) => Ok(Val::Null),
        (Val::Null, Val::Obj(slice)) => {
            let is_bound = |name: &str| {
                matches!(slice.members().get(name), None | Some(Val::Null | Val::Num(_)))
            };
            match is_bound("start") && is_bound("end") {
                true => Ok(Val::Null),
                false => Err(Stop::refused("the bounds of a slice of null must be numbers")),
            }
        }
        (Val::Arr(array), Val::Obj(_)) => match bounds(key, array.members().len())? {
            Some((from, to)) => Ok(array.members().iter().take(to).skip(from).cloned().collect()),
            None => Err(no_index(value, key)),
        },
        (Val::Str(text), Val::Obj(_)) => match bounds(key, text.chars().count())? {
            Some((from, to)) => Ok(Val::from(text.chars().take(to).skip(from).collect::<String>())),
            None => Err(no_index(value, key)),
        },
        (Val::Arr(array), Val::Arr(searched)) => Ok(places(array.members(), searched.members())),
        _ => Err(no_index(value, key)),
    }
}

/// Returns the positions at which the sequence `searched` occurs in `members`.
pub(super) fn places(members: &[Val], searched: &[Val]) -> Val {
    if searched.is_empty() {
        return Val::Arr(Arc::default());
    }
    let windows = members.windows(searched.len()).enumerate();
    windows.filter(|(_, window)| *window == searched).map(|(place, _)| Val::count(place)).collect()
}

/// Returns the value at a path.
pub(super) fn get(value: &Val, path: &[Val]) -> Flow<Val> {
    let mut found = value.clone();
    for key in path {
        if let Val::Null = found {
            return Ok(Val::Null);
        }
        found = index(&found, key)?;
    }
    Ok(found)
}

/// Returns `value` after setting the value at a path to `new`.
pub(super) fn set(machine: &Machine, value: Val, path: &[Val], new: Val) -> Flow<Val> {
    let Some((key, rest)) = path.split_first() else { return Ok(new) };
    match (value, key) {
        (Val::Null, Val::Str(_)) => set(machine, Val::Obj(Arc::default()), path, new),
        (Val::Null, Val::Num(_) | Val::Obj(_)) => set(machine, Val::Arr(Arc::default()), path, new),
        (Val::Obj(mut object), Val::Str(name)) => {
            machine.charge(object.members().len() as u64 / 8)?;
            let changed = Arc::make_mut(&mut object);
            let inner = changed.take(name);
            changed.set(name.clone(), set(machine, inner, rest, new)?);
            Ok(Val::Obj(object))
        }
        (Val::Arr(mut array), Val::Num(number)) => {
            let length = array.members().len();
            machine.charge(length as u64 / 8)?;
            let wanted = number.rounded();
            if wanted.is_nan() {
                return Err(Stop::error("Cannot set array element at NaN index"));
            }
            let from_start = if wanted < 0.0 { wanted.trunc() + length as f64 } else { wanted };
            if from_start < 0.0 {
                return Err(Stop::error("Out of bounds negative array index"));
            }
            if from_start > PLACE_MAX {
                return Err(Stop::refused("the program creates an array that is too large"));
            }
            #[expect(clippy::cast_possible_truncation, reason = "it is small")]
            let place = from_start as usize;
            machine.charge(place.saturating_sub(length) as u64)?;
            let changed = Arc::make_mut(&mut array);
            let inner = changed.take(place);
            changed.set(place, set(machine, inner, rest, new)?);
            Ok(Val::Arr(array))
        }
        (Val::Arr(array), Val::Obj(_)) => {
            let old = index(&Val::Arr(array.clone()), key)?;
            let Val::Arr(new) = set(machine, old, rest, new)? else {
                let reason = "A slice of an array can only be assigned another array";
                return Err(Stop::error(reason));
            };
            let members = array.members();
            machine.charge((members.len() + new.members().len()) as u64 / 8)?;
            let (from, to) = bounds(key, members.len())?.unwrap_or_default();
            let start = members.iter().take(from);
            let end = members.iter().skip(to);
            Ok(start.chain(new.members()).chain(end).cloned().collect())
        }
        (value, key) => Err(no_set(&value, key)),
    }
}

fn no_set(value: &Val, key: &Val) -> Stop {
    match (value, key) {
        (Val::Arr(_), _) => {
            Stop::error(format!("Cannot update field at {} index of array", key.kind()))
        }
        (Val::Obj(_), Val::Obj(_)) => Stop::error("Cannot update field at object index of object"),
        _ => no_index(value, key),
    }
}

/// Returns a value without the values at these paths.
pub(super) fn delete(machine: &Machine, value: &Val, mut paths: Vec<Val>) -> Flow<Val> {
    paths.sort_by(Val::compare);
    let mut value = value.clone();
    for path in paths.iter().rev() {
        let Val::Arr(path) = path else {
            return Err(Stop::error("Path must be specified as an array"));
        };
        value = delete_one(machine, value, path.members())?;
    }
    Ok(value)
}

fn delete_one(machine: &Machine, value: Val, path: &[Val]) -> Flow<Val> {
    let Some((key, rest)) = path.split_first() else { return Ok(Val::Null) };
    if !rest.is_empty() {
        let inner = index(&value, key)?;
        if let Val::Null = inner {
            return Ok(value);
        }
        let inner = delete_one(machine, inner, rest)?;
        return set(machine, value, std::slice::from_ref(key), inner);
    }
    match (value, key) {
        (Val::Null, _) => Ok(Val::Null),
        (Val::Obj(mut object), Val::Str(name)) => {
            machine.charge(object.members().len() as u64 / 8)?;
            Arc::make_mut(&mut object).remove(name);
            Ok(Val::Obj(object))
        }
        (Val::Arr(array), Val::Num(number)) => {
            let members = array.members();
            machine.charge(members.len() as u64 / 8)?;
            let Some(gone) = place(number.rounded(), members.len()) else {
                return Ok(Val::Arr(array));
            };
            let kept = members.iter().enumerate().filter(|(place, _)| *place != gone);
            Ok(Val::Arr(Arc::new(kept.map(|(_, member)| member.clone()).collect::<Array>())))
        }
        (Val::Arr(array), Val::Obj(_)) => {
            let members = array.members();
            let (from, to) = bounds(key, members.len())?.unwrap_or_default();
            let kept = members.iter().take(from).chain(members.iter().skip(to));
            Ok(kept.cloned().collect())
        }
        (Val::Obj(_), key) => {
            Err(Stop::error(format!("Cannot delete field at {} index of object", key.kind())))
        }
        (Val::Arr(_), key) => {
            Err(Stop::error(format!("Cannot delete field at {} index of array", key.kind())))
        }
        (value, _) => Err(Stop::error(format!("Cannot delete fields from {}", value.kind()))),
    }
}
