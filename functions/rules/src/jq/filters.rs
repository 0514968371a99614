//! Named filters that do more than evaluate each argument once.
//!
//! The filters that map one value to one value are in `simple`, `arrays`, `texts`, `patterns` and
//! `times`.

use std::sync::Arc;

use super::arithmetic;
use super::arrays;
use super::builtin::Builtin;
use super::evaluation::{PositionedValue, Receiver, Scope};
use super::machine::Machine;
use super::paths;
use super::simple;
use super::stop::{Flow, Stop};
use super::syntax::Term;
use super::value::{Array, Val};

/// The maximum number of arrays that `combinations` combines.
const COMBINED_MAX: usize = 64;

/// A function that collects the children of a value, the last child first. It returns whether the
/// value itself is passed to the receiver.
type Visit<'v> = &'v dyn Fn(&PositionedValue, &mut Vec<Flow<PositionedValue>>) -> Flow<bool>;

impl Machine {
    /// Evaluates a filter and passes its values to a receiver. This function implements the filters
    /// that preserve paths.
    pub(super) fn call(
        &self,
        builtin: Builtin,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &PositionedValue,
        receive: Receiver<'_>,
    ) -> Flow {
        let pass_if = |passes: bool, receive: Receiver<'_>| {
            if passes { receive(input.clone()) } else { Ok(()) }
        };
        let value = &input.value;
        match (builtin, arguments) {
            (Builtin::Empty, _) => Ok(()),
            (Builtin::Error, []) => Err(Stop::Error(value.clone())),
            (Builtin::Error, [message, ..]) => {
                self.each(message, scope, value, &mut |message| Err(Stop::Error(message)))
            }
            (Builtin::Select, [condition, ..]) => {
                self.each(condition, scope, value, &mut |met| pass_if(met.is_true(), receive))
            }
            (Builtin::Recurse | Builtin::While | Builtin::Until, _) => {
                self.recursion(builtin, arguments, scope, input, receive)
            }
            (Builtin::First, []) => self.nth(&Val::count(0), input, receive),
            (Builtin::Last, []) => self.nth(&Val::from(-1.0), input, receive),
            (Builtin::Nth, [place]) => {
                self.each(place, scope, value, &mut |place| self.nth(&place, input, receive))
            }
            (
                Builtin::First | Builtin::Last | Builtin::Limit | Builtin::Skip | Builtin::Nth,
                [_, ..],
            ) => self.some_of(builtin, arguments, scope, input, receive),
            (Builtin::Getpath, [path, ..]) => self.each(path, scope, value, &mut |path| {
                let Val::Arr(path) = &path else {
                    return Err(Stop::error("Path must be specified as an array"));
                };
                let found = paths::get(value, path.members())?;
                let mut at = input.clone();
                for key in path.members() {
                    at = at.below(key, Val::Null)?;
                }
                receive(PositionedValue { value: found, ..at })
            }),
            _ => match simple::selects(builtin, value)? {
                Some(passes) => pass_if(passes, receive),
                None => self.filter(builtin, arguments, scope, value, &mut |value| {
                    receive(input.made(value))
                }),
            },
        }
    }

    /// Evaluates recursive filters: filters that are applied again to their own results.
    fn recursion(
        &self,
        builtin: Builtin,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &PositionedValue,
        receive: Receiver<'_>,
    ) -> Flow {
        match (builtin, arguments) {
            (Builtin::Recurse, []) => self.everything(input, receive),
            (Builtin::Recurse, [next]) => self.unfold(input, receive, &|at, next_ones| {
                self.children(next, None, scope, at, next_ones);
                Ok(true)
            }),
            (Builtin::Recurse, [next, condition, ..]) => {
                self.unfold(input, receive, &|at, next_ones| {
                    self.children(next, Some(condition), scope, at, next_ones);
                    Ok(true)
                })
            }
            (Builtin::While, [condition, update, ..]) => {
                self.unfold(input, receive, &|at, next_ones| {
                    let is_met = self.one(condition, scope, &at.value)?.is_true();
                    if is_met {
                        self.children(update, None, scope, at, next_ones);
                    }
                    Ok(is_met)
                })
            }
            (Builtin::Until, [condition, update, ..]) => {
                self.unfold(input, receive, &|at, next_ones| {
                    let is_met = self.one(condition, scope, &at.value)?.is_true();
                    if !is_met {
                        self.children(update, None, scope, at, next_ones);
                    }
                    Ok(is_met)
                })
            }
            _ => Ok(()),
        }
    }

    /// Evaluates filters that select values of a term by position or condition.
    fn some_of(
        &self,
        builtin: Builtin,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &PositionedValue,
        receive: Receiver<'_>,
    ) -> Flow {
        let value = &input.value;
        match (builtin, arguments) {
            (Builtin::First, [of, ..]) => {
                let mut first = None;
                self.until_enough(of, scope, input, &mut |at| {
                    first = Some(at);
                    Ok(true)
                })?;
                first.map_or(Ok(()), receive)
            }
            (Builtin::Last, [of, ..]) => {
                let mut last = None;
                self.run(of, scope, input, &mut |at| {
                    last = Some(input.made(at.value));
                    Ok(())
                })?;
                last.map_or(Ok(()), receive)
            }
            (Builtin::Limit | Builtin::Skip | Builtin::Nth, [count, of, ..]) => {
                self.each(count, scope, value, &mut |count| {
                    self.counted(builtin, &count, of, scope, input, receive)
                })
            }
            _ => Ok(()),
        }
    }

    fn nth(&self, place: &Val, input: &PositionedValue, receive: Receiver<'_>) -> Flow {
        if !matches!(place, Val::Num(_)) {
            return Err(Stop::refused("`nth` needs a number"));
        }
        let value = paths::index(&input.value, place)?;
        receive(input.below(place, value)?)
    }

    /// Returns the only value of a term. A term with no value or with several values is refused.
    pub(super) fn one(&self, term: &Term, scope: &Scope<'_>, input: &Val) -> Flow<Val> {
        let mut values = self.all(term, scope, input)?;
        match (values.pop(), values.is_empty()) {
            (Some(value), true) => Ok(value),
            _ => Err(Stop::refused("the argument must yield exactly one value")),
        }
    }

    /// Collects the values of a term, the last value first. If the term ends early, the reason is
    /// the first element of the result.
    fn children(
        &self,
        next: &Term,
        condition: Option<&Term>,
        scope: &Scope<'_>,
        at: &PositionedValue,
        next_ones: &mut Vec<Flow<PositionedValue>>,
    ) {
        let ended = self.run(next, scope, at, &mut |child| {
            self.charge(1)?;
            let Some(condition) = condition else {
                next_ones.push(Ok(child));
                return Ok(());
            };
            self.each(condition, scope, &child.value, &mut |is_met| {
                if is_met.is_true() {
                    next_ones.push(Ok(child.clone()));
                }
                Ok(())
            })
        });
        if let Err(stop) = ended {
            next_ones.push(Err(stop));
        }
        next_ones.reverse();
    }

    /// Passes a value to the receiver if `visit` returns true, then processes each child in the
    /// same way.
    fn unfold(&self, input: &PositionedValue, receive: Receiver<'_>, visit: Visit<'_>) -> Flow {
        let mut open = vec![Ok(input.clone())];
        while let Some(at) = open.pop() {
            self.charge(1)?;
            let at = at?;
            let mut children = Vec::new();
            if visit(&at, &mut children)? {
                receive(at)?;
            }
            open.append(&mut children);
        }
        Ok(())
    }

    /// Passes a value and all values within it to the receiver.
    fn everything(&self, at: &PositionedValue, receive: Receiver<'_>) -> Flow {
        self.unfold(at, receive, &|at, next_ones| {
            if let Val::Arr(_) | Val::Obj(_) = at.value {
                self.members(at, &mut |member| {
                    next_ones.push(Ok(member));
                    Ok(())
                })?;
                next_ones.reverse();
            }
            Ok(true)
        })
    }

    /// Evaluates `limit`, `skip` and `nth` of a term.
    fn counted(
        &self,
        builtin: Builtin,
        count: &Val,
        of: &Term,
        scope: &Scope<'_>,
        input: &PositionedValue,
        receive: Receiver<'_>,
    ) -> Flow {
        let Val::Num(count) = count else {
            return Err(Stop::refused("a count must be a number"));
        };
        let count = arithmetic::float(count)?;
        let negative = match builtin {
            Builtin::Limit => "limit doesn't support negative count",
            Builtin::Skip => "skip doesn't support negative count",
            _ => "nth doesn't support negative indices",
        };
        if count < 0.0 {
            return Err(Stop::error(negative));
        }
        if count.is_nan() || count.fract() != 0.0 {
            return Err(Stop::refused("a count must be a whole number"));
        }
        let mut seen = 0.0;
        match builtin {
            Builtin::Limit if count == 0.0 => Ok(()),
            Builtin::Limit => self.until_enough(of, scope, input, &mut |at| {
                seen += 1.0;
                receive(at)?;
                Ok(seen >= count)
            }),
            Builtin::Skip => self.run(of, scope, input, &mut |at| {
                seen += 1.0;
                if seen > count { receive(at) } else { Ok(()) }
            }),
            _ => {
                let mut found = None;
                self.until_enough(of, scope, input, &mut |at| {
                    seen += 1.0;
                    let is_found = seen > count;
                    found = is_found.then_some(at);
                    Ok(is_found)
                })?;
                found.map_or(Ok(()), receive)
            }
        }
    }

    /// Evaluates filters whose results are computed and therefore have no path.
    fn filter(
        &self,
        builtin: Builtin,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        match (builtin, arguments) {
            (
                Builtin::Path | Builtin::Paths | Builtin::Del | Builtin::Pick | Builtin::Setpath,
                _,
            ) => self.path_filter(builtin, arguments, scope, input, receive),
            (Builtin::Map | Builtin::MapValues | Builtin::WithEntries | Builtin::Walk, _) => {
                self.member_filter(builtin, arguments, scope, input, receive)
            }
            (Builtin::Any | Builtin::All | Builtin::Isempty | Builtin::Add, _) => {
                self.summary(builtin, arguments, scope, input, receive)
            }
            (Builtin::Range, _) => self.range(arguments, scope, input, receive),
            (
                Builtin::SortBy
                | Builtin::GroupBy
                | Builtin::UniqueBy
                | Builtin::MinBy
                | Builtin::MaxBy,
                [by, ..],
            ) => receive(self.by(builtin, by, scope, input)?),
            (Builtin::InValues, _) | (Builtin::IndexBy, _) => {
                self.sql(builtin, arguments, scope, input, receive)
            }
            (Builtin::Inside | Builtin::In, [of, ..]) => self.each(of, scope, input, &mut |of| {
                receive(match builtin {
                    Builtin::Inside => simple::contains(self, &of, input)?,
                    _ => simple::has(&of, input)?,
                })
            }),
            (Builtin::Combinations, of) => self.combinations(of.first(), scope, input, receive),
            (
                Builtin::Test
                | Builtin::Match
                | Builtin::Capture
                | Builtin::Scan
                | Builtin::Sub
                | Builtin::Gsub
                | Builtin::Splits,
                _,
            )
            | (Builtin::Split, [_, _, ..]) => {
                self.pattern(builtin, arguments, scope, input, receive)
            }
            (Builtin::Pow, [base, power, ..]) => {
                self.pairs(base, power, scope, input, &mut |base, power| {
                    receive(simple::power(&base, &power)?)
                })
            }
            (_, []) => receive(self.bounded(simple::of(self, builtin, input)?)?),
            (_, [argument, ..]) => self.each(argument, scope, input, &mut |argument| {
                let value = simple::with(self, builtin, input, &argument)?;
                receive(self.bounded(value)?)
            }),
        }
    }

    fn combinations(
        &self,
        of: Option<&Term>,
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let arrays = match of {
            None => arrays::combined(input)?,
            Some(count) => {
                let count = self.one(count, scope, input)?;
                let places = arrays::counted_to(&count, COMBINED_MAX)?;
                vec![input.clone(); places]
            }
        };
        if arrays.len() > COMBINED_MAX {
            return Err(Stop::refused("`combinations` of more than 64 arrays is not available"));
        }
        self.combine(&arrays, &mut Vec::new(), receive)
    }

    /// Evaluates filters whose arguments or results are paths.
    fn path_filter(
        &self,
        builtin: Builtin,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        match (builtin, arguments) {
            (Builtin::Path, [path, ..]) => self
                .each_path(path, scope, input, &mut |path, _| receive(path.into_iter().collect())),
            (Builtin::Paths, of) => self.paths(of.first(), scope, input, receive),
            (Builtin::Del, [path, ..]) => {
                let mut gone = Vec::new();
                self.each_path(path, scope, input, &mut |path, _| {
                    gone.push(path.into_iter().collect());
                    Ok(())
                })?;
                receive(paths::delete(self, input, gone)?)
            }
            (Builtin::Pick, [path, ..]) => {
                let mut picked = Val::Null;
                self.each_path(path, scope, input, &mut |path, _| {
                    let value = paths::get(input, &path)?;
                    picked = paths::set(self, std::mem::take(&mut picked), &path, value)?;
                    Ok(())
                })?;
                receive(self.bounded(picked)?)
            }
            (Builtin::Setpath, [path, value, ..]) => {
                self.pairs(path, value, scope, input, &mut |path, value| {
                    let Val::Arr(path) = path else {
                        return Err(Stop::error("Path must be specified as an array"));
                    };
                    let set = paths::set(self, input.clone(), path.members(), value)?;
                    receive(self.bounded(set)?)
                })
            }
            _ => Ok(()),
        }
    }

    /// Evaluates filters that evaluate a term for each member.
    fn member_filter(
        &self,
        builtin: Builtin,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let members = Term::Each(Box::new(Term::Identity), false);
        match (builtin, arguments) {
            (Builtin::Map, [each, ..]) => {
                let mapped = self.mapped(each, scope, input.clone())?;
                receive(self.bounded(Val::Arr(Arc::new(mapped)))?)
            }
            (Builtin::MapValues, [each, ..]) => receive(self.update(&members, each, scope, input)?),
            (Builtin::WithEntries, [each, ..]) => {
                let changed = self.mapped(each, scope, simple::to_entries(input)?)?;
                receive(simple::from_entries(self, &Val::Arr(Arc::new(changed)))?)
            }
            (Builtin::Walk, [each, ..]) => self.walk(each, scope, input, receive),
            _ => Ok(()),
        }
    }

    /// Returns the values of a term for each member.
    fn mapped(&self, each: &Term, scope: &Scope<'_>, of: Val) -> Flow<Array> {
        let mut array = Array::default();
        self.members(&PositionedValue::off(of), &mut |member| {
            self.each(each, scope, &member.value, &mut |value| {
                self.charge(1)?;
                array.push(value);
                Ok(())
            })
        })?;
        Ok(array)
    }

    /// Evaluates filters that reduce many values to one.
    fn summary(
        &self,
        builtin: Builtin,
        arguments: &[Term],
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let members = Term::Each(Box::new(Term::Identity), false);
        match (builtin, arguments) {
            (Builtin::Any | Builtin::All, _) => {
                let (of, condition) = match arguments {
                    [of, condition, ..] => (of, condition),
                    [condition] => (&members, condition),
                    [] => (&members, &Term::Identity),
                };
                let wanted = builtin == Builtin::Any;
                let mut is_found = false;
                self.until_enough(of, scope, &PositionedValue::off(input.clone()), &mut |at| {
                    self.until_enough(condition, scope, &at, &mut |met| {
                        is_found = met.value.is_true() == wanted;
                        Ok(is_found)
                    })?;
                    Ok(is_found)
                })?;
                receive(Val::Bool(is_found == wanted))
            }
            (Builtin::Isempty, [of, ..]) => {
                let mut is_empty = true;
                self.until_enough(of, scope, &PositionedValue::off(input.clone()), &mut |_| {
                    is_empty = false;
                    Ok(true)
                })?;
                receive(Val::Bool(is_empty))
            }
            (Builtin::Add, of) => {
                let mut sum = Val::Null;
                self.each(of.first().unwrap_or(&members), scope, input, &mut |value| {
                    sum = arithmetic::add(self, std::mem::take(&mut sum), value)?;
                    Ok(())
                })?;
                receive(sum)
            }
            _ => Ok(()),
        }
    }

    fn paths(
        &self,
        condition: Option<&Term>,
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let all = Term::Call(Builtin::Recurse, Vec::new());
        self.each_path(&all, scope, input, &mut |path, value| {
            if path.is_empty() {
                return Ok(());
            }
            let path: Val = path.into_iter().collect();
            match condition {
                None => receive(path),
                Some(condition) => self.each(condition, scope, &value, &mut |is_met| {
                    if is_met.is_true() { receive(path.clone()) } else { Ok(()) }
                }),
            }
        })
    }
}
