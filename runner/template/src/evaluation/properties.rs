//! Reads the properties of a mapping by name, and reports properties that no caller has read. The
//! caller provides the catalogue of properties that are not emulated.

use std::{cell::RefCell, ops::RangeInclusive};

use crate::{
    diagnostic::{Span, similar},
    evaluation::resolver::Resolver,
    evaluation::value::{self, Data, Value},
    not_emulated::NotEmulated,
    syntax::intrinsic::Intrinsic,
    syntax::node::{Entry, Kind, Node},
};

/// Properties that the local runner does not emulate, with the local behaviour instead.
pub(crate) type Catalogue = &'static [(&'static str, &'static str)];

/// The properties of a resource, or of one of its mappings.
pub(crate) struct Properties<'r, 't> {
    pub(crate) resolver: &'r Resolver<'t>,
    /// The logical id of the resource.
    pub(crate) resource: &'r str,
    /// The resource's type.
    pub(crate) kind: &'r str,
    /// The path of the mapping within the resource; empty for the resource's own properties.
    path: String,
    /// The location of the mapping. Missing properties are reported at this location.
    pub(crate) at: Span,
    entries: &'r [Entry],
    read_names: RefCell<Vec<&'static str>>,
    /// Names of properties that were only checked for presence and not read.
    looked_for: RefCell<Vec<String>>,
}

/// A value with its location in the template.
pub(crate) struct PlacedValue<T> {
    pub(crate) value: T,
    pub(crate) at: Span,
}

impl<'r, 't> Properties<'r, 't> {
    pub(crate) fn new(
        resolver: &'r Resolver<'t>,
        resource: &'r str,
        kind: &'r str,
        at: Span,
        node: &'r Node,
    ) -> Properties<'r, 't> {
        let (read_names, looked_for) = (RefCell::default(), RefCell::default());
        let (path, entries) = (String::new(), node.entries());
        Properties { resolver, resource, kind, path, at, entries, read_names, looked_for }
    }

    /// Returns the path of a property within the resource.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Returns the node of a property, with any `Fn::If` evaluated; `None` if the property is
    /// absent.
    pub(crate) fn node(&self, name: &'static str) -> Option<&'r Node> {
        self.entry(name).map(|(_, node)| node)
    }

    fn entry(&self, name: &'static str) -> Option<(&'r Entry, &'r Node)> {
        self.read_names.borrow_mut().push(name);
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        let node = self.resolver.choose(&entry.value)??;
        Some((entry, node))
    }

    /// Returns a property's value of any type.
    pub(crate) fn value(&self, name: &'static str) -> Option<Value> {
        let value = self.resolver.resolve(self.node(name)?)?;
        if matches!(value.data, Data::Absent) { None } else { Some(value) }
    }

    /// Returns the value of a string property.
    pub(crate) fn text(&self, name: &'static str) -> Option<PlacedValue<String>> {
        let value = self.value(name)?;
        let at = value.at;
        if let Some(reference) = value.reference() {
            self.left_out(name, &reference, at);
            return None;
        }
        value.text(self.resolver.findings).map(|value| PlacedValue { value, at })
    }

    /// Returns the reference in a property whose value is unknown, with its location. Returns
    /// `None` if the value is known or absent.
    pub(crate) fn unknown(&self, name: &'static str) -> Option<PlacedValue<String>> {
        let value = self.value(name)?;
        value.reference().map(|reference| PlacedValue { value: reference, at: value.at })
    }

    /// Warns that a property is omitted because its value is unknown.
    fn left_out(&self, name: &str, reference: &str, at: Span) {
        let findings = self.resolver.findings;
        if findings.runs_on_aws() {
            return;
        }
        findings.warning(
            at,
            format!(
                "the value of `{reference}` is unknown on this machine, so `{}` is omitted",
                self.path(name)
            ),
            self.resolver.help_without_value(reference),
        );
    }

    /// Returns the value of a string property. Reports an error if the property is missing.
    pub(crate) fn required_text(
        &self,
        name: &'static str,
        example: &str,
    ) -> Option<PlacedValue<String>> {
        if !self.has(name) {
            self.missing(name, example);
        }
        self.text(name)
    }

    /// Reports a missing property. `example` shows how to write it.
    pub(crate) fn missing(&self, name: &str, example: &str) {
        self.resolver.findings.error(
            self.at,
            format!("`{}` is missing", self.path(name)),
            format!("write `{name}: {example}`"),
        );
    }

    /// Returns the value of a whole-number property. `range` includes both ends.
    pub(crate) fn integer(
        &self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Option<PlacedValue<i64>> {
        let PlacedValue { value, at } = self.text(name)?;
        value::integer(&value, at, name, &range, self.resolver.findings)
            .map(|value| PlacedValue { value, at })
    }

    /// Returns the value of a non-negative whole-number property. `range` includes both ends.
    pub(crate) fn unsigned(&self, name: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let range = i64::from(*range.start())..=i64::from(*range.end());
        self.integer(name, range).and_then(|number| u32::try_from(number.value).ok())
    }

    /// Returns the value of a boolean property.
    pub(crate) fn boolean(&self, name: &'static str) -> Option<bool> {
        let PlacedValue { value, at } = self.text(name)?;
        value::boolean(&value, at, name, self.resolver.findings)
    }

    /// Returns the value that corresponds to the word in a property.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Option<PlacedValue<T>> {
        let PlacedValue { value, at } = self.text(name)?;
        value::one_of(&value, at, name, choices, self.resolver.findings)
            .map(|value| PlacedValue { value, at })
    }

    /// Returns true if the property is present and its value is not `AWS::NoValue`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.looked_for.borrow_mut().push(name.to_owned());
        self.is_written(name)
    }

