//! The evaluation of syntax trees.
//!
//! A term passes each of its values to a callback, in jq's order. The term ends early if the
//! callback returns an error or needs no more values. Paths are tracked only on request.

use std::sync::Arc;

use super::machine::Machine;
use super::paths;
use super::stop::{Flow, Stop};
use super::syntax::{Binding, Pattern, Term};
use super::value::Val;

/// The position of a value in the input.
#[derive(Clone, Debug)]
pub(super) enum InputPosition {
    /// Paths are not tracked.
    Untracked,
    /// The value was computed, so it has no position.
    Computed,
    /// The value is at this path. The path is a linked list that begins with the last key.
    AtPath(Option<Arc<PathKey>>),
}

/// The last key of a path, and the keys before it.
#[derive(Debug)]
pub(super) struct PathKey {
    key: Val,
    before: Option<Arc<PathKey>>,
}

/// A value with its position.
#[derive(Clone, Debug)]
pub(super) struct PositionedValue {
    pub(super) value: Val,
    pub(super) position: InputPosition,
}

impl PositionedValue {
    /// Returns a value whose path is not tracked.
    pub(super) fn off(value: Val) -> Self {
        Self { value, position: InputPosition::Untracked }
    }

    /// Returns a value that was computed from this value and has no position.
    pub(super) fn made(&self, value: Val) -> Self {
        let position = if let InputPosition::Untracked = self.position {
            InputPosition::Untracked
        } else {
            InputPosition::Computed
        };
        Self { value, position }
    }

    /// Returns the value under a key of this value.
    pub(super) fn below(&self, key: &Val, value: Val) -> Flow<Self> {
        let position = match &self.position {
            InputPosition::Untracked => InputPosition::Untracked,
            InputPosition::AtPath(before) => InputPosition::AtPath(Some(Arc::new(PathKey {
                key: key.clone(),
                before: before.clone(),
            }))),
            // jq accepts a computed value if it equals the value at the last path.
            InputPosition::Computed => {
                let (key, value) = (super::json::write(key), super::json::write(&self.value));
                return Err(Stop::Refused(format!(
                    "Invalid path expression near attempt to access element {key} of {value}"
                )));
            }
        };
        Ok(Self { value, position })
    }

    /// Returns the path of the value.
    fn path(&self) -> Flow<Vec<Val>> {
        let InputPosition::AtPath(mut link) = self.position.clone() else {
            let value = paths::shown(&self.value);
            return Err(Stop::Refused(format!("Invalid path expression with result {value}")));
        };
        let mut path = Vec::new();
        while let Some(part) = link {
            path.push(part.key.clone());
            link = part.before.clone();
        }
        path.reverse();
        Ok(path)
    }
}

/// The bindings of variables and labels, the newest first.
pub(super) struct Scope<'s> {
    binding: Binding,
    bound: BoundValue,
    outer: Option<&'s Scope<'s>>,
}

enum BoundValue {
    Nothing,
    Value(Val),
    Label(u64),
}

impl Scope<'_> {
    const EMPTY: Scope<'static> = Scope { binding: 0, bound: BoundValue::Nothing, outer: None };

    fn find(&self, binding: Binding) -> &BoundValue {
        let mut scope = self;
        while scope.binding != binding {
            match scope.outer {
                Some(outer) => scope = outer,
                None => return &BoundValue::Nothing,
            }
        }
        &scope.bound
    }
}

/// A receiver of the values of a term.
pub(super) type Receiver<'r> = &'r mut dyn FnMut(PositionedValue) -> Flow;

impl Machine {
    /// Evaluates a program.
    pub(super) fn values(
        &self,
        term: &Term,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        self.each(term, &Scope::EMPTY, input, receive)
    }

    /// Evaluates a term without tracking paths.
    pub(super) fn each(
        &self,
        term: &Term,
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        self.run(term, scope, &PositionedValue::off(input.clone()), &mut |at| receive(at.value))
    }

    /// Returns all values of a term.
    pub(super) fn all(&self, term: &Term, scope: &Scope<'_>, input: &Val) -> Flow<Vec<Val>> {
        let mut values = Vec::new();
        self.each(term, scope, input, &mut |value| {
            self.charge(1)?;
            values.push(value);
            Ok(())
        })?;
        Ok(values)
    }

