//! Checks that every referenced name exists: parameters, resources, attributes, conditions and
//! mappings.
//!
//! The check does not evaluate values. As on AWS, it therefore includes untaken branches and
//! resources that are not emulated.

use std::collections::BTreeSet;

use crate::{
    declarations::generated,
    declarations::resource::Resource,
    diagnostic::{Findings, Span, listed, similar},
    evaluation::parameters,
    not_emulated::NotEmulated,
    syntax::intrinsic::{Intrinsic, Piece, pieces},
    syntax::macros::EXTENSIONS,
    syntax::node::{Kind, Node},
};

const PSEUDO_PARAMETERS: &[&str] = &[
    "AWS::AccountId",
    "AWS::NoValue",
    "AWS::NotificationARNs",
    "AWS::Partition",
    "AWS::Region",
    "AWS::StackId",
    "AWS::StackName",
    "AWS::URLSuffix",
];

const SECTIONS: &[&str] = &[
    "AWSTemplateFormatVersion",
    "Conditions",
    "Description",
    "Globals",
    "Hooks",
    "Mappings",
    "Metadata",
    "Outputs",
    "Parameters",
    "Resources",
    "Rules",
    "Transform",
];

const SAM_TRANSFORM: &str = "AWS::Serverless-2016-10-31";

/// The names to which a template may refer.
struct References<'a, 't> {
    resources: &'a [Resource<'t>],
    parameters: BTreeSet<&'t str>,
    conditions: BTreeSet<&'t str>,
    mappings: BTreeSet<&'t str>,
    /// True if the template declares the transform `AWS::LanguageExtensions`.
    is_extended: bool,
    findings: &'a Findings<'a>,
}

/// Checks all references of the template.
pub(crate) fn check<'t>(root: &'t Node, resources: &[Resource<'t>], findings: &Findings<'_>) {
    check_sections(root, findings);
    check_transform(root, resources, findings);
    let keys = |section: &str| {
        root.get(section).map_or(&[][..], Node::entries).iter().map(|entry| entry.key.as_str())
    };
    let references = References {
        resources,
        parameters: parameters::names(root.get("Parameters")).collect(),
        conditions: keys("Conditions").collect(),
        mappings: keys("Mappings").collect(),
        is_extended: transforms(root).iter().any(|node| node.as_text() == Some(EXTENSIONS)),
        findings,
    };
    for section in ["Conditions", "Globals", "Resources"] {
        references.section(root.get(section));
    }
    for resource in resources {
        references.resource_attributes(resource);
    }
    // Weir does not use outputs, so errors in them become warnings.
    findings.of_what_stops_nothing(|| {
        references.section(root.get("Outputs"));
        for output in root.get("Outputs").map_or(&[][..], Node::entries) {
            references.condition_name(output.value.get("Condition"));
        }
    });
}

fn check_sections(root: &Node, findings: &Findings<'_>) {
    for entry in root.entries() {
        let name = entry.key.as_str();
        if matches!(name, "Rules" | "Hooks") {
            findings.not_emulated(NotEmulated {
                resource: name.to_owned(),
                kind: String::new(),
                property: String::new(),
                at: entry.key_at,
                instead: "this section has no effect on this machine".to_owned(),
            });
        }
        if !SECTIONS.contains(&name) {
            let help = match similar(name, SECTIONS.iter().copied()) {
                Some(meant) => format!("write `{meant}`"),
                None => format!("write {}", listed(SECTIONS.iter().copied())),
            };
            findings.error(entry.key_at, format!("a template has no section `{name}`"), help);
        } else if matches!(entry.value.kind, Kind::Null) {
            findings.error(
                entry.key_at,
                format!("the section `{name}` is empty"),
                "remove it; CloudFormation rejects empty values",
            );
        }
    }
    if root.entries().is_empty() {
        findings.error(
            root.at,
            format!("a template is a mapping, not {}", root.description()),
            "write `Resources:` with at least one resource",
        );
    }
}

fn transforms(root: &Node) -> Vec<&Node> {
    match root.get("Transform") {
        Some(Node { kind: Kind::List(items), .. }) => items.iter().collect(),
        one => one.into_iter().collect(),
    }
}

