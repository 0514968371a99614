//! Estimates the permissions of a function: the tables of the template to which it may write, and
//! the services that it may use. The sources are the policies of its role and SAM's policy
//! templates.
//!
//! A policy statement that this module does not understand counts as granting nothing.

use crate::{
    declarations::resource::{Resource, ResourceKind},
    evaluation::resolver::Resolver,
    syntax::intrinsic::Intrinsic,
    syntax::node::{Kind, Node},
};

/// The actions that write an item. They are in lower case, because IAM ignores case.
const WRITES: &[&str] = &[
    "dynamodb:batchwriteitem",
    "dynamodb:deleteitem",
    "dynamodb:partiqldelete",
    "dynamodb:partiqlinsert",
    "dynamodb:partiqlupdate",
    "dynamodb:putitem",
    "dynamodb:updateitem",
];

/// SAM's policy templates that allow a function to write to the table `TableName`.
const WRITING_TEMPLATES: &[&str] = &["DynamoDBCrudPolicy", "DynamoDBWritePolicy"];

/// Returns the logical ids of the tables that the function may write to, without duplicates.
pub(crate) fn written_tables(resolver: &Resolver<'_>, function: &Resource<'_>) -> Vec<String> {
    let mut tables = Vec::new();
    if let Some(role) = function.properties.get("Role").and_then(referred)
        && let Some(role) = resolver.resource(role)
    {
        let policies = role.properties.get("Policies").map_or(&[][..], items);
        for policy in policies {
            tables.extend(policy.get("PolicyDocument").into_iter().flat_map(of_document));
        }
        tables.extend(of_separate_policies(resolver, role.id));
    }
    for policy in function.properties.get("Policies").map_or(&[][..], items) {
        for entry in policy.entries() {
            if WRITING_TEMPLATES.contains(&entry.key.as_str()) {
                let name = entry.value.get("TableName");
                tables.extend(name.into_iter().flat_map(|name| table_named(resolver, name)));
            }
        }
        tables.extend(of_document(policy));
    }
    tables.retain(|id| {
        let kind = resolver.resource(id).map(|resource| resource.kind);
        kind.is_some_and(ResourceKind::is_table)
    });
    tables.sort();
    tables.dedup();
    tables
}

/// Returns true if the function may have permissions for a service, such as `sqs`. Returns false
/// only if the function certainly has no such permission.
pub(crate) fn may_reach(resolver: &Resolver<'_>, function: &Resource<'_>, service: &str) -> bool {
    let own_role = format!("{}Role", function.id);
    let mut separate = resolver.resources.iter().filter(|found| belongs(found, &own_role));
    function.properties.get("Role").is_some()
        || separate.next().is_some()
        || function
            .properties
            .get("Policies")
            .map_or(&[][..], items)
            .iter()
            .any(|policy| may_be_of(policy, service))
}

/// Returns true if a policy may allow actions of a service. A managed policy may allow any action,
/// because its content is not in the template.
fn may_be_of(policy: &Node, service: &str) -> bool {
    let Kind::Map(entries) = &policy.kind else { return true };
    let Some(statements) = policy.get("Statement") else {
        let upper = service.to_uppercase();
        return entries.iter().any(|template| {
            template.key.starts_with(&upper) && !template.key.ends_with("ReadPolicy")
        });
    };
    items(statements).iter().any(|statement| match statement.get("Action").map(items) {
        Some(actions) => actions.iter().any(|action| match action.as_text() {
            Some(action) => {
                let of = action.split(':').next().unwrap_or_default();
                of == "*" || of.eq_ignore_ascii_case(service)
            }
            None => true,
        }),
        None => true,
    })
}

/// Returns true if a resource is a policy that is attached to the role.
fn belongs(resource: &Resource<'_>, role: &str) -> bool {
    let roles = resource.properties.get("Roles").map_or(&[][..], items);
    matches!(resource.type_name, "AWS::IAM::Policy" | "AWS::IAM::ManagedPolicy")
        && roles.iter().any(|node| referred(node) == Some(role))
}

/// Returns the tables to which `AWS::IAM::Policy` resources allow a role to write.
fn of_separate_policies(resolver: &Resolver<'_>, role: &str) -> Vec<String> {
    let policies = resolver.resources.iter().filter(|resource| belongs(resource, role));
    policies
        .filter_map(|policy| policy.properties.get("PolicyDocument"))
        .flat_map(of_document)
        .collect()
}

fn of_document(document: &Node) -> Vec<String> {
    let statements = document.get("Statement").map_or(&[][..], items);
    statements.iter().flat_map(of_statement).collect()
}

fn of_statement(statement: &Node) -> Vec<String> {
    let allows = statement.get("Effect").and_then(Node::as_text) == Some("Allow");
    let actions = statement.get("Action").map_or(&[][..], items);
    if !allows || !actions.iter().filter_map(Node::as_text).any(is_write) {
        return Vec::new();
    }
    let resources = statement.get("Resource").map_or(&[][..], items);
    resources.iter().flat_map(all_referred).map(str::to_owned).collect()
}

/// Returns true if an action of a policy includes a write of an item. The action may end with `*`.
fn is_write(action: &str) -> bool {
    let action = action.to_lowercase();
    match action.strip_suffix('*') {
        Some(start) => WRITES.iter().any(|write| write.starts_with(start)),
        None => WRITES.contains(&action.as_str()),
    }
}

/// Returns the elements of a list. Any other node is returned as the only element.
fn items(node: &Node) -> &[Node] {
    match &node.kind {
        Kind::List(items) => items,
        _ => std::slice::from_ref(node),
    }
}

/// Returns the logical id in `!Ref X`, `!GetAtt X.Arn` or `!Sub "${X.Arn}…"`.
fn referred(node: &Node) -> Option<&str> {
    all_referred(node).into_iter().next()
}

/// Returns the logical ids and parameters in a reference. For a `!Sub` they are in the order of the
/// string.
fn all_referred(node: &Node) -> Vec<&str> {
    let Kind::Call(intrinsic, argument) = &node.kind else { return Vec::new() };
    let text = match &argument.kind {
        Kind::Text(text) => Some(text.as_str()),
        Kind::List(items) => items.first().and_then(Node::as_text),
        _ => None,
    };
    let Some(text) = text else { return Vec::new() };
    match intrinsic {
        Intrinsic::Ref => vec![text],
        Intrinsic::GetAtt => text.split('.').take(1).collect(),
        Intrinsic::Sub => {
            text.split("${").skip(1).filter_map(|behind| behind.split(['.', '}']).next()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the logical ids of the tables that a `TableName` may mean: referenced tables, and tables
/// with this name.
fn table_named(resolver: &Resolver<'_>, name: &Node) -> Vec<String> {
    let Some(literal) = name.as_text() else {
        return all_referred(name).into_iter().map(str::to_owned).collect();
    };
    let is_it = |table: &&Resource<'_>| {
        table.properties.get("TableName").and_then(Node::as_text) == Some(literal)
    };
    resolver.resources.iter().filter(is_it).map(|table| table.id.to_owned()).collect()
}
