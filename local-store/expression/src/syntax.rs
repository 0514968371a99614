//! The syntax tree of an expression. Only the grammar is checked, and the tree may contain
//! placeholders of names and values.
//!
//! The parser limits the depth (`NESTING_MAX`), so recursion over the tree is safe.

use crate::comparator::Comparator;

/// One step of a path. The first step is never an index.
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

/// A function call `name(argument, ...)`, with at least one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    pub(crate) name: &'a str,
    pub(crate) arguments: Vec<Node<'a>>,
}

/// A node of a condition, or of the right-hand side of `SET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node<'a> {
    /// A list of at least two members.
    And(Vec<Node<'a>>),
    /// A list of at least two members.
    Or(Vec<Node<'a>>),
    /// A node with `NOT`, repeated `times` times.
    Not {
        times: usize,
        inner: Box<Node<'a>>,
    },
    /// A node in parentheses, never directly in other parentheses.
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
    /// Returns the node without the parentheses around it.
    pub(crate) fn unwrapped(&self) -> &Node<'a> {
        match self {
            Self::Group(inner) => inner.unwrapped(),
            other => other,
        }
    }

    /// Returns whether the node yields a value, so that it can be an operand of a comparator.
    pub(crate) fn is_operand(&self) -> bool {
        matches!(self.unwrapped(), Self::Path(_) | Self::Value(_) | Self::Call(_))
    }

    /// Returns whether the node yields a value and is never a condition.
    pub(crate) fn is_bare_operand(&self) -> bool {
        matches!(self.unwrapped(), Self::Path(_) | Self::Value(_))
    }
}

/// The section of an action in an update expression.
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

/// One action of an update expression; `value` is `None` only for `REMOVE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action<'a> {
    pub(crate) section: Section,
    pub(crate) path: Steps<'a>,
    pub(crate) value: Option<Node<'a>>,
}

/// An update expression: its actions, and its sections in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpdateSyntax<'a> {
    pub(crate) sections: Vec<Section>,
    pub(crate) actions: Vec<Action<'a>>,
}
