//! Parses event source mappings: `DynamoDB` events of a function, and
//! `AWS::Lambda::EventSourceMapping`. Filters are compiled only to find errors.

use std::time::Duration;

use crate::{
    checks::lint,
    evaluation::properties::{Catalogue, PlacedValue, Properties},
    evaluation::value::Data,
    resources::destination,
    stack::{
        Absent, EventSourceMapping, FilterPattern, NotRun, Stack, StartingPosition, StreamSource,
        Table,
    },
    syntax::node::Kind,
    syntax::plain_scalar,
};
use mapping::{FilterCriteria, InvalidFilter, PATTERNS_MAX};

const NOT_EMULATED: Catalogue = &[
    ("KmsKeyArn", "filters are not encrypted"),
    ("LoggingConfig", "the log shows the activity of a mapping"),
    ("MetricsConfig", "no CloudWatch metrics are written"),
    ("ProvisionedPollerConfig", "one process polls"),
    ("Tags", "the mapping has no tags"),
];

/// The function and the stream that a mapping connects.
pub(crate) struct Link<'a> {
    pub(crate) logical_id: String,
    /// The logical id of the function.
    pub(crate) function: &'a str,
    /// The version or alias of the function; `None` if the mapping does not specify one.
    pub(crate) qualifier: Option<String>,
    /// The name of the property that contains the stream: `Stream` in SAM, `EventSourceArn` in
    /// CloudFormation.
    pub(crate) source_property: &'static str,
    pub(crate) at: crate::diagnostic::Span,
}

/// Lambda's default maximum number of filters per mapping (AWS Lambda guide, "Control which events
/// Lambda sends to your function"). AWS can raise this quota.
const PATTERNS_BY_DEFAULT: usize = 5;

/// The reason why a stream outside of the template is not read.
const NOT_IN_TEMPLATE: &str = "a stream of a table outside of this template is not polled";

/// The source of a mapping's records.
enum Source {
    Known(StreamSource),
    /// A source that is not emulated, with the reason. It is listed as not emulated. The source is
    /// possibly not a stream.
    Elsewhere(String),
    /// A source that is not a stream. It is listed as not emulated.
    NoStream,
    /// An invalid source, which was already reported.
    Wrong,
}

/// Parses one mapping and adds it to the stack. A mapping with an error is reported instead. A
/// mapping whose source is not emulated does not run.
pub(crate) fn read(properties: &Properties<'_, '_>, link: Link<'_>, stack: &mut Stack) {
    let is_event = link.source_property == "Stream";
    let stream = match stream(properties, link.source_property, &stack.tables) {
        Source::NoStream if !is_event => return,
        // Only a mapping of a stream has a starting position. Without it, the source is not a
        // stream, and the further requirements do not apply.
        Source::Elsewhere(_) if !is_event && !properties.has("StartingPosition") => return,
        Source::Elsewhere(reason) => {
            not_run(properties, &link, reason, &help_of_stream(&link), stack);
            if !is_event {
                return;
            }
            None
        }
        Source::NoStream | Source::Wrong => None,
        Source::Known(stream) => Some(stream),
    };
    if let Some(StreamSource::Arn(_)) = &stream {
        not_run(properties, &link, NOT_IN_TEMPLATE.to_owned(), &help_of_stream(&link), stack);
    } else if let Some(reason) = unknown_filter(properties) {
        // The mapping cannot run without its filter, because the function would receive unwanted
        // records.
        not_run(properties, &link, reason, "write the pattern itself", stack);
    }
    stack.mappings.extend(settings(properties, link, stream, &stack.tables));
}

/// Returns advice on how to give the mapping a stream of this template.
fn help_of_stream(link: &Link<'_>) -> String {
    format!(
        "give `{}` the stream of a table of this template, such as `!GetAtt Table.StreamArn`",
        link.source_property
    )
}

/// Returns the reason why the filters of a mapping are unknown; `None` if they are known.
fn unknown_filter(properties: &Properties<'_, '_>) -> Option<String> {
    let unknown = || "`FilterCriteria` is known only on AWS".to_owned();
    if !properties.has("FilterCriteria") || properties.node("FilterCriteria").is_none() {
        return None;
    }
    let Some(criteria) = properties.mapping("FilterCriteria") else { return Some(unknown()) };
    let is_listed = criteria.node("Filters").is_none_or(|node| matches!(node.kind, Kind::List(_)));
    if !is_listed {
        return Some(unknown());
    }
    let patterns = criteria.mappings("Filters");
    let reference = patterns.iter().find_map(|filter| {
        // A pattern with a wrong type was already reported.
        let node = filter.node("Pattern")?;
        matches!(node.kind, Kind::Text(_) | Kind::Call(..)).then(|| filter.unknown("Pattern"))?
    })?;
    Some(format!("a pattern of its filter is `{}`, whose value is unknown", reference.value))
}

