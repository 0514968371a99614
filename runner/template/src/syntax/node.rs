//! A template's tree: nodes that know their place in the text.
//! It neither reads a text nor evaluates anything.

use crate::{diagnostic::Span, syntax::intrinsic::Intrinsic};

/// A place in the tree of a template.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it stands in the text.
    pub at: Span,
    /// Its value.
    pub kind: Kind,
}

/// What stands at a place.
#[derive(Clone, Debug)]
pub enum Kind {
    /// No value, `null` or `~`.
    Null,
    /// A scalar; numbers and booleans too, as CloudFormation does not tell `"1"` from `1`.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the text.
    Map(Vec<Entry>),
    /// An intrinsic function, in its short (`!Ref x`) or long form (`Ref: x`).
    Call(Intrinsic, Box<Node>),
    /// An intrinsic function that does not exist; it is already reported.
    Unknown,
}

/// A key of a mapping and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub key_at: Span,
    /// Its value.
    pub value: Node,
}

impl Node {
    /// The value of a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The entries of a mapping; none for anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The text of a scalar.
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What this is, for a message.
    pub fn description(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "nothing",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
            Kind::Call(..) | Kind::Unknown => "an intrinsic function",
        }
    }
}
