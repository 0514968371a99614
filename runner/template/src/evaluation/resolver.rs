//! Evaluates the intrinsic functions of a template: references, conditions, mappings and string
//! functions. The modules in `resources` use it to resolve values.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{
    context::Context,
    declarations::resource::{Resource, ResourceKind},
    diagnostic::{Findings, Span},
    evaluation::parameters::{self, Parameter},
    evaluation::value::{Data, Value},
    syntax::intrinsic::{Intrinsic, Piece, dynamic_reference, pieces},
    syntax::node::{Kind, Node},
};

/// Maximum total length of the evaluated strings, in bytes. The limit is needed because a template
/// of at most 1 MB can use a long parameter very often.
const EVALUATED_BYTES_MAX: usize = 16_000_000;

/// Maximum length of a chain of references and conditions. Real templates need two or three steps.
/// The limit bounds the depth of the recursion.
const REFERENCES_DEEP_MAX: usize = 16;

/// The inputs and caches of the evaluation.
pub(crate) struct Resolver<'t> {
    pub(crate) findings: &'t Findings<'t>,
    pub(crate) context: &'t Context,
    pub(crate) parameters: BTreeMap<String, Parameter>,
    pub(crate) mappings: Option<&'t Node>,
    pub(crate) conditions: Option<&'t Node>,
    pub(crate) resources: &'t [Resource<'t>],
    /// The cached values of conditions. `None` means that the condition is being evaluated, or that
    /// its evaluation failed.
    condition_values: RefCell<BTreeMap<String, Option<bool>>>,
    /// The cached physical names of resources. `None` means that the name is being evaluated, or
    /// that its evaluation failed.
    names: RefCell<BTreeMap<String, Option<Data>>>,
    evaluated_bytes: Cell<usize>,
    references_deep: Cell<usize>,
}

