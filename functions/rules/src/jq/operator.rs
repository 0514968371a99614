//! The operators of jq: their precedences, and the term for an operator and its two operands.

use super::lexer::Kind;
use super::syntax::{Change, Comparison, Math, Term};

/// The precedence of an operator. An operator of higher precedence binds more strongly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Pipe,
    Comma,
    Alternative,
    Assignment,
    Or,
    And,
    Comparison,
    Sum,
    Product,
}

impl Level {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Pipe => Self::Comma,
            Self::Comma => Self::Alternative,
            Self::Alternative => Self::Assignment,
            Self::Assignment => Self::Or,
            Self::Or => Self::And,
            Self::And => Self::Comparison,
            Self::Comparison => Self::Sum,
            Self::Sum | Self::Product => Self::Product,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Operator {
    Pipe,
    Comma,
    Alternative,
    Update,
    Change(Change),
    Or,
    And,
    Compare(Comparison),
    Math(Math),
}

impl Operator {
    pub(super) fn of(kind: &Kind<'_>) -> Option<Self> {
        Some(match kind {
            Kind::Word("and") => Self::And,
            Kind::Word("or") => Self::Or,
            Kind::Sign(sign) => match *sign {
                "|" => Self::Pipe,
                "," => Self::Comma,
                "//" => Self::Alternative,
                "|=" => Self::Update,
                "=" => Self::Change(Change::Assign),
                "+=" => Self::Change(Change::Math(Math::Add)),
                "-=" => Self::Change(Change::Math(Math::Subtract)),
                "*=" => Self::Change(Change::Math(Math::Multiply)),
                "/=" => Self::Change(Change::Math(Math::Divide)),
                "%=" => Self::Change(Change::Math(Math::Modulo)),
                "//=" => Self::Change(Change::Alternative),
                "==" => Self::Compare(Comparison::Equal),
                "!=" => Self::Compare(Comparison::Unequal),
                "<" => Self::Compare(Comparison::Less),
                "<=" => Self::Compare(Comparison::LessOrEqual),
                ">" => Self::Compare(Comparison::Greater),
                ">=" => Self::Compare(Comparison::GreaterOrEqual),
                "+" => Self::Math(Math::Add),
                "-" => Self::Math(Math::Subtract),
                "*" => Self::Math(Math::Multiply),
                "/" => Self::Math(Math::Divide),
                "%" => Self::Math(Math::Modulo),
                _ => return None,
            },
            _ => return None,
        })
    }

    pub(super) fn level(self) -> Level {
        match self {
            Self::Pipe => Level::Pipe,
            Self::Comma => Level::Comma,
            Self::Alternative => Level::Alternative,
            Self::Update | Self::Change(_) => Level::Assignment,
            Self::Or => Level::Or,
            Self::And => Level::And,
            Self::Compare(_) => Level::Comparison,
            Self::Math(Math::Add | Math::Subtract) => Level::Sum,
            Self::Math(_) => Level::Product,
        }
    }

    pub(super) fn join(self, left: Term, right: Term) -> Term {
        let (left, right) = (Box::new(left), Box::new(right));
        match self {
            Self::Pipe => Term::Pipe(left, right),
            Self::Comma => Term::Comma(left, right),
            Self::Alternative => Term::Alternative(left, right),
            Self::Update => Term::Update(left, right),
            Self::Change(change) => Term::Change(change, left, right),
            Self::Or => Term::Or(left, right),
            Self::And => Term::And(left, right),
            Self::Compare(comparison) => Term::Compare(comparison, left, right),
            Self::Math(math) => Term::Math(math, left, right),
        }
    }
}
