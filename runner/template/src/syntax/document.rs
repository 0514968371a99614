//! Parses the text of a template into a tree of nodes with their locations. In a template,
//! intrinsic functions are recognised. In a data file, their names are ordinary keys.
//!
//! No input can exhaust the stack or the memory. The events of the YAML parser are processed in a
//! loop, without recursion. The depth and the number of nodes are limited, because nested aliases
//! can grow exponentially.

use std::{borrow::Cow, collections::BTreeMap};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span as ParserSpan, Tag};

pub use crate::syntax::node::{Entry, Kind, Node};
use crate::{
    diagnostic::{Findings, Span},
    syntax::faults::{broken_json, yaml_beside_json},
    syntax::intrinsic::{self, Intrinsic},
    syntax::macros,
};

/// CloudFormation's maximum size of a template in S3, in bytes (1 MB).
pub(crate) const TEMPLATE_BYTES_MAX: usize = 1_000_000;

/// Maximum depth of a template's tree. The limit is needed because later passes are recursive. Real
/// templates have about 20 levels.
const TEMPLATE_DEPTH_MAX: usize = 64;

/// Maximum depth of the tree of a data file. An item may have 32 levels, and each level consists of
/// a type and a value. The remaining levels are for the lists and mappings that contain the item.
const DATA_DEPTH_MAX: usize = 80;

/// Maximum number of nodes. It limits the copies that aliases create. A template of 1 MB without
/// aliases has fewer nodes.
const NODES_MAX: usize = 500_000;

/// The kinds of files that this module parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A CloudFormation template.
    Template,
    /// A data file, in which `Ref`, `Fn::Sub` and `<<` are ordinary keys.
    Data,
}

impl Form {
    /// Returns the name of the file's kind for messages.
    fn noun(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::Data => "file",
        }
    }

    /// Returns the maximum depth of the tree, and the advice for a deeper tree.
    fn depth(self) -> (usize, &'static str) {
        match self {
            Self::Template => (
                TEMPLATE_DEPTH_MAX,
                "reduce the nesting; CloudFormation resources do not need this depth",
            ),
            Self::Data => (DATA_DEPTH_MAX, "flatten it; DynamoDB allows 32 levels in an item"),
        }
    }
}

/// Parses the text of a template. Returns `None` if no tree could be built because of an error,
/// which was reported.
pub fn parse(text: &str, findings: &Findings<'_>) -> Option<Node> {
    parse_form(Form::Template, text, findings)
}

/// Parses the text of a data file in YAML or JSON. Intrinsic functions, tags and merge keys are not
/// interpreted. Returns `None` if no tree could be built because of an error, which was reported.
pub fn parse_data(text: &str, findings: &Findings<'_>) -> Option<Node> {
    parse_form(Form::Data, text, findings)
}

fn parse_form(form: Form, text: &str, findings: &Findings<'_>) -> Option<Node> {
    let start = Span { line: 1, column: 1, width: 1 };
    let noun = form.noun();
    if text.len() > TEMPLATE_BYTES_MAX {
        let (allows, help) = match form {
            Form::Template => ("CloudFormation allows at most", "split it into several stacks"),
            Form::Data => ("the maximum is", "split it into several files"),
        };
        let message =
            format!("this {noun} has {} bytes; {allows} {TEMPLATE_BYTES_MAX}", text.len());
        findings.error(start, message, help);
        return None;
    }
    let marked = mark_dashes(text);
    let (open, anchors, loops) = (Vec::new(), BTreeMap::new(), Vec::new());
    let is_marked = marked.is_some();
    let mut builder = Builder { form, findings, open, anchors, loops, is_marked, nodes: 0 };
    let mut root = None;
    for event in Parser::new_from_str(marked.as_deref().unwrap_or(text)) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                let (at, message, help) = broken_json(text).unwrap_or_else(|| {
                    let at = position(*error.marker(), 1);
                    let message = format!("this is not valid YAML: {}", error.info());
                    (at, message, syntax_help(findings, at))
                });
                findings.error(at, message, help);
                return None;
            }
        };
        if matches!(event, Event::DocumentStart(_)) && root.is_some() {
            findings.error(
                place(span),
                format!("a {noun} must be a single document, but a second document begins here"),
                "remove the line `---` and everything after it, or move that document to its own file",
            );
            return None;
        }
        if let Some(node) = builder.take(event, span)? {
            root = Some(node);
        }
    }
    if root.as_ref().is_none_or(|node| matches!(node.kind, Kind::Null)) {
        findings.error(
            start,
            format!("this {noun} is empty"),
            match form {
                Form::Template => "write at least `Resources:` with one resource",
                Form::Data => "write its content, or remove it",
            },
        );
        return None;
    }
    if let Some((at, message, help)) = yaml_beside_json(findings.file(), text) {
        findings.error(at, message, help);
        return None;
    }
    macros::check_loops(&builder.loops, root.as_ref(), findings);
    root
}

