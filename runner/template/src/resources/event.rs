//! Parses the events of a function, and the mappings that are separate resources. `mapping` and
//! `schedule` parse their settings.

use crate::{
    checks::lint,
    declarations::resource::{Resource, ResourceKind},
    diagnostic::{Span, listed, similar},
    evaluation::properties::Properties,
    evaluation::resolver::Resolver,
    evaluation::value::{self, Data},
    resources::function,
    resources::mapping::{self, Link},
    resources::schedule,
    stack::{Absent, Function, NotRun, Stack},
    syntax::node::Node,
};

/// SAM's event types. Types without a parser in this crate are listed as not emulated.
const TYPES: &[&str] = &[
    "AlexaSkill",
    "Api",
    "CloudWatchEvent",
    "CloudWatchLogs",
    "Cognito",
    "DocumentDB",
    "DynamoDB",
    "EventBridgeRule",
    "HttpApi",
    "IoTRule",
    "Kinesis",
    "MQ",
    "MSK",
    "S3",
    "SNS",
    "SQS",
    "Schedule",
    "ScheduleV2",
    "SelfManagedKafka",
];

/// Parses the events of a function and adds them to the stack.
pub(crate) fn read(function: &Properties<'_, '_>, resource: &Resource<'_>, stack: &mut Stack) {
    let findings = function.resolver.findings;
    let retries = function::asynchronous_retries(function);
    for entry in function.named("Events") {
        let path = format!("Events.{}", entry.key);
        let Some(Some(node)) = function.resolver.choose(&entry.value) else { continue };
        let Some(event) = function.below(path.clone(), entry.key_at, node) else { continue };
        if !event.has("Type") {
            event.missing("Type", "DynamoDB");
        }
        let Some(type_node) = event.node("Type") else { continue };
        let Some(kind) = value::literal(type_node, "an event's Type", findings) else { continue };
        let logical_id = format!("{}{}", resource.id, entry.key);
        let settings = event
            .node("Properties")
            .and_then(|node| function.below(format!("{path}.Properties"), entry.key_at, node));
        event.finish(&[]);
        match (kind, settings) {
            ("DynamoDB", Some(settings)) => {
                let link = Link {
                    logical_id,
                    function: resource.id,
                    qualifier: published_alias(function),
                    source_property: "Stream",
                    at: entry.key_at,
                };
                mapping::read(&settings, link, stack);
            }
            ("Schedule" | "ScheduleV2", Some(settings)) => {
                let property = if kind == "Schedule" { "Schedule" } else { "ScheduleExpression" };
                let read = schedule::read(&settings, property, logical_id, retries, entry.key_at);
                stack.schedules.extend(read);
            }
            ("DynamoDB" | "Schedule" | "ScheduleV2", None) => {
                if !event.has("Properties") {
                    event.missing("Properties", "{...}");
                }
            }
            (_, Some(settings)) if TYPES.contains(&kind) && reads_a_table(&settings) => findings.error(
                type_node.at,
                format!("`Stream` is a DynamoDB stream, but events of type `{kind}` have a different source"),
                "write `Type: DynamoDB`",
            ),
            _ if TYPES.contains(&kind) => event.not_emulated(
                "Type",
                format!(
                    "events of type `{kind}` are not emulated; this event does not invoke the function"
                ),
            ),
            _ => {
                let help = match similar(kind, TYPES.iter().copied()) {
                    Some(meant) => format!("write `{meant}`"),
                    None => format!("write {}", listed(TYPES.iter().copied())),
                };
                findings.error(type_node.at, format!("unknown event type `{kind}`"), help);
            }
        }
    }
}

/// Returns true if an event reads the stream of a table in this template.
fn reads_a_table(settings: &Properties<'_, '_>) -> bool {
    settings.value("Stream").is_some_and(|value| matches!(value.data, Data::Stream(_)))
}

/// Returns the alias in `AutoPublishAlias`. SAM connects the function's events to this alias.
fn published_alias(function: &Properties<'_, '_>) -> Option<String> {
    match function.value("AutoPublishAlias")?.data {
        Data::Text(alias) => Some(alias),
        _ => None,
    }
}

/// Adds the mappings and schedules of a function that does not run on this machine to the list of
/// skipped parts.
pub(crate) fn note_not_run(properties: &Properties<'_, '_>, function: &NotRun, stack: &mut Stack) {
    // Only the names and types of the events are needed, so events that cannot be parsed are
    // ignored.
    for entry in properties.node("Events").map_or(&[][..], Node::entries) {
        let kind = entry.value.get("Type").and_then(|node| node.as_text());
        let what = match kind {
            Some("DynamoDB") => Absent::Mapping,
            Some("Schedule" | "ScheduleV2") => Absent::Schedule,
            _ => continue,
        };
        let resource = format!("{}{}", function.resource, entry.key);
        stack.not_run.push(NotRun { what, resource, at: entry.key_at, ..function.clone() });
    }
}