    fn is_written(&self, name: &str) -> bool {
        self.entries
            .iter()
            .find(|entry| entry.key == name)
            .is_some_and(|entry| !matches!(self.resolver.choose(&entry.value), Some(None)))
    }

    /// Returns the location of a property's key.
    pub(crate) fn key_place(&self, name: &str) -> Option<Span> {
        self.entries.iter().find(|entry| entry.key == name).map(|entry| entry.key_at)
    }

    /// Returns the nested mapping in a property.
    pub(crate) fn mapping(&self, name: &'static str) -> Option<Properties<'r, 't>> {
        let (entry, node) = self.entry(name)?;
        self.below(self.path(name), entry.key_at, node)
    }

    /// Returns the properties of a node. Reports an error if the node is not a mapping.
    pub(crate) fn below(
        &self,
        path: String,
        at: Span,
        node: &'r Node,
    ) -> Option<Properties<'r, 't>> {
        let Kind::Map(entries) = &node.kind else {
            self.not_a("mapping", &path, node, "write one property per line, each with a colon");
            return None;
        };
        let Properties { resolver, resource, kind, .. } = *self;
        let (read_names, looked_for) = (RefCell::default(), RefCell::default());
        Some(Properties { resolver, resource, kind, path, at, entries, read_names, looked_for })
    }

    /// Returns the mappings in a list property.
    pub(crate) fn mappings(&self, name: &'static str) -> Vec<Properties<'r, 't>> {
        let Some(node) = self.node(name) else { return Vec::new() };
        let Kind::List(items) = &node.kind else {
            self.not_a("list", &self.path(name), node, "begin each entry with `- `");
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| {
                let item = self.resolver.choose(item)??;
                self.below(format!("{}[{index}]", self.path(name)), item.at, item)
            })
            .collect()
    }

    /// Returns the entries of a mapping whose keys are chosen by the author of the template.
    pub(crate) fn named(&self, name: &'static str) -> &'r [Entry] {
        let Some(node) = self.node(name) else { return &[] };
        if !matches!(node.kind, Kind::Map(_)) {
            let help = "write one name per line, each with a colon";
            self.not_a("mapping", &self.path(name), node, help);
        }
        node.entries()
    }

    /// Reports a node of the wrong type. An intrinsic function causes only a warning, because its
    /// value may have the right type on AWS.
    fn not_a(&self, shape: &str, path: &str, node: &Node, help: &str) {
        let findings = self.resolver.findings;
        if let Kind::Call(intrinsic @ (Intrinsic::Transform | Intrinsic::FindInMap), _) = &node.kind
        {
            let message = format!(
                "the value of `{}` is not evaluated, so `{path}` is omitted",
                intrinsic.name()
            );
            findings.warning(node.at, message, format!("write the {shape} itself"));
        } else {
            let message = format!("`{path}` must be a {shape}, not {}", node.description());
            findings.error(node.at, message, help);
        }
    }

    /// Lists a property as not emulated.
    pub(crate) fn not_emulated(&self, name: &str, instead: impl Into<String>) {
        let at = self.key_place(name).unwrap_or(self.at);
        self.resolver.findings.not_emulated(NotEmulated {
            resource: self.resource.to_owned(),
            kind: self.kind.to_owned(),
            property: self.path(name),
            at,
            instead: instead.into(),
        });
    }

    /// Reports every property that no caller has read: as not emulated, as misspelt, or as unknown.
    pub(crate) fn finish(&self, catalogue: Catalogue) {
        let asked = self.read_names.borrow();
        let known = || asked.iter().copied().chain(catalogue.iter().map(|(property, _)| *property));
        for entry in self.entries {
            let name = entry.key.as_str();
            if asked.contains(&name) || !self.is_written(name) {
                continue;
            }
            if let Some((_, instead)) = catalogue.iter().find(|(property, _)| *property == name) {
                self.not_emulated(name, *instead);
            } else if self.looked_for.borrow().iter().any(|known| known == name) {
                // A property that was only checked for presence is reported by the caller.
            } else if let Some(meant) = similar(name, known()) {
                self.resolver.findings.error(
                    entry.key_at,
                    format!("`{}` is not a property of {}", self.path(name), self.kind),
                    format!("write `{meant}`"),
                );
            } else {
                self.not_emulated(name, "this property is unknown and has no effect");
                self.resolver.findings.warning(
                    entry.key_at,
                    format!("`{}` is not a known property of {}", self.path(name), self.kind),
                    "correct the name, or remove the property: AWS rejects unknown properties",
                );
            }
        }
    }
}