/// A placeholder in the parsed text for a list element that consists only of `-`.
const DASH_MARK: char = '\u{e000}';

/// Replaces each list element in brackets that consists only of `-`, as in `!Split [-, text]`.
/// PyYAML, the parser of SAM, reads the element as a string, but YAML 1.2 rejects it. Returns
/// `None` if the text has no such element.
fn mark_dashes(text: &str) -> Option<String> {
    let is_value = |at: usize| {
        let before = text.get(..at)?.chars().next_back()?;
        let behind = text.get(at + 1..)?.trim_start_matches(' ').chars().next()?;
        (matches!(before, '[' | ',' | ' ') && matches!(behind, ',' | ']')).then_some(at)
    };
    let places = text.match_indices('-').filter_map(|(at, _)| is_value(at));
    let places: Vec<usize> = places.collect();
    if places.is_empty() || text.contains(DASH_MARK) {
        return None;
    }
    let (mut marked, mut copied) = (String::with_capacity(text.len() + 2 * places.len()), 0);
    for at in places {
        marked.push_str(text.get(copied..at)?);
        marked.push(DASH_MARK);
        copied = at + 1;
    }
    marked.push_str(text.get(copied..)?);
    Some(marked)
}

fn syntax_help(findings: &Findings<'_>, at: Span) -> &'static str {
    let line = findings.source_line(at.line);
    if line.chars().take_while(|letter| letter.is_whitespace()).any(|letter| letter == '\t') {
        "indent with spaces; YAML does not allow tabs in the indentation"
    } else {
        "check indentation, quotes and brackets of this line and of the lines before it"
    }
}

fn position(marker: Marker, width: usize) -> Span {
    Span { line: marker.line().max(1), column: marker.col() + 1, width }
}

fn place(span: ParserSpan) -> Span {
    let width = if span.end.line() == span.start.line() {
        span.end.col().saturating_sub(span.start.col()).max(1)
    } else {
        // The width is unlimited, so the location extends to the end of its first line. The
        // diagnostic shortens the width.
        usize::MAX
    };
    position(span.start, width)
}

/// A collection that is still being parsed.
struct Open<'input> {
    at: Span,
    anchor: usize,
    tag: Option<Cow<'input, Tag>>,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    /// `lines` contains the line of each key, to find duplicate keys quickly in a large mapping.
    Map {
        entries: Vec<Entry>,
        lines: BTreeMap<String, usize>,
        key: Option<(String, Span)>,
    },
}

struct Builder<'b, 't, 'input> {
    form: Form,
    findings: &'b Findings<'t>,
    open: Vec<Open<'input>>,
    /// The nodes with an anchor, each with the number of its nodes.
    anchors: BTreeMap<usize, (Node, usize)>,
    /// The loops (`Fn::ForEach::Name`) that were removed from the tree.
    loops: Vec<Entry>,
    /// True if dashes in the parsed text were replaced with the placeholder.
    is_marked: bool,
    nodes: usize,
}

