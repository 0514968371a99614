//! Arithmetic as in jq. Operations that would lose digits are refused.

use std::sync::Arc;

use super::json;
use super::machine::Machine;
use super::number::{EXACT_MAX, Num};
use super::paths::described;
use super::stop::{Flow, Stop};
use super::syntax::Math;
use super::value::{Array, Object, Val};

/// Returns the refusal for a number that jq would round.
pub(super) fn too_many_digits(number: &Num) -> Stop {
    Stop::Refused(format!(
        "the number {} has more digits than jq can compute with; copy it unchanged",
        number.to_json()
    ))
}

/// Returns the floating-point value for a computation. The number is refused if it would lose
/// digits.
pub(super) fn float(number: &Num) -> Flow<f64> {
    number.exact().ok_or_else(|| too_many_digits(number))
}

/// Returns a computed number. The number is refused if it is so large that digits may have been
/// lost.
pub(super) fn computed(value: f64) -> Flow<Val> {
    if value.is_finite() && value.abs() > EXACT_MAX {
        return Err(Stop::Refused(format!(
            "a computed number is beyond 2^53, where jq rounds: {}",
            Num::Float(value).to_json()
        )));
    }
    Ok(Val::from(value))
}

/// Returns the value with the opposite sign.
pub(super) fn negative(value: &Val) -> Flow<Val> {
    match value {
        Val::Num(number) => Ok(Val::Num(number.negated())),
        value => Err(Stop::error(format!("{} cannot be negated", described(value)))),
    }
}

fn not_possible(left: &Val, right: &Val, what: &str) -> Stop {
    Stop::error(format!("{} and {} cannot be {what}", described(left), described(right)))
}

/// Returns the result of an arithmetic operation.
pub(super) fn calculate(machine: &Machine, math: Math, left: Val, right: Val) -> Flow<Val> {
    machine.charge(1)?;
    match math {
        Math::Add => add(machine, left, right),
        Math::Subtract => subtract(machine, &left, &right),
        Math::Multiply => multiply(machine, &left, &right),
        Math::Divide => divide(machine, &left, &right),
        Math::Modulo => modulo(&left, &right),
    }
}

/// Adds two values: `+`.
pub(super) fn add(machine: &Machine, left: Val, right: Val) -> Flow<Val> {
    match (left, right) {
        (Val::Null, other) | (other, Val::Null) => Ok(other),
        (Val::Num(left), Val::Num(right)) => computed(float(&left)? + float(&right)?),
        (Val::Str(left), Val::Str(right)) => {
            machine.text_of(left.len() + right.len())?;
            Ok(Val::from(format!("{left}{right}")))
        }
        (Val::Arr(mut left), Val::Arr(right)) => {
            let copied = if Arc::get_mut(&mut left).is_none() { left.members().len() } else { 0 };
            machine.charge((copied + right.members().len()) as u64 / 32)?;
            let array = Arc::make_mut(&mut left);
            right.members().iter().for_each(|member| array.push(member.clone()));
            machine.bounded(Val::Arr(left))
        }
        (Val::Obj(mut left), Val::Obj(right)) => {
            machine.charge((left.members().len() + right.members().len()) as u64 / 8)?;
            let object = Arc::make_mut(&mut left);
            for (name, value) in right.members() {
                object.set(name.clone(), value.clone());
            }
            machine.bounded(Val::Obj(left))
        }
        (left, right) => Err(not_possible(&left, &right, "added")),
    }
}

fn subtract(machine: &Machine, left: &Val, right: &Val) -> Flow<Val> {
    match (left, right) {
        (Val::Num(left), Val::Num(right)) => computed(float(left)? - float(right)?),
        (Val::Arr(left), Val::Arr(right)) => {
            machine.charge((left.members().len() as u64) * (right.members().len() as u64) / 8)?;
            let kept = left.members().iter().filter(|member| !right.members().contains(member));
            Ok(Val::Arr(Arc::new(kept.cloned().collect::<Array>())))
        }
        (left, right) => Err(not_possible(left, right, "subtracted")),
    }
}