/// Records a mapping that does not run on this machine. Warns if the mapping is enabled and its
/// function runs.
fn not_run(
    properties: &Properties<'_, '_>,
    link: &Link<'_>,
    reason: String,
    help: &str,
    stack: &mut Stack,
) {
    let Link { logical_id, function, at, .. } = link;
    let is_absent = |it: &NotRun| it.what == Absent::Function && it.resource == *function;
    // A disabled mapping does not run on AWS either.
    let is_disabled = properties.boolean("Enabled") == Some(false);
    if !is_disabled && !stack.not_run.iter().any(is_absent) {
        let message =
            format!("`{logical_id}` does not invoke `{function}` on this machine: {reason}");
        let help = format!(
            "{help}; accept `not-run-here` on `{}` if it is meant only for AWS",
            properties.resource
        );
        lint::warn(properties, lint::NOT_RUN_HERE, *at, message, help);
    }
    let own = properties.resolver.resource(properties.resource);
    stack.note_not_run(NotRun {
        what: Absent::Mapping,
        resource: logical_id.clone(),
        function: (*function).to_owned(),
        stream: None,
        reason,
        accepted: is_disabled || own.is_some_and(|own| lint::accepts(own.node, lint::NOT_RUN_HERE)),
        at: *at,
    });
}

fn settings(
    properties: &Properties<'_, '_>,
    link: Link<'_>,
    stream: Option<StreamSource>,
    tables: &[Table],
) -> Option<EventSourceMapping> {
    let is_event = link.source_property == "Stream";
    if is_event {
        check_types(properties);
    }
    let batch_size = properties.unsigned("BatchSize", 1..=10_000).unwrap_or(100);
    let window = properties.unsigned("MaximumBatchingWindowInSeconds", 0..=300).unwrap_or(0);
    let retries = properties.integer("MaximumRetryAttempts", -1..=10_000);
    let age = record_age(properties);
    let is_bound_refused = (properties.has("MaximumRetryAttempts") && retries.is_none())
        || (properties.has("MaximumRecordAgeInSeconds") && age.is_none());
    let bisect = properties.boolean("BisectBatchOnFunctionError").unwrap_or(false);
    let factor = properties.unsigned("ParallelizationFactor", 1..=10).unwrap_or(1);
    let tumbling = properties.unsigned("TumblingWindowInSeconds", 0..=900).unwrap_or(0);
    check_parallelization(properties, factor, tumbling);
    let starting_position = starting_position(properties);
    let filters = filters(properties);
    let reports = response_types(properties);
    let on_failure = destination::read(properties, link.function, is_event);
    let enabled = properties.boolean("Enabled").unwrap_or(true);
    properties.finish(NOT_EMULATED);
    let table = match &stream {
        Some(StreamSource::StreamOf(id)) => tables.iter().find(|table| table.logical_id == *id),
        _ => None,
    };
    lint::check_filters(properties, &filters, table);
    let mapping = EventSourceMapping {
        logical_id: link.logical_id,
        function: link.function.to_owned(),
        qualifier: link.qualifier,
        stream: stream?,
        starting_position: starting_position?,
        batch_size,
        batching_window: Duration::from_secs(u64::from(window)),
        // -1 is not a valid u32 and becomes `None`. Both -1 and `None` mean no limit.
        retry_attempts_max: retries.and_then(|number| u32::try_from(number.value).ok()),
        // -1 is not a valid u64 and becomes `None`.
        record_age_max: age.and_then(|age| u64::try_from(age).ok()).map(Duration::from_secs),
        bisect_batch_on_function_error: bisect,
        parallelization_factor: factor,
        tumbling_window: (tumbling > 0).then(|| Duration::from_secs(u64::from(tumbling))),
        report_batch_item_failures: reports,
        filters,
        on_failure,
        enabled,
        at: link.at,
    };
    lint::check_mapping(properties, &mapping, table, is_bound_refused);
    Some(mapping)
}

fn stream(properties: &Properties<'_, '_>, name: &'static str, tables: &[Table]) -> Source {
    let findings = properties.resolver.findings;
    if !properties.has(name) {
        properties.missing(name, "!GetAtt Table.StreamArn");
        return Source::Wrong;
    }
    let Some(value) = properties.value(name) else { return Source::Wrong };
    let at = value.at;
    match value.data {
        Data::Stream(table) => {
            let found = tables.iter().find(|found| found.logical_id == table);
            if found.is_none() && !findings.has_errors() {
                return Source::Elsewhere(format!(
                    "the table `{table}` is not created on this machine"
                ));
            }
            // After an error, the table may be missing because it is invalid.
            if !findings.has_errors() && found.is_some_and(|found| found.stream.is_none()) {
                findings.error(
                    at,
                    format!("the table `{table}` has no stream"),
                    format!("give `{table}` a `StreamSpecification:`"),
                );
            }
            Source::Known(StreamSource::StreamOf(table))
        }
        Data::Elsewhere(elsewhere) => {
            properties.not_emulated(
                name,
                format!("`{elsewhere}` is not emulated; this mapping does not invoke the function"),
            );
            Source::Elsewhere(format!("`{elsewhere}` is not emulated"))
        }
        Data::Text(text) => stream_of_arn(properties, name, &text, at, tables),
        Data::Absent | Data::List(_) => {
            let _ = value.text(findings);
            Source::Wrong
        }
    }
}

