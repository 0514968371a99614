//! Syntax trees of jq programs, with names resolved.

use super::builtin::{Builtin, Format};
use super::value::Val;

/// A variable or a label, identified by the number of its binding.
pub(crate) type Binding = usize;

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Math {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The kind of change that an assignment makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// `=`.
    Assign,
    /// `+=`, `-=`, and the other arithmetic updates.
    Math(Math),
    /// `//=`.
    Alternative,
}

/// A part of a string.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Plain(String),
    Term(Term),
}

/// A pattern of `as`.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    Variable(Binding),
    Array(Vec<Pattern>),
    /// For each member: its name, the variable for `$name`, and the pattern of its value.
    Object(Vec<(String, Option<Binding>, Option<Pattern>)>),
}

/// A program or a part of one.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    Identity,
    Literal(Val),
    Text(Format, Vec<Piece>),
    Array(Option<Box<Term>>),
    Object(Vec<(Term, Term)>),
    Negative(Box<Term>),
    Pipe(Box<Term>, Box<Term>),
    Comma(Box<Term>, Box<Term>),
    Bind(Box<Term>, Pattern, Box<Term>),
    Alternative(Box<Term>, Box<Term>),
    And(Box<Term>, Box<Term>),
    Or(Box<Term>, Box<Term>),
    Math(Math, Box<Term>, Box<Term>),
    Compare(Comparison, Box<Term>, Box<Term>),
    /// `|=`.
    Update(Box<Term>, Box<Term>),
    Change(Change, Box<Term>, Box<Term>),
    /// The value, the key, and true if `?` follows.
    Index(Box<Term>, Box<Term>, bool),
    Slice(Box<Term>, Option<Box<Term>>, Option<Box<Term>>, bool),
    Each(Box<Term>, bool),
    If(Box<Term>, Box<Term>, Box<Term>),
    Try(Box<Term>, Option<Box<Term>>),
    Reduce(Box<Term>, Pattern, Box<Term>, Box<Term>),
    Foreach(Box<Term>, Pattern, Box<Term>, Box<Term>, Option<Box<Term>>),
    Label(Binding, Box<Term>),
    Break(Binding),
    Variable(Binding),
    Call(Builtin, Vec<Term>),
}

impl Term {
    /// Returns the value of a string literal; `None` if the term is not a literal without
    /// interpolation.
    pub(crate) fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(Val::Str(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns whether the program may yield nothing for an item: its last step, or the last step
    /// of a branch, is `select` or `empty`.
    pub(crate) fn may_drop(&self) -> bool {
        match self {
            Self::Call(Builtin::Select | Builtin::Empty, _) => true,
            Self::Pipe(first, then) => first.may_drop() || then.may_drop(),
            Self::Comma(first, then) => first.may_drop() && then.may_drop(),
            Self::Bind(_, _, then) | Self::Label(_, then) => then.may_drop(),
            Self::If(_, then, otherwise) => then.may_drop() || otherwise.may_drop(),
            Self::Call(Builtin::Values | Builtin::Objects, _) => true,
            _ => false,
        }
    }
}
