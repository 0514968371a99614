//! Filters over many values: `walk`, `range`, sorting by a term, `INDEX`, combinations.

use std::sync::Arc;

use super::arithmetic;
use super::arrays;
use super::builtin::Builtin;
use super::evaluation::{PositionedValue, Scope};
use super::json;
use super::machine::Machine;
use super::paths;
use super::stop::{Flow, Stop};
use super::syntax::Term;
use super::value::{Array, Object, Val};

impl Machine {
    pub(super) fn walk(
        &self,
        each: &Term,
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        self.charge(1)?;
        let walked = match input {
            Val::Arr(array) => {
                let mut walked = Array::default();
                for member in array.members() {
                    self.walk(each, scope, member, &mut |value| {
                        walked.push(value);
                        Ok(())
                    })?;
                }
                Val::Arr(Arc::new(walked))
            }
            Val::Obj(object) => {
                let mut walked = Object::default();
                for (name, member) in object.members() {
                    let mut first = None;
                    let ended = self.walk(each, scope, member, &mut |value| {
                        first = Some(value);
                        Err(Stop::NoMoreValues)
                    });
                    match (ended, first) {
                        (Ok(()) | Err(Stop::NoMoreValues), Some(value)) => {
                            walked.set(name.clone(), value);
                        }
                        (Ok(()), None) => {}
                        (ended, _) => return ended,
                    }
                }
                Val::Obj(Arc::new(walked))
            }
            value => value.clone(),
        };
        self.each(each, scope, &self.bounded(walked)?, receive)
    }

    pub(super) fn range(
        &self,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let (zero, one) = (Term::Literal(Val::count(0)), Term::Literal(Val::count(1)));
        let (from, to, by) = match arguments {
            [from, to, by, ..] => (from, to, by),
            [from, to] => (from, to, &one),
            [to] => (&zero, to, &one),
            [] => return Ok(()),
        };
        let number = |value: &Val| match value {
            Val::Num(number) => arithmetic::float(number),
            _ => Err(Stop::error("Range bounds must be numeric")),
        };
        self.each(from, scope, input, &mut |from| {
            self.each(to, scope, input, &mut |to| {
                self.each(by, scope, input, &mut |by| {
                    let (mut at, to, by) = (number(&from)?, number(&to)?, number(&by)?);
                    while (by > 0.0 && at < to) || (by < 0.0 && at > to) {
                        self.charge(1)?;
                        receive(Val::from(at))?;
                        at += by;
                    }
                    Ok(())
                })
            })
        })
    }

    /// Evaluates filters that sort or group an array by the values of a term.
    pub(super) fn by(
        &self,
        builtin: Builtin,
        by: &Term,
        scope: &Scope<'_>,
        input: &Val,
    ) -> Flow<Val> {
        let Val::Arr(array) = input else {
            if let Val::Obj(_) = input {
                let message = format!("{} cannot be sorted", paths::described(input));
                return Err(Stop::error(message));
            }
            let message = format!("Cannot iterate over {}", paths::described(input));
            return Err(Stop::error(message));
        };
        let mut keyed = Vec::new();
        for member in array.members() {
            let key = self.all(by, scope, member)?;
            keyed.push((key.into_iter().collect::<Val>(), member.clone()));
        }
        arrays::ordered(self, builtin, keyed)
    }

    pub(super) fn sql(
        &self,
        builtin: Builtin,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let members = Term::Each(Box::new(Term::Identity), false);
        if builtin == Builtin::InValues {
            let (of, values) = match arguments {
                [of, values, ..] => (of, values),
                [values] => (&Term::Identity, values),
                [] => return Ok(()),
            };
            let mut is_found = false;
            let found = self.pairs(of, values, scope, input, &mut |of, value| {
                is_found = of == value;
                if is_found { Err(Stop::NoMoreValues) } else { Ok(()) }
            });
            return match found {
                Err(Stop::NoMoreValues) if is_found => receive(Val::Bool(true)),
                Ok(()) => receive(Val::Bool(false)),
                ended => ended,
            };
        }
        let (of, by) = match arguments {
            [of, by, ..] => (of, by),
            [by] => (&members, by),
            [] => return Ok(()),
        };
        let mut object = Object::default();
        self.each(of, scope, input, &mut |row| {
            let key = self.one(by, scope, &row)?;
            self.charge(key.nodes())?;
            let Val::Str(name) = json::text_of(&key) else { return Ok(()) };
            object.set(name, row);
            Ok(())
        })?;
        receive(self.bounded(Val::Obj(Arc::new(object)))?)
    }

    pub(super) fn combine(
        &self,
        arrays: &[Val],
        chosen: &mut Vec<Val>,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let Some((first, rest)) = arrays.split_first() else {
            self.charge(chosen.len() as u64)?;
            return receive(chosen.iter().cloned().collect());
        };
        self.members(&PositionedValue::off(first.clone()), &mut |member| {
            chosen.push(member.value);
            let ended = self.combine(rest, chosen, receive);
            chosen.pop();
            ended
        })
    }
}