/// Parses the ARN of a stream. The stream may belong to a table in this template.
fn stream_of_arn(
    properties: &Properties<'_, '_>,
    name: &'static str,
    arn: &str,
    at: crate::diagnostic::Span,
    tables: &[Table],
) -> Source {
    let findings = properties.resolver.findings;
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let [_, _, service, _, _, path] = parts.as_slice() else {
        let meant = tables.iter().find(|table| table.name == arn);
        let table = meant.map_or("Table", |table| table.logical_id.as_str());
        findings.error(
            at,
            format!("`{arn}` is not the ARN of a stream"),
            format!("write `!GetAtt {table}.StreamArn`"),
        );
        return Source::Wrong;
    };
    if *service != "dynamodb" {
        properties.not_emulated(
            name,
            format!(
                "sources of `{service}` are not polled; this mapping does not invoke the function"
            ),
        );
        return Source::NoStream;
    }
    let table = tables.iter().find(|table| *arn == table.arn);
    let Some((table_path, _)) = path.split_once("/stream/") else {
        let table = table.map_or("Table", |table| table.logical_id.as_str());
        findings.error(
            at,
            format!("`{arn}` is the ARN of a table, not of a stream"),
            format!("write `!GetAtt {table}.StreamArn`"),
        );
        return Source::Wrong;
    };
    let own = tables.iter().find(|table| table.arn.ends_with(&format!(":{table_path}")));
    if let Some(table) = own {
        return Source::Known(StreamSource::StreamOf(table.logical_id.clone()));
    }
    properties.not_emulated(
        name,
        format!("{NOT_IN_TEMPLATE}; this mapping does not invoke the function"),
    );
    Source::Known(StreamSource::Arn(arn.to_owned()))
}

/// Parses a maximum record age in seconds: -1 (no limit), or 60 to 604,800 (7 days). Returns `None`
/// if the age is absent or invalid.
fn record_age(properties: &Properties<'_, '_>) -> Option<i64> {
    let PlacedValue { value, at } =
        properties.integer("MaximumRecordAgeInSeconds", i64::MIN..=i64::MAX)?;
    if value != -1 && !(60..=604_800).contains(&value) {
        properties.resolver.findings.error(
            at,
            format!("MaximumRecordAgeInSeconds {value} is out of range"),
            "write -1 (never discard), or 60 to 604800",
        );
        return None;
    }
    Some(value)
}

/// Properties of an event whose values must be numbers or booleans. SAM rejects strings.
const TYPED: &[(&str, &str)] = &[
    ("BatchSize", "a number"),
    ("BisectBatchOnFunctionError", "true or false"),
    ("Enabled", "true or false"),
    ("MaximumBatchingWindowInSeconds", "a number"),
    ("MaximumRecordAgeInSeconds", "a number"),
    ("MaximumRetryAttempts", "a number"),
    ("ParallelizationFactor", "a number"),
    ("TumblingWindowInSeconds", "a number"),
];

/// Reports numbers or booleans in quotes in the properties of an event. SAM rejects them, because
/// they are strings.
fn check_types(properties: &Properties<'_, '_>) {
    let findings = properties.resolver.findings;
    for (name, wanted) in TYPED {
        let Some(node) = properties.node(name) else { continue };
        let Some(text) = node.as_text() else { continue };
        let typed = plain_scalar::typed(text);
        let is_right = typed.as_deref().is_some_and(|typed| match typed {
            "true" | "false" => *wanted == "true or false",
            number => *wanted == "a number" && number.parse::<i64>().is_ok(),
        });
        if is_right && findings.is_quoted(node.at) {
            findings.error(
                node.at,
                format!("SAM requires {wanted} for `{name}`, but this value is a string"),
                format!("write `{name}: {text}` without quotes"),
            );
        }
    }
}

fn check_parallelization(properties: &Properties<'_, '_>, factor: u32, tumbling: u32) {
    let findings = properties.resolver.findings;
    if tumbling > 0 && factor > 1 {
        findings.error(
            properties.key_place("ParallelizationFactor").unwrap_or(properties.at),
            "a tumbling window needs a ParallelizationFactor of 1",
            "remove one of the two settings",
        );
    }
}