fn check_transform(root: &Node, resources: &[Resource<'_>], findings: &Findings<'_>) {
    let transforms = transforms(root);
    let is_sam = |node: &&Node| node.as_text() == Some(SAM_TRANSFORM);
    let has_sam = transforms.iter().any(is_sam);
    for other in transforms.into_iter().filter(|node| !is_sam(node)) {
        // A transform is a string, or a mapping with a `Name` and parameters.
        let name = other.as_text().or_else(|| other.get("Name")?.as_text());
        let instead = match name {
            Some(EXTENSIONS) => {
                "the functions of this transform are evaluated, except `Fn::ForEach`".to_owned()
            }
            Some(name) => format!("`{name}` is not applied; the template is read unchanged"),
            None => "this transform is not applied; the template is read unchanged".to_owned(),
        };
        if name != Some(EXTENSIONS) {
            findings.opens();
        }
        findings.not_emulated(NotEmulated {
            resource: "Transform".to_owned(),
            kind: String::new(),
            property: String::new(),
            at: other.at,
            instead,
        });
    }
    let first = resources.iter().find(|found| found.type_name.starts_with("AWS::Serverless::"));
    if let (false, Some(resource)) = (has_sam, first) {
        findings.error(
            resource.at,
            format!(
                "`{}` needs SAM's transform, which this template does not declare",
                resource.type_name
            ),
            format!("write `Transform: {SAM_TRANSFORM}` at the top"),
        );
    }
}

impl References<'_, '_> {
    /// Checks all references in a section. An empty section was already reported.
    fn section(&self, node: Option<&Node>) {
        if let Some(node) = node.filter(|node| !matches!(node.kind, Kind::Null)) {
            self.node(node);
        }
    }

    fn node(&self, node: &Node) {
        match &node.kind {
            Kind::Null => self.findings.error(
                node.at,
                "the value is missing, and CloudFormation rejects null",
                "write a value, or remove the key",
            ),
            Kind::Text(_) | Kind::Unknown => {}
            Kind::List(items) => items.iter().for_each(|item| self.node(item)),
            Kind::Map(entries) => entries.iter().for_each(|entry| self.node(&entry.value)),
            Kind::Call(intrinsic, argument) => {
                self.call(*intrinsic, argument, node.at);
                self.node(argument);
            }
        }
    }

    /// Checks an intrinsic function that requires the transform `AWS::LanguageExtensions`.
    fn extension(&self, intrinsic: Intrinsic, argument: &Node, at: Span) {
        let is_added = match intrinsic {
            Intrinsic::Length | Intrinsic::ToJsonString => true,
            Intrinsic::FindInMap => matches!(&argument.kind, Kind::List(items) if items.len() == 4),
            _ => false,
        };
        if is_added && !self.is_extended {
            self.findings.error(
                at,
                format!(
                    "`{}` in this form needs the transform `{EXTENSIONS}`, which this template does not declare",
                    intrinsic.name()
                ),
                format!("write `Transform: [{EXTENSIONS}, {SAM_TRANSFORM}]` at the top"),
            );
        }
    }

    fn call(&self, intrinsic: Intrinsic, argument: &Node, at: Span) {
        self.extension(intrinsic, argument, at);
        match intrinsic {
            Intrinsic::Ref => match argument.as_text() {
                Some(name) => self.name(name, at),
                None => self.findings.error(
                    at,
                    format!("`!Ref` needs a name, not {}", argument.description()),
                    "write `!Ref Name`",
                ),
            },
            Intrinsic::GetAtt => self.attribute_argument(argument, at),
            Intrinsic::Sub => self.substitution(argument, at),
            Intrinsic::If => {
                if let Kind::List(items) = &argument.kind {
                    self.condition_name(items.first());
                }
            }
            Intrinsic::Condition => self.condition_name(Some(argument)),
            Intrinsic::FindInMap => {
                if let Kind::List(items) = &argument.kind
                    && let Some(node) = items.first()
                    && let Some(name) = node.as_text()
                    && !self.mappings.contains(name)
                {
                    self.missing(node.at, name, "mapping", self.mappings.iter().copied());
                }
            }
            Intrinsic::OfRules => self.findings.error(
                at,
                "this function is allowed only in the section `Rules`",
                "write a value, or a condition under `Conditions`",
            ),
            _ => {}
        }
    }

    /// Checks the name in a `!Ref` or `${...}`.
    fn name(&self, name: &str, at: Span) {
        if PSEUDO_PARAMETERS.contains(&name)
            || self.parameters.contains(name)
            || self.resources.iter().any(|resource| resource.id == name)
            || generated::is_generated(self.resources, name)
        {
            return;
        }
        let known = self
            .parameters
            .iter()
            .copied()
            .chain(self.resources.iter().map(|resource| resource.id))
            .chain(PSEUDO_PARAMETERS.iter().copied());
        self.missing(at, name, "parameter or resource", known);
    }

    fn missing<'n>(&self, at: Span, name: &str, kind: &str, known: impl Iterator<Item = &'n str>) {
        if self.findings.is_full() {
            return;
        }
        let help = match similar(name, known) {
            Some(meant) => format!("write `{meant}`"),
            None => format!("declare `{name}`, or correct the name"),
        };
        let message = format!("unknown {kind} `{name}`");
        match self.findings.is_open() {
            true => self.findings.warning(at, format!("{message}, unless AWS adds it"), help),
            false => self.findings.error(at, message, help),
        }
    }

    fn attribute_argument(&self, argument: &Node, at: Span) {
        match &argument.kind {
            Kind::Text(path) => self.attribute_path(path, at),
            Kind::List(items) => match items.as_slice() {
                [id, attribute] if id.as_text().is_some() => {
                    let id = id.as_text().unwrap_or_default();
                    match attribute.as_text() {
                        Some(attribute) => self.attribute(id, attribute, at),
                        None => self.name(id, at),
                    }
                }
                _ => self.bad_attribute(at),
            },
            _ => self.bad_attribute(at),
        }
    }

    fn bad_attribute(&self, at: Span) {
        self.findings.error(
            at,
            "`!GetAtt` needs a resource and an attribute",
            "write `!GetAtt Resource.Attribute`",
        );
    }

    fn attribute_path(&self, path: &str, at: Span) {
        match path.split_once('.') {
            Some((id, attribute)) if !id.is_empty() && !attribute.is_empty() => {
                self.attribute(id, attribute, at);
            }
            _ => self.bad_attribute(at),
        }
    }

    fn attribute(&self, id: &str, attribute: &str, at: Span) {
        let Some(resource) = self.resources.iter().find(|resource| resource.id == id) else {
            if !generated::is_generated(self.resources, id) {
                self.missing(at, id, "resource", self.resources.iter().map(|found| found.id));
            }
            return;
        };
        let Some(known) = resource.kind.attributes() else { return };
        if !known.contains(&attribute) {
            let help = match similar(attribute, known.iter().copied()) {
                Some(meant) => format!("write `{id}.{meant}`"),
                None => format!("write {}", listed(known.iter().copied())),
            };
            self.findings.error(
                at,
                format!("`{id}` ({}) has no attribute `{attribute}`", resource.type_name),
                help,
            );
        }
        if attribute == "StreamArn" && resource.properties.get("StreamSpecification").is_none() {
            self.findings.error(
                at,
                format!("the table `{id}` has no stream"),
                format!(
                    "give `{id}` a `StreamSpecification:` with `StreamViewType: NEW_AND_OLD_IMAGES`"
                ),
            );
        }
    }

    fn substitution(&self, argument: &Node, at: Span) {
        let (text, own) = match &argument.kind {
            Kind::List(items) => match items.as_slice() {
                [text, variables] => (text, variables.entries()),
                _ => return,
            },
            _ => (argument, &[][..]),
        };
        for piece in pieces(text.as_text().unwrap_or_default()) {
            let Piece::Variable(name) = piece else { continue };
            if own.iter().any(|entry| entry.key == name) {
                continue;
            }
            if name.contains('.') && !generated::is_generated(self.resources, name) {
                self.attribute_path(name, at);
            } else {
                self.name(name, at);
            }
        }
    }

    fn condition_name(&self, node: Option<&Node>) {
        if let Some(node) = node
            && let Some(name) = node.as_text()
            && !self.conditions.contains(name)
        {
            self.missing(node.at, name, "condition", self.conditions.iter().copied());
        }
    }

    /// Checks `Condition` and `DependsOn` next to a resource's type.
    fn resource_attributes(&self, resource: &Resource<'_>) {
        self.condition_name(resource.node.get("Condition"));
        let Some(depends_on) = resource.node.get("DependsOn") else { return };
        let names: Vec<&Node> = match &depends_on.kind {
            Kind::List(items) => items.iter().collect(),
            _ => vec![depends_on],
        };
        for node in names {
            if let Some(name) = node.as_text()
                && !self.resources.iter().any(|found| found.id == name)
                && !generated::is_generated(self.resources, name)
            {
                self.missing(
                    node.at,
                    name,
                    "resource",
                    self.resources.iter().map(|found| found.id),
                );
            }
        }
    }
}
