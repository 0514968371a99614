//! The tree of a template: nodes with their locations in the text.

use crate::{diagnostic::Span, syntax::intrinsic::Intrinsic};

/// A node of a template's tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// The node's location in the text.
    pub at: Span,
    /// The node's value.
    pub kind: Kind,
}

/// The value of a node.
#[derive(Clone, Debug)]
pub enum Kind {
    /// An empty value, `null` or `~`.
    Null,
    /// A scalar. Numbers and booleans are also stored as strings, because CloudFormation does not
    /// distinguish `"1"` from `1`.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, with its entries in the order of the text.
    Map(Vec<Entry>),
    /// An intrinsic function, in its short (`!Ref x`) or long form (`Ref: x`).
    Call(Intrinsic, Box<Node>),
    /// An unknown intrinsic function, which was already reported.
    Unknown,
}

/// An entry of a mapping: a key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The location of the key.
    pub key_at: Span,
    /// The value of the key.
    pub value: Node,
}

impl Node {
    /// Returns the value of a key; `None` if the node is not a mapping or lacks the key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Returns the entries of a mapping. For any other node, the result is empty.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the string of a scalar; `None` for any other node.
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a description of the node's kind for messages.
    pub fn description(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "nothing",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
            Kind::Call(..) | Kind::Unknown => "an intrinsic function",
        }
    }
}