impl<'input> Builder<'_, '_, 'input> {
    /// Processes one event of the YAML parser. Returns `None` to stop after an error, `Some(None)`
    /// to continue, and `Some(Some(node))` when the document is complete.
    fn take(&mut self, event: Event<'input>, span: ParserSpan) -> Option<Option<Node>> {
        let at = place(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let kind = if plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL") {
                    Kind::Null
                } else {
                    Kind::Text(match self.is_marked {
                        true => text.replace(DASH_MARK, "-"),
                        false => text.into_owned(),
                    })
                };
                self.complete(Node { at, kind }, anchor, tag.as_deref())
            }
            Event::SequenceStart(anchor, tag) => {
                self.begin(at, anchor, tag, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                let (entries, lines) = (Vec::new(), BTreeMap::new());
                self.begin(at, anchor, tag, Content::Map { entries, lines, key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Some(None) };
                let kind = match open.content {
                    Content::List(items) => Kind::List(items),
                    Content::Map { entries, .. } => Kind::Map(entries),
                };
                let node = self.long_form(Node { at: open.at, kind });
                self.complete(node, open.anchor, open.tag.as_deref())
            }
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor) else {
                    self.findings.error(
                        at,
                        "this alias is within its own anchor",
                        "replace the alias with the value",
                    );
                    return None;
                };
                let node = Node { at, kind: node.kind.clone() };
                let size = *size;
                self.count(at, size)?;
                self.insert(node)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Some(None),
        }
    }

    fn begin(
        &mut self,
        mut at: Span,
        anchor: usize,
        tag: Option<Cow<'input, Tag>>,
        content: Content,
    ) -> Option<Option<Node>> {
        // For a collection, only its first character is underlined.
        at.width = 1;
        let (depth_max, help) = self.form.depth();
        if self.open.len() >= depth_max {
            let message = format!("this is nested deeper than {depth_max} levels");
            self.findings.error(at, message, help);
            return None;
        }
        self.open.push(Open { at, anchor, tag, content });
        Some(None)
    }

    /// Adds to the number of nodes. Reports an error and returns `None` if there are too many
    /// nodes.
    fn count(&mut self, at: Span, nodes: usize) -> Option<()> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > NODES_MAX {
            self.findings.error(
                at,
                format!("the {} has more than {NODES_MAX} values", self.form.noun()),
                match self.form {
                    Form::Template => {
                        "use fewer aliases, or split the template into several stacks"
                    }
                    Form::Data => "use fewer aliases",
                },
            );
            return None;
        }
        Some(())
    }

    /// Completes a node: applies its tag, stores the node under its anchor, and adds it to its
    /// parent.
    fn complete(&mut self, node: Node, anchor: usize, tag: Option<&Tag>) -> Option<Option<Node>> {
        self.count(node.at, 1)?;
        let node = self.short_form(node, tag);
        if anchor > 0 {
            let size = nodes_in(&node);
            self.anchors.insert(anchor, (node.clone(), size));
            // The copy in `anchors` also counts towards the limit.
            self.count(node.at, size)?;
        }
        self.insert(node)
    }

    fn insert(&mut self, node: Node) -> Option<Option<Node>> {
        let Some(parent) = self.open.last_mut() else { return Some(Some(node)) };
        match &mut parent.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, lines, key } => match key.take() {
                Some((key, key_at)) => {
                    if let Some(first) = lines.get(&key) {
                        self.findings.error(
                            key_at,
                            format!("the key `{key}` is given twice, first in line {first}"),
                            "remove or rename one of the two",
                        );
                    } else {
                        lines.insert(key.clone(), key_at.line);
                        entries.push(Entry { key, key_at, value: node });
                    }
                }
                None => match node.kind {
                    Kind::Text(text) if text == "<<" && self.form == Form::Template => {
                        self.findings.error(
                            node.at,
                            "CloudFormation does not support YAML's merge key `<<`",
                            "write the keys explicitly, or put them under `Globals`",
                        );
                        *key = Some((text, node.at));
                    }
                    Kind::Text(text) => *key = Some((text, node.at)),
                    _ => {
                        self.findings.error(
                            node.at,
                            format!("a key must be a string, not {}", node.description()),
                            "write a name before the colon",
                        );
                        return None;
                    }
                },
            },
        }
        Some(None)
    }

    /// Converts a node with a tag, such as `!Ref x` or `!GetAtt a.b`, into a call of an intrinsic
    /// function.
    fn short_form(&self, node: Node, tag: Option<&Tag>) -> Node {
        let Some(tag) = tag else { return node };
        let at = Span { width: tag.suffix.chars().count() + 1, ..node.at };
        if tag.handle == "!" && self.form == Form::Template {
            let Some(intrinsic) = intrinsic::from_short_form(&tag.suffix) else {
                let (message, help) =
                    intrinsic::unknown(&format!("!{}", tag.suffix), &intrinsic::short_forms());
                self.findings.error(at, message, help);
                return Node { at, kind: Kind::Unknown };
            };
            self.note_transform(intrinsic, &node, node.at);
            return Node { at: node.at, kind: Kind::Call(intrinsic, Box::new(node)) };
        }
        let plain = tag.handle.is_empty()
            || (tag.is_yaml_core_schema()
                && matches!(tag.suffix.as_str(), "str" | "int" | "float" | "bool" | "seq" | "map"));
        let handle = if tag.is_yaml_core_schema() { "!!" } else { tag.handle.as_str() };
        let written = format!("{handle}{}", tag.suffix);
        if !plain {
            self.findings.error(
                at,
                match self.form {
                    Form::Template => {
                        format!("CloudFormation does not support the YAML tag `{written}`")
                    }
                    Form::Data => format!("the YAML tag `{written}` is not supported"),
                },
                "remove the tag",
            );
        }
        node
    }

    /// Converts the long form of an intrinsic function, such as `Ref: x` or `Fn::GetAtt: [a, b]`, into a
    /// call. Other mappings remain mappings.
    fn long_form(&mut self, mut node: Node) -> Node {
        if self.form == Form::Data {
            return node;
        }
        let Kind::Map(entries) = &mut node.kind else { return node };
        self.take_out_macros(entries);
        let is_call = |entry: &Entry| entry.key == "Ref" || entry.key.starts_with("Fn::");
        let Some(found) = entries.iter().find(|entry| is_call(entry)) else { return node };
        let (key, key_at) = (found.key.clone(), found.key_at);
        let Some(intrinsic) = intrinsic::from_long_form(&key) else {
            let (message, help) = intrinsic::unknown(&key, &intrinsic::long_forms());
            self.findings.error(key_at, message, help);
            return Node { at: key_at, kind: Kind::Unknown };
        };
        if entries.len() > 1 {
            // Only an invalid key with `Fn::` is an error, because a property may have the name
            // `Ref`.
            if key != "Ref" {
                self.findings.error(
                    key_at,
                    format!("`{key}` must be the only key of its mapping"),
                    "move the other keys to another mapping",
                );
            }
            return node;
        }
        match entries.pop() {
            Some(entry) => {
                self.note_transform(intrinsic, &entry.value, key_at);
                Node { at: key_at, kind: Kind::Call(intrinsic, Box::new(entry.value)) }
            }
            None => node,
        }
    }

    /// Removes keys that AWS replaces with different content: loops, and transforms next to other
    /// keys.
    fn take_out_macros(&mut self, entries: &mut Vec<Entry>) {
        let is_alone = entries.len() == 1;
        for entry in std::mem::take(entries) {
            if entry.key.starts_with(macros::LOOP) {
                if self.open.len() <= macros::NAMES_DEPTH_MAX {
                    self.findings.opens();
                }
                self.loops.push(entry);
            } else if entry.key == macros::TRANSFORM && !is_alone {
                self.note_transform(Intrinsic::Transform, &entry.value, entry.key_at);
            } else {
                entries.push(entry);
            }
        }
    }

    /// Warns about a transform at a depth where it may add resources. A deeper transform is
    /// reported when its value is needed.
    fn note_transform(&self, intrinsic: Intrinsic, argument: &Node, at: Span) {
        if intrinsic == Intrinsic::Transform && self.open.len() <= macros::NAMES_DEPTH_MAX {
            macros::note(argument, at, self.findings);
        }
    }
}

fn nodes_in(node: &Node) -> usize {
    1 + match &node.kind {
        Kind::List(items) => items.iter().map(nodes_in).sum(),
        Kind::Map(entries) => entries.iter().map(|entry| nodes_in(&entry.value)).sum(),
        Kind::Call(_, argument) => nodes_in(argument),
        Kind::Null | Kind::Text(_) | Kind::Unknown => 0,
    }
}