fn starting_position(properties: &Properties<'_, '_>) -> Option<StartingPosition> {
    let findings = properties.resolver.findings;
    if !properties.has("StartingPosition") {
        properties.missing("StartingPosition", "TRIM_HORIZON");
        return None;
    }
    // If the position is known only on AWS, `TRIM_HORIZON` is used, because it misses no record.
    if properties.unknown("StartingPosition").is_some() {
        let _ = properties.text("StartingPosition");
        return Some(StartingPosition::TrimHorizon);
    }
    let position = properties.text("StartingPosition")?;
    if properties.has("StartingPositionTimestamp") {
        properties.not_emulated(
            "StartingPositionTimestamp",
            "a DynamoDB stream cannot be read from a timestamp",
        );
        let _ = properties.node("StartingPositionTimestamp");
    }
    match position.value.as_str() {
        "TRIM_HORIZON" => Some(StartingPosition::TrimHorizon),
        "LATEST" => {
            lint::warn(
                properties,
                "latest",
                position.at,
                "LATEST misses records written until the mapping has started",
                "write `TRIM_HORIZON` and make the function idempotent",
            );
            Some(StartingPosition::Latest)
        }
        other => {
            findings.error(
                position.at,
                format!("StartingPosition cannot be `{other}` for a DynamoDB stream"),
                "write `TRIM_HORIZON` or `LATEST`",
            );
            None
        }
    }
}

fn filters(properties: &Properties<'_, '_>) -> Vec<FilterPattern> {
    let findings = properties.resolver.findings;
    let Some(criteria) = properties.mapping("FilterCriteria") else { return Vec::new() };
    let mut patterns = Vec::new();
    for filter in criteria.mappings("Filters") {
        let example = r#"'{"eventName":["REMOVE"]}'"#;
        if let Some(node) = filter.node("Pattern")
            && matches!(node.kind, Kind::Map(_))
        {
            findings.error(
                node.at,
                "a pattern must be a JSON string, but this value is a mapping",
                format!("write it as a JSON string, such as `Pattern: {example}`"),
            );
        } else if let Some(pattern) = filter.required_text("Pattern", example) {
            match FilterCriteria::compile(&[&pattern.value]) {
                Ok(_) => patterns.push(FilterPattern { text: pattern.value, at: pattern.at }),
                Err(InvalidFilter { path, problem, remedy, .. }) => {
                    let at = lint::place_in_lines(findings, pattern.at, &path);
                    let place = if path.is_empty() { path } else { format!("at `{path}`: ") };
                    findings.error(
                        at,
                        format!("this pattern is not valid: {place}{problem}"),
                        format!("write {remedy}"),
                    );
                }
            }
        }
        filter.finish(&[]);
    }
    criteria.finish(&[]);
    if (PATTERNS_BY_DEFAULT + 1..=PATTERNS_MAX).contains(&patterns.len()) {
        lint::warn(
            properties,
            "filter-quota",
            criteria.at,
            format!(
                "this mapping has {} filters, but the quota is {PATTERNS_BY_DEFAULT} unless AWS raised it",
                patterns.len()
            ),
            format!(
                "merge some of them into one pattern, or ask AWS for up to {PATTERNS_MAX} and accept `filter-quota`"
            ),
        );
    }
    if patterns.len() > PATTERNS_MAX {
        findings.error(
            criteria.at,
            format!("this mapping has {} filters", patterns.len()),
            format!("Lambda allows at most {PATTERNS_MAX}; merge some of them into one pattern"),
        );
    }
    patterns
}

/// Returns true if the function reports failed records. This is Lambda's only response type.
fn response_types(properties: &Properties<'_, '_>) -> bool {
    let findings = properties.resolver.findings;
    let Some(value) = properties.value("FunctionResponseTypes") else {
        lint::warn(
            properties,
            "whole-batch",
            properties.at,
            "without ReportBatchItemFailures, one failing record causes a retry of the entire batch",
            "write `FunctionResponseTypes: [ReportBatchItemFailures]`, and return the records to retry",
        );
        return false;
    };
    let at = value.at;
    let Data::List(items) = value.data else {
        findings.error(
            at,
            "FunctionResponseTypes is a list",
            "write `FunctionResponseTypes: [ReportBatchItemFailures]`",
        );
        return false;
    };
    let mut reports = false;
    for item in items {
        let at = item.at;
        match item.text(findings).as_deref() {
            Some("ReportBatchItemFailures") => reports = true,
            Some(other) => findings.error(
                at,
                format!("unknown response type `{other}`"),
                "write `ReportBatchItemFailures`",
            ),
            None => {}
        }
    }
    reports
}
