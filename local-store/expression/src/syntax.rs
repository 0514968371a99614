//! The syntax tree as written: names and values are still placeholders, nothing is checked but
//! the grammar.
//!
//! Its depth is bounded by the parser (`NESTING_MAX`), so it may be walked recursively.

use crate::comparator::Comparator;

/// One step of a path; the first one is never an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// A bare name.
    Word(&'a str),
    /// `#name`.
    Placeholder(&'a str),
    /// The digits between brackets.
    Index(&'a str),
}

/// A document path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Steps<'a>(pub(crate) Vec<Step<'a>>);

/// `name(argument, ...)`, with at least one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    pub(crate) name: &'a str,
    pub(crate) arguments: Vec<Node<'a>>,
}

/// A node of a condition, or of the right-hand side of `SET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node<'a> {
    /// At least two members.
    And(Vec<Node<'a>>),
    /// At least two members.
    Or(Vec<Node<'a>>),
    /// `NOT`, `times` in a row.
    Not {
        times: usize,
        inner: Box<Node<'a>>,
    },
    /// Parentheses; never straight around other parentheses.
    Group(Box<Node<'a>>),
    Compare {
        comparator: Comparator,
        left: Box<Node<'a>>,
        right: Box<Node<'a>>,
    },
    Between {
        operand: Box<Node<'a>>,
        lower: Box<Node<'a>>,
        upper: Box<Node<'a>>,
    },
    In {
        operand: Box<Node<'a>>,
        candidates: Vec<Node<'a>>,
    },
    Call(Call<'a>),
    Path(Steps<'a>),
    /// `:value`.
    Value(&'a str),
    /// `left + right` or `left - right`.
    Arithmetic {
        subtract: bool,
        left: Box<Node<'a>>,
        right: Box<Node<'a>>,
    },
}

impl<'a> Node<'a> {
    /// The node without parentheses around it.
    pub(crate) fn unwrapped(&self) -> &Node<'a> {
        match self {
            Self::Group(inner) => inner.unwrapped(),
            other => other,
        }
    }

    /// Whether the node has a value, so that it may stand beside a comparator.
    pub(crate) fn is_operand(&self) -> bool {
        matches!(self.unwrapped(), Self::Path(_) | Self::Value(_) | Self::Call(_))
    }

    /// Whether the node has a value and cannot be a condition.
    pub(crate) fn is_bare_operand(&self) -> bool {
        matches!(self.unwrapped(), Self::Path(_) | Self::Value(_))
    }
}

/// The section of an update expression that an action stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Set,
    Remove,
    Add,
    Delete,
}

impl Section {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Remove => "REMOVE",
            Self::Add => "ADD",
            Self::Delete => "DELETE",
        }
    }
}

/// One action of an update expression; only `REMOVE` has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action<'a> {
    pub(crate) section: Section,
    pub(crate) path: Steps<'a>,
    pub(crate) value: Option<Node<'a>>,
}

/// An update expression: its actions, and its sections as they were opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpdateSyntax<'a> {
    pub(crate) sections: Vec<Section>,
    pub(crate) actions: Vec<Action<'a>>,
}
