//! Reads the events of a function and mappings that are resources of their own, each by its type.
//! It does not read their settings; `mapping` and `schedule` do.

use crate::template::{
    diagnostic::{listed, similar},
    mapping::{self, Link},
    properties::Properties,
    resource::Resource,
    schedule,
    stack::{Absent, Function, NotRun, Stack},
    value::{self, Data},
};

/// The types of event that SAM has; those without a reader here are listed as not emulated.
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

/// Reads the events of a function into the stack.
pub(super) fn read(function: &Properties<'_, '_>, resource: &Resource<'_>, stack: &mut Stack) {
    let findings = function.resolver.findings;
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
                stack.mappings.extend(mapping::read(&settings, link, &stack.tables));
            }
            ("Schedule", Some(settings)) => {
                let read = schedule::read(&settings, "Schedule", logical_id, entry.key_at);
                stack.schedules.extend(read);
            }
            ("ScheduleV2", Some(settings)) => {
                let property = "ScheduleExpression";
                stack.schedules.extend(schedule::read(
                    &settings,
                    property,
                    logical_id,
                    entry.key_at,
                ));
            }
            ("DynamoDB" | "Schedule" | "ScheduleV2", None) => {
                if !event.has("Properties") {
                    event.missing("Properties", "{...}");
                }
            }
            _ if TYPES.contains(&kind) => event.not_emulated(
                "Type",
                format!(
                    "events of type `{kind}` are not made here; the function is not invoked by it"
                ),
            ),
            _ => {
                let help = match similar(kind, TYPES.iter().copied()) {
                    Some(meant) => format!("write `{meant}`"),
                    None => format!("write {}", listed(TYPES.iter().copied())),
                };
                findings.error(type_node.at, format!("there is no event type `{kind}`"), help);
            }
        }
    }
}

/// The alias that SAM publishes, to which it ties the function's events.
fn published_alias(function: &Properties<'_, '_>) -> Option<String> {
    match function.value("AutoPublishAlias")?.data {
        Data::Text(alias) => Some(alias),
        _ => None,
    }
}

/// Notes the mappings and schedules of a function that does not run here.
pub(super) fn note_not_run(properties: &Properties<'_, '_>, function: &NotRun, stack: &mut Stack) {
    for entry in properties.named("Events") {
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

/// Notes a mapping resource whose function, which `name` names, does not run here.
fn note_mapping(resource: &Resource<'_>, name: &str, stack: &mut Stack) {
    // The function is named by its id, or by an ARN that is made of it.
    let names = |id: &str| name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == id);
    let mut absent = stack.not_run.iter().filter(|other| other.what == Absent::Function);
    let function = absent.find(|other| names(&other.resource));
    let note = NotRun {
        what: Absent::Mapping,
        resource: resource.id.to_owned(),
        function: function.map_or(name, |function| &function.resource).to_owned(),
        reason: function.map_or_else(
            || format!("`{name}` is not run here"),
            |function| function.reason.clone(),
        ),
        accepted: function.is_some_and(|function| function.accepted),
        at: resource.at,
    };
    stack.not_run.push(note);
}

/// Reads an `AWS::Lambda::EventSourceMapping` into the stack.
pub(super) fn read_mapping_resource(
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
    if let Data::Elsewhere(name) = &function.data {
        properties.not_emulated(
            "FunctionName",
            format!("`{name}` is not run here, so the mapping is not either"),
        );
        note_mapping(resource, &name.to_string(), stack);
        return;
    }
    let Some(name) = function.text(findings) else { return };
    // A version or an alias behind the name means the one function that there is.
    let qualifier = |function: &Function| {
        let rests = [&function.arn, &function.name].map(|own| name.strip_prefix(own.as_str()));
        rests.into_iter().flatten().find(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    let found = stack.functions.iter().find_map(|function| Some((function, qualifier(function)?)));
    let Some((found, qualifier)) = found else {
        // A function that is in the template but does not run here is already listed.
        let in_template = properties.resolver.resources.iter().any(|other| name.contains(other.id));
        if in_template {
            properties.not_emulated(
                "FunctionName",
                format!("`{name}` is not run here, so the mapping is not either"),
            );
            note_mapping(resource, &name, stack);
        } else {
            let known = stack.functions.iter().map(|function| function.logical_id.as_str());
            findings.error(
                at,
                format!("there is no function `{name}` in this template"),
                format!("write `!Ref` with {}", listed(known)),
            );
        }
        return;
    };
    let link = Link {
        logical_id: resource.id.to_owned(),
        function: &found.logical_id,
        qualifier: qualifier
            .strip_prefix(':')
            .filter(|qualifier| *qualifier != "$LATEST")
            .map(str::to_owned),
        source_property: "EventSourceArn",
        at: resource.at,
    };
    let read = mapping::read(properties, link, &stack.tables);
    stack.mappings.extend(read);
}