    /// Evaluates a term and passes its paths to the receiver.
    pub(super) fn each_path(
        &self,
        term: &Term,
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Vec<Val>, Val) -> Flow,
    ) -> Flow {
        let at = PositionedValue { value: input.clone(), position: InputPosition::AtPath(None) };
        self.run(term, scope, &at, &mut |at| receive(at.path()?, at.value))
    }

    /// Evaluates a term. Ends the evaluation early when the receiver returns true.
    pub(super) fn until_enough(
        &self,
        term: &Term,
        scope: &Scope<'_>,
        input: &PositionedValue,
        receive: &mut dyn FnMut(PositionedValue) -> Flow<bool>,
    ) -> Flow {
        let mut is_enough = false;
        let ended = self.run(term, scope, input, &mut |at| {
            is_enough = receive(at)?;
            if is_enough { Err(Stop::NoMoreValues) } else { Ok(()) }
        });
        match ended {
            Err(Stop::NoMoreValues) if is_enough => Ok(()),
            ended => ended,
        }
    }

    /// Passes each value of a term for an input to a receiver.
    pub(super) fn run(
        &self,
        term: &Term,
        scope: &Scope<'_>,
        input: &PositionedValue,
        receive: Receiver<'_>,
    ) -> Flow {
        self.charge(1)?;
        match term {
            Term::Identity => receive(input.clone()),
            Term::Literal(value) => receive(input.made(value.clone())),
            Term::Pipe(first, then) => {
                self.run(first, scope, input, &mut |at| self.run(then, scope, &at, receive))
            }
            Term::Comma(first, then) => {
                self.run(first, scope, input, receive)?;
                self.run(then, scope, input, receive)
            }
            Term::Index(of, key, is_optional) => self.each(key, scope, &input.value, &mut |key| {
                self.run(of, scope, input, &mut |at| {
                    self.optional(*is_optional, paths::index(&at.value, &key))?
                        .map_or(Ok(()), |value| receive(at.below(&key, value)?))
                })
            }),
            Term::Slice(of, from, to, is_optional) => {
                self.slices(from.as_deref(), to.as_deref(), scope, &input.value, &mut |key| {
                    self.run(of, scope, input, &mut |at| {
                        self.optional(*is_optional, paths::index(&at.value, &key))?
                            .map_or(Ok(()), |value| receive(at.below(&key, value)?))
                    })
                })
            }
            Term::Each(of, is_optional) => self.run(of, scope, input, &mut |at| {
                if *is_optional && !matches!(at.value, Val::Arr(_) | Val::Obj(_)) {
                    return Ok(());
                }
                self.members(&at, receive)
            }),
            Term::Variable(binding) => match scope.find(*binding) {
                BoundValue::Value(value) => receive(input.made(value.clone())),
                BoundValue::Nothing | BoundValue::Label(_) => {
                    Err(Stop::refused("a variable has no value"))
                }
            },
            Term::Call(builtin, arguments) => self.call(*builtin, arguments, scope, input, receive),
            Term::If(..)
            | Term::Try(..)
            | Term::Alternative(..)
            | Term::Bind(..)
            | Term::Label(..)
            | Term::Break(_)
            | Term::Reduce(..)
            | Term::Foreach(..) => self.control(term, scope, input, receive),
            _ => self.make(term, scope, &input.value, &mut |value| receive(input.made(value))),
        }
    }

    /// Applies `?` to an outcome: an error becomes `None`.
    fn optional(&self, is_optional: bool, outcome: Flow<Val>) -> Flow<Option<Val>> {
        match outcome {
            Err(Stop::Error(_)) if is_optional => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Passes the key of a slice to the receiver, for each pair of bounds. The key is an object
    /// with `start` and `end`.
    fn slices(
        &self,
        from: Option<&Term>,
        to: Option<&Term>,
        scope: &Scope<'_>,
        input: &Val,
        receive: &mut dyn FnMut(Val) -> Flow,
    ) -> Flow {
        let none = Term::Literal(Val::Null);
        self.each(from.unwrap_or(&none), scope, input, &mut |from| {
            self.each(to.unwrap_or(&none), scope, input, &mut |to| {
                let bounds = [(Arc::from("start"), from.clone()), (Arc::from("end"), to)];
                receive(bounds.into_iter().collect())
            })
        })
    }

    /// Passes the members of a value, with their keys, to the receiver.
    pub(super) fn members(&self, at: &PositionedValue, receive: Receiver<'_>) -> Flow {
        match &at.value {
            Val::Arr(array) => {
                for (place, member) in array.members().iter().enumerate() {
                    self.charge(1)?;
                    receive(at.below(&Val::count(place), member.clone())?)?;
                }
                Ok(())
            }
            Val::Obj(object) => {
                for (name, member) in object.members() {
                    self.charge(1)?;
                    receive(at.below(&Val::Str(name.clone()), member.clone())?)?;
                }
                Ok(())
            }
            value => {
                let value = paths::described(value);
                Err(Stop::error(format!("Cannot iterate over {value}")))
            }
        }
    }

    /// Evaluates terms that control the evaluation of other terms. They may preserve paths.
    fn control(
        &self,
        term: &Term,
        scope: &Scope<'_>,
        input: &PositionedValue,
        receive: Receiver<'_>,
    ) -> Flow {
        match term {
            Term::If(condition, then, otherwise) => {
                self.each(condition, scope, &input.value, &mut |value| {
                    let branch = if value.is_true() { then } else { otherwise };
                    self.run(branch, scope, input, receive)
                })
            }
            Term::Try(body, catch) => self.attempt(body, catch.as_deref(), scope, input, receive),
            Term::Alternative(first, otherwise) => {
                let mut is_found = false;
                self.run(first, scope, input, &mut |at| {
                    if !at.value.is_true() {
                        return Ok(());
                    }
                    is_found = true;
                    receive(at)
                })?;
                if is_found { Ok(()) } else { self.run(otherwise, scope, input, receive) }
            }
            Term::Bind(source, pattern, body) => {
                self.each(source, scope, &input.value, &mut |value| {
                    self.bind(pattern, &value, scope, &mut |scope| {
                        self.run(body, scope, input, receive)
                    })
                })
            }
            Term::Label(binding, body) => {
                let label = self.labels.get() + 1;
                self.labels.set(label);
                let bound = BoundValue::Label(label);
                let scope = Scope { binding: *binding, bound, outer: Some(scope) };
                match self.run(body, &scope, input, receive) {
                    Err(Stop::Break(found)) if found == label => Ok(()),
                    ended => ended,
                }
            }
            Term::Break(binding) => match scope.find(*binding) {
                BoundValue::Label(label) => Err(Stop::Break(*label)),
                BoundValue::Nothing | BoundValue::Value(_) => {
                    Err(Stop::refused("a label is missing"))
                }
            },
            _ => self.fold(term, scope, input, receive),
        }
    }

    /// Evaluates `reduce` and `foreach`.
    fn fold(
        &self,
        term: &Term,
        scope: &Scope<'_>,
        input: &PositionedValue,
        receive: Receiver<'_>,
    ) -> Flow {
        match term {
            Term::Reduce(source, pattern, begin, update) => {
                self.run(begin, scope, input, &mut |begin| {
                    let mut state = begin;
                    self.each(source, scope, &input.value, &mut |value| {
                        self.bind(pattern, &value, scope, &mut |scope| {
                            let before = std::mem::replace(&mut state, input.made(Val::Null));
                            self.run(update, scope, &before, &mut |after| {
                                state = input.made(after.value);
                                Ok(())
                            })
                        })
                    })?;
                    receive(state)
                })
            }
            Term::Foreach(source, pattern, begin, update, extract) => {
                self.run(begin, scope, input, &mut |begin| {
                    let mut state = begin.value;
                    self.each(source, scope, &input.value, &mut |value| {
                        self.bind(pattern, &value, scope, &mut |scope| {
                            let before = input.made(std::mem::take(&mut state));
                            self.run(update, scope, &before, &mut |after| {
                                state = after.value.clone();
                                match extract {
                                    Some(extract) => {
                                        self.run(extract, scope, &input.made(after.value), receive)
                                    }
                                    None => receive(input.made(after.value)),
                                }
                            })
                        })
                    })
                })
            }
            _ => Ok(()),
        }
    }

    /// Evaluates `try`, which catches errors of its body, but not errors of its receiver.
    pub(super) fn attempt(
        &self,
        body: &Term,
        catch: Option<&Term>,
        scope: &Scope<'_>,
        input: &PositionedValue,
        receive: Receiver<'_>,
    ) -> Flow {
        let mut passed = None;
        let ended = self.run(body, scope, input, &mut |at| {
            receive(at).map_err(|stop| {
                passed = Some(stop);
                Stop::ReceiverStopped
            })
        });
        match (ended, passed) {
            (Err(Stop::ReceiverStopped), Some(stop)) => Err(stop),
            (Err(Stop::Error(message)), _) => match catch {
                Some(catch) => self.run(catch, scope, &input.made(message), receive),
                None => Ok(()),
            },
            (ended, _) => ended,
        }
    }

    /// Binds the variables of a pattern to the parts of a value.
    fn bind(
        &self,
        pattern: &Pattern,
        value: &Val,
        scope: &Scope<'_>,
        body: &mut dyn FnMut(&Scope<'_>) -> Flow,
    ) -> Flow {
        let bound = |binding: &Binding, value: &Val| Scope {
            binding: *binding,
            bound: BoundValue::Value(value.clone()),
            outer: Some(scope),
        };
        match pattern {
            Pattern::Variable(binding) => body(&bound(binding, value)),
            Pattern::Array(members) => self.bind_members(members, 0, value, scope, body),
            Pattern::Object(members) => match members.split_first() {
                None => body(scope),
                Some(((name, binding, inner), rest)) => {
                    let member = paths::index(value, &Val::from(name.as_str()))?;
                    let rest = Pattern::Object(rest.to_vec());
                    let mut all = |scope: &Scope<'_>| match inner {
                        Some(inner) => self.bind(inner, &member, scope, &mut |scope| {
                            self.bind(&rest, value, scope, body)
                        }),
                        None => self.bind(&rest, value, scope, body),
                    };
                    match binding {
                        Some(binding) => all(&bound(binding, &member)),
                        None => all(scope),
                    }
                }
            },
        }
    }

    fn bind_members(
        &self,
        members: &[Pattern],
        place: usize,
        value: &Val,
        scope: &Scope<'_>,
        body: &mut dyn FnMut(&Scope<'_>) -> Flow,
    ) -> Flow {
        let Some((first, rest)) = members.split_first() else { return body(scope) };
        let member = paths::index(value, &Val::count(place))?;
        self.bind(first, &member, scope, &mut |scope| {
            self.bind_members(rest, place + 1, value, scope, body)
        })
    }
}
