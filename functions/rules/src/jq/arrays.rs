//! Array filters: sorting, grouping, minimum and maximum, and positions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::arithmetic::float;
use super::builtin::Builtin;
use super::machine::Machine;
use super::paths::{described, index};
use super::stop::{Flow, Stop};
use super::value::{Array, Val};

/// Returns the members of an array or object.
pub(super) fn members_of(value: &Val) -> Flow<Vec<Val>> {
    match value {
        Val::Arr(array) => Ok(array.members().to_vec()),
        Val::Obj(object) => Ok(object.members().values().cloned().collect()),
        value => Err(Stop::error(format!("Cannot iterate over {}", described(value)))),
    }
}

/// Returns the arrays that `combinations` combines; empty for an empty value.
pub(super) fn combined(value: &Val) -> Flow<Vec<Val>> {
    match value {
        Val::Arr(array) => Ok(array.members().to_vec()),
        value if *value == Val::Null || *value == Val::from("") || *value == Val::count(0) => {
            Ok(Vec::new())
        }
        Val::Obj(object) if object.members().is_empty() => Ok(Vec::new()),
        value => Err(Stop::error(format!("Cannot index {} with number", value.kind()))),
    }
}

/// Returns a count, which must be an integer from 0 to `most`.
pub(super) fn counted_to(count: &Val, most: usize) -> Flow<usize> {
    let refused = || Stop::refused("a count must be an integer within its bounds");
    let Val::Num(number) = count else { return Err(refused()) };
    let number = float(number)?;
    (0..=most).find(|count| *count as f64 == number).ok_or_else(refused)
}

/// Returns the result of a filter without arguments.
pub(super) fn of(machine: &Machine, builtin: Builtin, value: &Val) -> Flow<Val> {
    match builtin {
        Builtin::Sort | Builtin::Unique | Builtin::Min | Builtin::Max => {
            let Val::Arr(array) = value else {
                let message =
                    format!("{} cannot be sorted, as it is not an array", described(value));
                return Err(Stop::error(message));
            };
            let keyed = array.members().iter().map(|member| (member.clone(), member.clone()));
            ordered(machine, builtin, keyed.collect())
        }
        Builtin::Flatten => flatten(machine, value, None),
        Builtin::Reverse => reverse(value),
        Builtin::Transpose => transpose(machine, value),
        _ => Err(Stop::refused("the filter takes an argument")),
    }
}

/// Returns the members sorted, grouped or deduplicated by their keys, or the member with the
/// minimum or maximum key.
pub(super) fn ordered(
    machine: &Machine,
    builtin: Builtin,
    mut keyed: Vec<(Val, Val)>,
) -> Flow<Val> {
    let count = keyed.len() as u64;
    let nodes: u64 = keyed.iter().map(|(key, _)| key.nodes()).sum();
    machine.charge(nodes + count * u64::from(count.checked_ilog2().unwrap_or(0)) / 4)?;
    match builtin {
        Builtin::Min | Builtin::MinBy => {
            let least = keyed
                .into_iter()
                .reduce(|least, next| if next.0.compare(&least.0).is_lt() { next } else { least });
            Ok(least.map(|(_, member)| member).unwrap_or_default())
        }
        Builtin::Max | Builtin::MaxBy => {
            let greatest = keyed.into_iter().reduce(|greatest, next| {
                if next.0.compare(&greatest.0).is_lt() { greatest } else { next }
            });
            Ok(greatest.map(|(_, member)| member).unwrap_or_default())
        }
        Builtin::Sort | Builtin::SortBy => {
            sort(&mut keyed);
            Ok(keyed.into_iter().map(|(_, member)| member).collect())
        }
        _ => {
            sort(&mut keyed);
            let groups = keyed.chunk_by(|(left, _), (right, _)| left == right);
            let members = |group: &[(Val, Val)]| -> Val {
                group.iter().map(|(_, member)| member.clone()).collect()
            };
            let first = |group: &[(Val, Val)]| {
                group.first().map(|(_, member)| member.clone()).unwrap_or_default()
            };
            Ok(match builtin {
                Builtin::GroupBy => groups.map(members).collect(),
                _ => groups.map(first).collect(),
            })
        }
    }
}

/// Sorts by keys. Equal keys keep their order. The standard library's sort requires a total order,
/// which does not exist with NaN. This merge sort works without a total order.
fn sort(keyed: &mut Vec<(Val, Val)>) {
    let mut rest = std::mem::take(keyed);
    if rest.len() < 2 {
        *keyed = rest;
        return;
    }
    let mut right = rest.split_off(rest.len() / 2);
    sort(&mut rest);
    sort(&mut right);
    let (mut left, mut right) = (rest.into_iter().peekable(), right.into_iter().peekable());
    loop {
        let is_right = match (left.peek(), right.peek()) {
            (Some((left, _)), Some((right, _))) => right.compare(left) == Ordering::Less,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (None, None) => return,
        };
        keyed.extend(if is_right { right.next() } else { left.next() });
    }
}

/// Flattens nested arrays down to `depth` levels; all levels if `depth` is `None`.
pub(super) fn flatten(machine: &Machine, value: &Val, depth: Option<&Val>) -> Flow<Val> {
    let depth = match depth {
        None => None,
        Some(Val::Num(number)) => {
            let depth = float(number)?;
            if depth < 0.0 {
                return Err(Stop::error("flatten depth must not be negative"));
            }
            if depth.is_nan() || depth.fract() != 0.0 {
                return Err(Stop::refused("`flatten` needs a whole number of levels"));
            }
            Some(depth)
        }
        Some(_) => return Err(Stop::refused("`flatten` takes a number")),
    };
    let mut flat = Array::default();
    for member in members_of(value)? {
        flatten_into(machine, &mut flat, &member, depth)?;
    }
    Ok(Val::Arr(Arc::new(flat)))
}

fn flatten_into(machine: &Machine, flat: &mut Array, value: &Val, depth: Option<f64>) -> Flow {
    machine.charge(1)?;
    match value {
        Val::Arr(array) if depth.is_none_or(|depth| depth > 0.0) => {
            let below = depth.map(|depth| depth - 1.0);
            array.members().iter().try_for_each(|member| flatten_into(machine, flat, member, below))
        }
        value => {
            flat.push(value.clone());
            Ok(())
        }
    }
}

fn reverse(value: &Val) -> Flow<Val> {
    match value {
        Val::Arr(array) => Ok(array.members().iter().rev().cloned().collect()),
        Val::Null => Ok(Val::Arr(Arc::default())),
        Val::Str(text) if text.is_empty() => Ok(Val::Arr(Arc::default())),
        Val::Obj(object) if object.members().is_empty() => Ok(Val::Arr(Arc::default())),
        value => Err(Stop::error(format!("Cannot index {} with number", value.kind()))),
    }
}

fn transpose(machine: &Machine, value: &Val) -> Flow<Val> {
    let rows = members_of(value)?;
    let mut longest = 0;
    for row in &rows {
        match row {
            Val::Arr(array) => longest = longest.max(array.members().len()),
            Val::Null => {}
            _ => return Err(Stop::refused("`transpose` takes arrays")),
        }
    }
    machine.charge((longest * rows.len()) as u64)?;
    let column = |place: usize| -> Flow<Val> {
        rows.iter().map(|row| index(row, &Val::count(place))).collect()
    };
    (0..longest).map(column).collect()
}