/// Records a mapping resource whose function `name` does not run on this machine. The mapping is
/// parsed only to find errors.
fn not_run(
    properties: &Properties<'_, '_>,
    resource: &Resource<'_>,
    name: &str,
    qualifier: Option<String>,
    stack: &mut Stack,
) {
    properties.not_emulated(
        "FunctionName",
        format!("`{name}` does not run here, so neither does the mapping"),
    );
    // `name` is the function's logical id, or an ARN that contains the logical id.
    let names = |id: &str| name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == id);
    let mut absent = stack.not_run.iter().filter(|other| other.what == Absent::Function);
    let function = absent.find(|other| names(&other.resource));
    if function.is_none() {
        let known = stack.functions.iter().map(|function| function.logical_id.as_str());
        let meant = match similar(name, known) {
            Some(meant) => format!("write `!Ref {meant}`"),
            None => "write `!Ref` with a function of this template".to_owned(),
        };
        lint::warn(
            properties,
            lint::NOT_RUN_HERE,
            properties.key_place("FunctionName").unwrap_or(resource.at),
            format!(
                "`{}` invokes no function: `{name}` is not a function that runs on this machine",
                resource.id
            ),
            format!(
                "{meant}; accept `not-run-here` on `{}` if it is meant only for AWS",
                resource.id
            ),
        );
    }
    let note = NotRun {
        what: Absent::Mapping,
        resource: resource.id.to_owned(),
        function: function.map_or(name, |function| &function.resource).to_owned(),
        stream: None,
        reason: function.map_or_else(
            || format!("`{name}` does not run on this machine"),
            |function| function.reason.clone(),
        ),
        accepted: function.is_some_and(|function| function.accepted)
            || lint::accepts(resource.node, lint::NOT_RUN_HERE),
        at: resource.at,
    };
    properties.resolver.findings.of_what_does_not_run(|| {
        read_settings(properties, resource, &note.function, qualifier, stack);
    });
    stack.note_not_run(note);
}

fn read_settings(
    properties: &Properties<'_, '_>,
    resource: &Resource<'_>,
    function: &str,
    qualifier: Option<String>,
    stack: &mut Stack,
) {
    let link = Link {
        logical_id: resource.id.to_owned(),
        function,
        qualifier,
        source_property: "EventSourceArn",
        at: resource.at,
    };
    mapping::read(properties, link, stack);
}

/// Returns the function of a version or an alias, with the qualifier, as in `NAME:live`. The
/// version or alias is a resource of the template, or is generated by SAM: `Function.Alias`,
/// `Function.Version`, or a logical id that begins with the logical id of the function.
fn qualified(resolver: &Resolver<'_>, name: &str, at: Span) -> Option<String> {
    let text_of = |resource: &Resource<'_>, property: &str| {
        let value = resolver.resolve(resource.properties.get(property)?)?;
        if let Data::Text(text) = value.data { Some(text) } else { None }
    };
    // `!Ref` and these two attributes return the same ARN.
    let id = [".AliasArn", ".FunctionArn"].into_iter().find_map(|end| name.strip_suffix(end));
    if let Some(own) = resolver.resource(id.unwrap_or(name)) {
        let qualifier = match own.type_name {
            "AWS::Lambda::Alias" => text_of(own, "Name")?,
            "AWS::Lambda::Version" => own.id.to_owned(),
            _ => return None,
        };
        return Some(format!("{}:{qualifier}", text_of(own, "FunctionName")?));
    }
    let mut functions =
        resolver.resources.iter().filter(|found| found.kind == ResourceKind::Function);
    functions.find_map(|function| {
        let rest = name.strip_prefix(function.id)?;
        let qualifier = match rest.strip_prefix("Alias") {
            _ if rest == ".Alias" => text_of(function, "AutoPublishAlias")?,
            _ if rest == ".Version" => "Version".to_owned(),
            Some(alias) => alias.to_owned(),
            None if rest.starts_with("Version") => rest.to_owned(),
            None => return None,
        };
        Some(format!("{}:{qualifier}", resolver.name_text(function, at)?))
    })
}

/// Returns the function with this name or ARN, and the version or alias in it. All versions run the
/// same code on this machine.
fn called<'s>(stack: &'s Stack, name: &str) -> Option<(&'s Function, Option<String>)> {
    stack.functions.iter().find_map(|function| {
        let rests = [&function.arn, &function.name].map(|own| name.strip_prefix(own.as_str()));
        let mut rests = rests.into_iter().flatten();
        let rest = rests.find(|rest| rest.is_empty() || rest.starts_with(':'))?;
        let qualifier = rest.strip_prefix(':').filter(|qualifier| *qualifier != "$LATEST");
        Some((function, qualifier.map(str::to_owned)))
    })
}

/// Parses an `AWS::Lambda::EventSourceMapping` and adds it to the stack.
pub(crate) fn read_mapping_resource(
    properties: &Properties<'_, '_>,
    resource: &Resource<'_>,
    stack: &mut Stack,
) {
    let findings = properties.resolver.findings;
    if !properties.has("FunctionName") {
        properties.missing("FunctionName", "!Ref Function");
        return;
    }
    let Some(function) = properties.value("FunctionName") else { return };
    let at = function.at;
    let name = match &function.data {
        Data::Elsewhere(name) => {
            let behind = qualified(properties.resolver, name, at);
            let Some(known) = behind.filter(|text| called(stack, text).is_some()) else {
                not_run(properties, resource, name, None, stack);
                return;
            };
            known
        }
        _ => match function.text(findings) {
            Some(name) => name,
            None => return,
        },
    };
    let Some((found, qualifier)) = called(stack, &name) else {
        not_run(properties, resource, &name, None, stack);
        return;
    };
    let id = found.logical_id.clone();
    let is_absent = |entry: &NotRun| entry.what == Absent::Function && entry.resource == id;
    if stack.not_run.iter().any(is_absent) {
        not_run(properties, resource, &id, qualifier, stack);
    } else {
        read_settings(properties, resource, &id, qualifier, stack);
    }
}