impl<'t> Resolver<'t> {
    pub(crate) fn new(
        findings: &'t Findings<'t>,
        context: &'t Context,
        parameters: BTreeMap<String, Parameter>,
        root: &'t Node,
        resources: &'t [Resource<'t>],
    ) -> Resolver<'t> {
        Resolver {
            findings,
            context,
            parameters,
            mappings: root.get("Mappings"),
            conditions: root.get("Conditions"),
            resources,
            condition_values: RefCell::default(),
            names: RefCell::default(),
            evaluated_bytes: Cell::new(0),
            references_deep: Cell::new(0),
        }
    }

    /// Returns the value of a node; `None` if an error was reported.
    pub(crate) fn resolve(&self, node: &Node) -> Option<Value> {
        let data = match &node.kind {
            Kind::Text(text) => Data::Text(self.spend(node.at, text.clone())?),
            Kind::List(items) => {
                let items: Vec<Option<Value>> =
                    items.iter().map(|item| self.resolve(item)).collect();
                let items: Option<Vec<Value>> = items.into_iter().collect();
                Data::List(
                    items?.into_iter().filter(|item| !matches!(item.data, Data::Absent)).collect(),
                )
            }
            Kind::Call(intrinsic, argument) => self.call(*intrinsic, argument, node.at)?,
            Kind::Null | Kind::Map(_) => {
                self.findings.error(
                    node.at,
                    format!("expected a value, found {}", node.description()),
                    "write one value",
                );
                return None;
            }
            Kind::Unknown => return None,
        };
        // CloudFormation replaces a dynamic reference in every string, including a string that is
        // the result of a function.
        let data = match data {
            Data::Text(text) => match dynamic_reference(&text) {
                Some(reference) => Data::Elsewhere(reference.to_owned()),
                None => Data::Text(text),
            },
            other => other,
        };
        Some(Value { at: node.at, data })
    }

    /// Returns the node that `Fn::If` selects, including nested `Fn::If`. Any other node is
    /// returned unchanged. Returns `None` if an error was reported.
    ///
    /// `Some(None)` means `AWS::NoValue`.
    pub(crate) fn choose<'n>(&self, node: &'n Node) -> Option<Option<&'n Node>> {
        match &node.kind {
            Kind::Call(Intrinsic::If, argument) => self.choose(self.branch(argument, node.at)?),
            Kind::Call(Intrinsic::Ref, argument) if argument.as_text() == Some("AWS::NoValue") => {
                Some(None)
            }
            Kind::Unknown => None,
            _ => Some(Some(node)),
        }
    }

    /// Adds the length of an evaluated string to the total, and reports an error if the total
    /// exceeds the limit.
    pub(crate) fn spend(&self, at: Span, text: String) -> Option<String> {
        let spent = self.evaluated_bytes.get().saturating_add(text.len());
        self.evaluated_bytes.set(spent);
        if spent > EVALUATED_BYTES_MAX {
            self.findings.error(
                at,
                format!("the evaluated values of the template exceed {EVALUATED_BYTES_MAX} bytes"),
                "use shorter parameters, or repeat them less often",
            );
            return None;
        }
        Some(text)
    }

    fn call(&self, intrinsic: Intrinsic, argument: &Node, at: Span) -> Option<Data> {
        match intrinsic {
            Intrinsic::Ref => self.reference(argument.as_text()?, at),
            Intrinsic::GetAtt => {
                let (resource, attribute) = self.attribute_path(argument)?;
                self.attribute(&resource, &attribute, at)
            }
            Intrinsic::Sub => self.substitute(argument, at),
            Intrinsic::Join => self.join(argument, at),
            Intrinsic::Split => self.split(argument, at),
            Intrinsic::Select => self.select(argument, at),
            Intrinsic::If => self.resolve(self.branch(argument, at)?).map(|value| value.data),
            Intrinsic::FindInMap => self.find_in_map(argument, at),
            Intrinsic::Base64 => {
                let value = self.resolve(argument)?;
                if let Some(reference) = value.reference() {
                    return Some(Data::Elsewhere(reference));
                }
                let text = value.text(self.findings)?;
                Some(Data::Text(self.spend(at, STANDARD.encode(text))?))
            }
            Intrinsic::Equals
            | Intrinsic::And
            | Intrinsic::Or
            | Intrinsic::Not
            | Intrinsic::Condition => {
                self.findings.error(
                    at,
                    format!("`{}` is a condition and has no value", intrinsic.name()),
                    "name the condition under `Conditions` and choose a value with `!If [Name, \
                    a, b]`",
                );
                None
            }
            Intrinsic::ImportValue | Intrinsic::GetAzs => {
                let of = match self.resolve(argument)?.data {
                    elsewhere @ Data::Elsewhere(_) => return Some(elsewhere),
                    data => Value { at, data }.text(self.findings)?,
                };
                Some(Data::Elsewhere(format!("{} {of}", intrinsic.name()).trim_end().to_owned()))
            }
            // `references` has already reported this function, because it is valid only in `Rules`.
            Intrinsic::OfRules => None,
            Intrinsic::Cidr => Some(Data::Elsewhere(intrinsic.name())),
            Intrinsic::Length => self.length(argument, at),
            Intrinsic::ToJsonString => self.to_json(argument, at),
            Intrinsic::Transform => Some(Data::Elsewhere(intrinsic.name())),
        }
    }

    /// Evaluates `!Ref name`.
    fn reference(&self, name: &str, at: Span) -> Option<Data> {
        let context = self.context;
        let text = match name {
            "AWS::NoValue" => return Some(Data::Absent),
            "AWS::NotificationARNs" => return Some(Data::List(Vec::new())),
            "AWS::Region" => context.region.clone(),
            "AWS::AccountId" => context.account_id.clone(),
            "AWS::StackName" => context.stack_name.clone(),
            "AWS::Partition" => "aws".to_owned(),
            "AWS::URLSuffix" => "amazonaws.com".to_owned(),
            "AWS::StackId" => format!(
                "arn:aws:cloudformation:{}:{}:stack/{}/local",
                context.region, context.account_id, context.stack_name
            ),
            _ => {
                if let Some(parameter) = self.parameters.get(name) {
                    return self.parameter(parameter, at);
                }
                return match self.resource(name) {
                    Some(resource) => self.physical_name(resource, at),
                    // `references` has checked the name, so the name belongs to a resource that SAM
                    // generates.
                    None => Some(Data::Elsewhere(name.to_owned())),
                };
            }
        };
        Some(Data::Text(self.spend(at, text)?))
    }

    fn parameter(&self, parameter: &Parameter, at: Span) -> Option<Data> {
        Some(match parameter {
            Parameter::Elsewhere(reference) => Data::Elsewhere(reference.clone()),
            Parameter::Text(text) => Data::Text(self.spend(at, text.clone())?),
            Parameter::List(items) => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(Value { at, data: Data::Text(self.spend(at, item.clone())?) });
                }
                Data::List(values)
            }
        })
    }

    pub(crate) fn resource(&self, id: &str) -> Option<&'t Resource<'t>> {
        self.resources.iter().find(|resource| resource.id == id)
    }

    /// Returns the name of the resource on this machine.
    pub(crate) fn physical_name(&self, resource: &Resource<'_>, at: Span) -> Option<Data> {
        if !self.exists(resource)? {
            self.findings.error(
                at,
                format!("`{}` does not exist, because its condition is false", resource.id),
                "use another value with `!If` under the same condition",
            );
            return None;
        }
        let Some(property) = resource.kind.name_property() else {
            return Some(Data::Elsewhere(resource.id.to_owned()));
        };
        if let Some(known) = self.names.borrow().get(resource.id) {
            if known.is_none() && !self.findings.has_errors() {
                self.findings.error(
                    at,
                    format!("the name of `{}` depends on itself", resource.id),
                    "write a name in this circular reference as plain text",
                );
            }
            return known.clone();
        }
        self.names.borrow_mut().insert(resource.id.to_owned(), None);
        let name = match resource.properties.get(property) {
            Some(node) => self.one_deeper(at, || match self.choose(node)? {
                Some(node) => self.resolve(node),
                None => Some(self.default_name(resource, at)),
            })?,
            None => self.default_name(resource, at),
        };
        let name = match name.reference() {
            Some(reference) => {
                let own = resource.default_name(&self.context.stack_name);
                if !self.findings.runs_on_aws() {
                    let id = resource.id;
                    self.findings.warning(
                        name.at,
                        format!("the value of `{reference}` is unknown on this machine, so `{id}` gets the name `{own}`"),
                        self.help_without_value(&reference),
                    );
                }
                Some(Data::Text(self.spend(at, own)?))
            }
            None => Some(Data::Text(self.spend(at, name.text(self.findings)?)?)),
        };
        self.names.borrow_mut().insert(resource.id.to_owned(), name.clone());
        name
    }

    /// Returns advice on how to give a value to an unknown reference.
    pub(crate) fn help_without_value(&self, reference: &str) -> String {
        match self.parameters.get(reference) {
            Some(Parameter::Elsewhere(_)) => parameters::help_without_value(reference),
            _ => "use a parameter of the template for the value, and set it with `--parameter NAME=VALUE`"
                .to_owned(),
        }
    }

    fn default_name(&self, resource: &Resource<'_>, at: Span) -> Value {
        Value { at, data: Data::Text(resource.default_name(&self.context.stack_name)) }
    }

    /// Returns the name of the resource on this machine as a string; `None` if the name is known
    /// only on AWS.
    pub(crate) fn name_text(&self, resource: &Resource<'_>, at: Span) -> Option<String> {
        let data = self.physical_name(resource, at)?;
        Value { at, data }.text(self.findings)
    }

    /// Evaluates one step in a chain of references or conditions. Reports an error if the chain is
    /// too long.
    pub(crate) fn one_deeper<T>(&self, at: Span, follow: impl FnOnce() -> Option<T>) -> Option<T> {
        let deep = self.references_deep.get() + 1;
        if deep > REFERENCES_DEEP_MAX {
            self.findings.error(
                at,
                format!(
                    "this chain of references has more than {REFERENCES_DEEP_MAX} names or conditions"
                ),
                "replace a reference in the chain with a plain value",
            );
            return None;
        }
        self.references_deep.set(deep);
        let found = follow();
        self.references_deep.set(deep - 1);
        found
    }

    /// Returns the resource and the attribute of a `Fn::GetAtt`. `references` has already checked
    /// that both exist.
    fn attribute_path(&self, argument: &Node) -> Option<(String, String)> {
        match &argument.kind {
            Kind::Text(path) => {
                path.split_once('.').map(|(id, name)| (id.to_owned(), name.to_owned()))
            }
            Kind::List(items) => {
                let [resource, attribute] = items.as_slice() else { return None };
                let attribute = self.resolve(attribute)?.text(self.findings)?;
                Some((resource.as_text()?.to_owned(), attribute))
            }
            _ => None,
        }
    }

    /// Evaluates `!GetAtt id.attribute`.
    fn attribute(&self, id: &str, attribute: &str, at: Span) -> Option<Data> {
        let elsewhere = Data::Elsewhere(format!("{id}.{attribute}"));
        let Some(resource) = self.resource(id) else { return Some(elsewhere) };
        let Data::Text(name) = self.physical_name(resource, at)? else { return Some(elsewhere) };
        let region = &self.context.region;
        let text = match (resource.kind, attribute) {
            (kind, "Arn") if kind.is_table() => self.context.table_arn(&name),
            (kind, "StreamArn") if kind.is_table() => {
                return Some(Data::Stream(id.to_owned()));
            }
            (ResourceKind::Function, "Arn") => self.context.function_arn(&name),
            (ResourceKind::Bucket, "Arn") => format!("arn:aws:s3:::{name}"),
            (ResourceKind::Bucket, "DomainName") => format!("{name}.s3.amazonaws.com"),
            (ResourceKind::Bucket, "RegionalDomainName") => {
                format!("{name}.s3.{region}.amazonaws.com")
            }
            (ResourceKind::Bucket, "DualStackDomainName") => {
                format!("{name}.s3.dualstack.{region}.amazonaws.com")
            }
            (ResourceKind::Bucket, "WebsiteURL") => {
                format!("http://{name}.s3-website-{region}.amazonaws.com")
            }
            _ => return Some(elsewhere),
        };
        Some(Data::Text(self.spend(at, text)?))
    }

    /// Joins strings. If one part is known only on AWS, so is the result.
    fn concatenate(&self, parts: Vec<Value>, between: &str, at: Span) -> Option<Data> {
        let mut text = String::new();
        let mut elsewhere = None;
        for (index, part) in parts.into_iter().enumerate() {
            if index > 0 {
                text.push_str(between);
            }
            match part.data {
                Data::Elsewhere(_) => elsewhere = elsewhere.or(Some(part.data)),
                Data::Stream(_) => elsewhere = elsewhere.or(part.reference().map(Data::Elsewhere)),
                _ => text.push_str(&part.text(self.findings)?),
            }
            if text.len() > EVALUATED_BYTES_MAX {
                break;
            }
        }
        let text = self.spend(at, text)?;
        Some(elsewhere.unwrap_or(Data::Text(text)))
    }

    fn substitute(&self, argument: &Node, at: Span) -> Option<Data> {
        let (template, variables) = match &argument.kind {
            Kind::List(items) => match items.as_slice() {
                [template, variables] => (template, variables.entries()),
                _ => return self.wrong_arguments("!Sub", "[text, {Name: value}]", at),
            },
            _ => (argument, &[][..]),
        };
        let Some(template) = template.as_text() else {
            return self.wrong_arguments("!Sub", "a string such as \"${Name}\"", at);
        };
        let mut parts = Vec::new();
        for piece in pieces(template) {
            let data = match piece {
                Piece::Literal(text) => Data::Text(text.to_owned()),
                Piece::Variable(name) => match variables.iter().find(|entry| entry.key == name) {
                    Some(entry) => self.resolve(&entry.value)?.data,
                    None => match name.split_once('.') {
                        Some((id, attribute)) => self.attribute(id, attribute, at)?,
                        None => self.reference(name, at)?,
                    },
                },
            };
            parts.push(Value { at, data });
        }
        // A string that consists only of `${Table.StreamArn}` is the stream itself.
        if let [Value { data: Data::Stream(_), .. }] = parts.as_slice() {
            return parts.pop().map(|part| part.data);
        }
        self.concatenate(parts, "", at)
    }

    fn join(&self, argument: &Node, at: Span) -> Option<Data> {
        let Some([between, items]) = self.arguments(argument) else {
            return self.wrong_arguments("!Join", "[separator, [a, b]]", at);
        };
        let between = self.resolve(between)?.text(self.findings)?;
        match self.resolve(items)?.data {
            Data::List(items) => self.concatenate(items, &between, at),
            elsewhere @ Data::Elsewhere(_) => Some(elsewhere),
            _ => self.wrong_arguments("!Join", "[separator, [a, b]]", at),
        }
    }

    fn split(&self, argument: &Node, at: Span) -> Option<Data> {
        let Some([between, text]) = self.arguments(argument) else {
            return self.wrong_arguments("!Split", "[separator, text]", at);
        };
        let between = self.resolve(between)?.text(self.findings)?;
        let whole = self.resolve(text)?;
        if matches!(whole.data, Data::Elsewhere(_)) {
            return Some(whole.data);
        }
        let whole = whole.text(self.findings)?;
        if between.is_empty() {
            return self.wrong_arguments("!Split", "[separator, text] with a separator", at);
        }
        let parts = whole.split(&between);
        Some(Data::List(
            parts.map(|part| Value { at, data: Data::Text(part.to_owned()) }).collect(),
        ))
    }

    fn select(&self, argument: &Node, at: Span) -> Option<Data> {
        let Some([index, items]) = self.arguments(argument) else {
            return self.wrong_arguments("!Select", "[index, [a, b]]", at);
        };
        let index_at = index.at;
        let index = self.resolve(index)?;
        if let Some(reference) = index.reference() {
            return Some(Data::Elsewhere(reference));
        }
        let index = index.text(self.findings)?;
        let items = match self.resolve(items)?.data {
            Data::List(items) => items,
            elsewhere @ Data::Elsewhere(_) => return Some(elsewhere),
            _ => return self.wrong_arguments("!Select", "[index, [a, b]]", at),
        };
        let count = items.len();
        match index.parse::<usize>().ok().and_then(|index| items.into_iter().nth(index)) {
            Some(item) => Some(item.data),
            None => {
                self.findings.error(
                    index_at,
                    format!("the list has no element `{index}`, only {count} elements"),
                    "list indexes are counted from 0",
                );
                None
            }
        }
    }

    fn find_in_map(&self, argument: &Node, at: Span) -> Option<Data> {
        let (path, otherwise) = match &argument.kind {
            Kind::List(items) => match items.as_slice() {
                [path @ .., last] if items.len() == 4 && last.get("DefaultValue").is_some() => {
                    (path, last.get("DefaultValue"))
                }
                path => (path, None),
            },
            _ => (&[][..], None),
        };
        if path.len() != 3 {
            return self.wrong_arguments("!FindInMap", "[Mapping, TopKey, SecondKey]", at);
        }
        let mut found = self.mappings;
        for step in path {
            let key = self.resolve(step)?;
            if let Some(reference) = key.reference() {
                return Some(Data::Elsewhere(reference));
            }
            let key = key.text(self.findings)?;
            let Some(next) = found.and_then(|node| node.get(&key)) else {
                if let Some(otherwise) = otherwise {
                    return self.resolve(otherwise).map(|value| value.data);
                }
                let known: Vec<&str> = found
                    .map_or(&[][..], Node::entries)
                    .iter()
                    .map(|entry| entry.key.as_str())
                    .collect();
                self.findings.error(
                    step.at,
                    format!("this part of `Mappings` has no key `{key}`"),
                    format!("write {}", crate::diagnostic::listed(known)),
                );
                return None;
            };
            found = Some(next);
        }
        self.resolve(found?).map(|value| value.data)
    }

    /// Returns the arguments of a function that takes exactly `N` arguments.
    pub(crate) fn arguments<'n, const N: usize>(
        &self,
        argument: &'n Node,
    ) -> Option<[&'n Node; N]> {
        match &argument.kind {
            Kind::List(items) => <[&Node; N]>::try_from(items.iter().collect::<Vec<_>>()).ok(),
            _ => None,
        }
    }

    /// Reports wrong arguments of a function. `shape` describes the correct arguments.
    pub(crate) fn wrong_arguments<T>(&self, name: &str, shape: &str, at: Span) -> Option<T> {
        self.findings.error(
            at,
            format!("the arguments of `{name}` are not valid"),
            format!("write `{name}` with {shape}"),
        );
        None
    }

    /// Returns the cached value of a condition. The outer `None` means that the condition is not
    /// cached. The inner `None` means that the condition has no value.
    pub(crate) fn remembered_condition(&self, name: &str) -> Option<Option<bool>> {
        self.condition_values.borrow().get(name).copied()
    }

    pub(crate) fn remember_condition(&self, name: &str, value: Option<bool>) {
        self.condition_values.borrow_mut().insert(name.to_owned(), value);
    }
}