fn multiply(machine: &Machine, left: &Val, right: &Val) -> Flow<Val> {
    match (left, right) {
        (Val::Num(left), Val::Num(right)) => computed(float(left)? * float(right)?),
        (Val::Str(text), Val::Num(times)) | (Val::Num(times), Val::Str(text)) => {
            let times = times.rounded();
            if times.is_nan() || times < 0.0 {
                return Ok(Val::Null);
            }
            // The length is checked before the multiplication, so that no string above the maximum
            // size is created.
            #[expect(clippy::cast_possible_truncation, reason = "saturates, which is refused")]
            let times = if times < 1.0 { usize::from(times >= 1.0) } else { times as usize };
            machine.text_of(text.len().saturating_mul(times))?;
            Ok(Val::from(text.repeat(times)))
        }
        (Val::Obj(left), Val::Obj(right)) => {
            machine.bounded(Val::Obj(Arc::new(merge(machine, left, right)?)))
        }
        (left, right) => Err(not_possible(left, right, "multiplied")),
    }
}

/// Merges two objects recursively.
fn merge(machine: &Machine, left: &Object, right: &Object) -> Flow<Object> {
    machine.charge((left.members().len() + right.members().len()) as u64 / 8)?;
    let mut merged = left.clone();
    for (name, value) in right.members() {
        let value = match (merged.members().get(name), value) {
            (Some(Val::Obj(left)), Val::Obj(right)) => {
                Val::Obj(Arc::new(merge(machine, left, right)?))
            }
            _ => value.clone(),
        };
        merged.set(name.clone(), value);
    }
    Ok(merged)
}

fn divide(machine: &Machine, left: &Val, right: &Val) -> Flow<Val> {
    match (left, right) {
        (Val::Num(dividend), Val::Num(divisor)) => {
            let (dividend, divisor) = (float(dividend)?, float(divisor)?);
            if divisor == 0.0 {
                let why = "divided because the divisor is zero";
                return Err(not_possible(left, right, why));
            }
            computed(dividend / divisor)
        }
        (Val::Str(text), Val::Str(separator)) => split(machine, text, separator),
        (left, right) => Err(not_possible(left, right, "divided")),
    }
}

/// Splits a string at each separator.
pub(super) fn split(machine: &Machine, text: &str, separator: &str) -> Flow<Val> {
    machine.charge(text.len() as u64 / 8)?;
    if text.is_empty() {
        return Ok(Val::Arr(Arc::default()));
    }
    if separator.is_empty() {
        return Ok(text.chars().map(|character| Val::from(character.to_string())).collect());
    }
    Ok(text.split(separator).map(Val::from).collect())
}

fn modulo(left: &Val, right: &Val) -> Flow<Val> {
    let (Val::Num(dividend), Val::Num(divisor)) = (left, right) else {
        return Err(not_possible(left, right, "divided (remainder)"));
    };
    let (dividend, divisor) = (float(dividend)?, float(divisor)?);
    if dividend.is_nan() || divisor.is_nan() {
        return Ok(Val::from(f64::NAN));
    }
    let is_small = |value: f64| value.abs() <= EXACT_MAX;
    if !is_small(dividend) || !is_small(divisor) {
        return Err(Stop::Refused(format!(
            "jq's remainder of numbers beyond 2^53 depends on the machine: {} % {}",
            json::write(left),
            json::write(right)
        )));
    }
    // jq truncates both operands to integers. The result has the sign of the dividend.
    let (dividend, divisor) = (dividend.trunc(), divisor.trunc().abs());
    if divisor == 0.0 {
        return Err(not_possible(left, right, "divided (remainder) because the divisor is zero"));
    }
    Ok(Val::from(dividend % divisor + 0.0))
}
