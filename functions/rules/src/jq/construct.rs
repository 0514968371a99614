//! Terms that construct a value: operators, strings, arrays, objects and updates.

use std::sync::Arc;

use super::arithmetic;
use super::builtin::Format;
use super::evaluation::{PositionedValue, Scope};
use super::formats;
use super::machine::Machine;
use super::paths;
use super::stop::{Flow, Stop};
use super::syntax::{Change, Comparison, Piece, Term};
use super::value::{Array, Object, Val};

impl Machine {
    /// Evaluates a term that constructs a value.
    pub(super) fn make(
        &self,
        term: &Term,
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        match term {
            Term::Text(format, pieces) => {
                self.text(*format, pieces, scope, input, String::new(), receive)
            }
            Term::Array(None) => receive(Val::Arr(Arc::default())),
            Term::Array(Some(members)) => {
                let mut array = Array::default();
                self.each(members, scope, input, &mut |member| {
                    self.charge(1)?;
                    array.push(member);
                    Ok(())
                })?;
                receive(self.bounded(Val::Arr(Arc::new(array)))?)
            }
            Term::Object(members) => self.object(members, scope, input, Object::default(), receive),
            Term::Negative(of) => {
                self.each(of, scope, input, &mut |value| receive(arithmetic::negative(&value)?))
            }
            Term::And(left, right) => self.each(left, scope, input, &mut |left| {
                if !left.is_true() {
                    return receive(Val::Bool(false));
                }
                self.each(right, scope, input, &mut |right| receive(right.is_true().into()))
            }),
            Term::Or(left, right) => self.each(left, scope, input, &mut |left| {
                if left.is_true() {
                    return receive(Val::Bool(true));
                }
                self.each(right, scope, input, &mut |right| receive(right.is_true().into()))
            }),
            Term::Math(math, left, right) => self.pairs(left, right, scope, input, &mut |a, b| {
                receive(arithmetic::calculate(self, *math, a, b)?)
            }),
            Term::Compare(comparison, left, right) => {
                self.pairs(left, right, scope, input, &mut |a, b| {
                    self.charge(a.nodes().min(b.nodes()) / 4)?;
                    receive(compared(*comparison, &a, &b)?)
                })
            }
            Term::Update(path, update) => receive(self.update(path, update, scope, input)?),
            Term::Change(change, path, operand) => {
                self.each(operand, scope, input, &mut |operand| {
                    receive(self.change(*change, path, &operand, scope, input)?)
                })
            }
            _ => Ok(()),
        }
    }

    /// Evaluates two terms and passes each pair of their values to the receiver. The second term is
    /// the outer loop, as in jq.
    pub(super) fn pairs(
        &self,
        left: &Term,
        right: &Term,
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val, Val) -> Flow,
    ) -> Flow {
        self.each(right, scope, input, &mut |right| {
            self.each(left, scope, input, &mut |left| receive(left, right.clone()))
        })
    }

    fn text(
        &self,
        format: Format,
        pieces: &[Piece],
        scope: &Scope<'_>,
        input: &Val,
        behind: String,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        // As in jq, the last piece is the outer loop.
        let Some((last, before)) = pieces.split_last() else {
            self.text_of(behind.len())?;
            return receive(Val::from(behind));
        };
        match last {
            Piece::Plain(plain) => {
                self.text(format, before, scope, input, format!("{plain}{behind}"), receive)
            }
            Piece::Term(term) => self.each(term, scope, input, &mut |value| {
                let text = formats::format(self, format, &value)?;
                self.text_of(text.len() + behind.len())?;
                self.text(format, before, scope, input, format!("{text}{behind}"), receive)
            }),
        }
    }

    fn object(
        &self,
        members: &[(Term, Term)],
        scope: &Scope<'_>,
        input: &Val,
        object: Object,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let Some(((key, value), rest)) = members.split_first() else {
            return receive(self.bounded(Val::Obj(Arc::new(object)))?);
        };
        self.each(key, scope, input, &mut |key| {
            self.each(value, scope, input, &mut |value| {
                let Val::Str(name) = &key else {
                    let key = paths::described(&key);
                    return Err(Stop::error(format!("Object keys must be strings, not {key}")));
                };
                let mut object = object.clone();
                object.set(name.clone(), value);
                self.object(rest, scope, input, object, receive)
            })
        })
    }

    /// Returns all paths that a term yields.
    fn places(&self, path: &Term, scope: &Scope<'_>, input: &Val) -> Flow<Vec<Vec<Val>>> {
        let mut places = Vec::new();
        self.each_path(path, scope, input, &mut |path, _| {
            places.push(path);
            Ok(())
        })?;
        Ok(places)
    }

    /// Evaluates `|=`. A path is deleted if the update yields nothing for it.
    pub(super) fn update(
        &self,
        path: &Term,
        update: &Term,
        scope: &Scope<'_>,
        input: &Val,
    ) -> Flow<Val> {
        let (mut value, mut gone) = (input.clone(), Vec::new());
        for place in self.places(path, scope, input)? {
            self.charge(place.len() as u64)?;
            let before = PositionedValue::off(paths::get(&value, &place)?);
            let mut after = None;
            self.until_enough(update, scope, &before, &mut |at| {
                after = Some(at.value);
                Ok(true)
            })?;
            drop(before);
            match after {
                Some(after) => value = self.bounded(paths::set(self, value, &place, after)?)?,
                None => gone.push(Val::from_iter(place)),
            }
        }
        if gone.is_empty() { Ok(value) } else { paths::delete(self, &value, gone) }
    }

    /// Evaluates `=`, `+=` and similar operators. `right` is the value of their right side.
    fn change(
        &self,
        change: Change,
        path: &Term,
        operand: &Val,
        scope: &Scope<'_>,
        input: &Val,
    ) -> Flow<Val> {
        let mut value = input.clone();
        for place in self.places(path, scope, input)? {
            self.charge(place.len() as u64)?;
            let after = match change {
                Change::Assign => operand.clone(),
                Change::Math(math) => {
                    let before = paths::get(&value, &place)?;
                    arithmetic::calculate(self, math, before, operand.clone())?
                }
                Change::Alternative => {
                    let before = paths::get(&value, &place)?;
                    if before.is_true() { before } else { operand.clone() }
                }
            };
            value = self.bounded(paths::set(self, value, &place, after)?)?;
        }
        Ok(value)
    }
}

/// Returns the result of a comparison. The comparison of two numbers is refused if jq's rounding would
/// change the result.
fn compared(comparison: Comparison, left: &Val, right: &Val) -> Flow<Val> {
    if let (Val::Num(left), Val::Num(right)) = (left, right)
        && left.compare(right).is_eq()
        && left.exact().is_some() != right.exact().is_some()
    {
        return Err(arithmetic::too_many_digits(left));
    }
    let order = left.compare(right);
    Ok(Val::Bool(match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::Unequal => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }))
}
