//! Warns about settings that are valid but probably unintended. Some checks compare several
//! resources.
//!
//! A warning never rejects a template. `Metadata: {Weir: {Accept: [name]}}` on a resource
//! suppresses the check with this name.

use std::collections::BTreeMap;

use crate::{
    checks::grants,
    declarations::resource::{Resource, ResourceKind},
    diagnostic::{Findings, Span, listed, similar},
    evaluation::properties::Properties,
    evaluation::resolver::Resolver,
    stack::{EventSourceMapping, FilterPattern, Stack, StreamSource, StreamViewType, Table},
    syntax::node::{Kind, Node},
};
use mapping::{FilterCriteria, PatternFault, RecordShape, Remark};

/// Maximum number of readers of a shard that DynamoDB recommends (AWS Lambda guide, "Using AWS
/// Lambda with Amazon DynamoDB": two, for a table that is not a global table).
const READERS_MAX: usize = 2;

/// The time for which a stream keeps a record, in seconds.
const RETENTION_SECONDS: u64 = 24 * 60 * 60;

/// The name of the check for functions that do not run on this machine.
pub(crate) const NOT_RUN_HERE: &str = "not-run-here";

/// The names of all checks, as used in `Accept`.
pub(crate) const NAMES: &[&str] = &[
    "always-matches",
    "destination-access",
    "dropped-records",
    "filter-quota",
    "item-order",
    "latest",
    "many-readers",
    "never-matches",
    NOT_RUN_HERE,
    "record-age",
    "retries-forever",
    "self-feeding",
    "ttl-without-image",
    "whole-batch",
];

/// Adds a warning of a check. If the resource accepts the check, nothing is added.
pub(crate) fn warn(
    properties: &Properties<'_, '_>,
    name: &'static str,
    at: Span,
    message: impl Into<String>,
    help: impl Into<String>,
) {
    let accepted = properties
        .resolver
        .resource(properties.resource)
        .is_some_and(|resource| accepts(resource.node, name));
    if !accepted {
        properties.resolver.findings.lint(name, at, message, help);
    }
}

fn accepted_names(resource: &Node) -> &[Node] {
    let accepted = resource
        .get("Metadata")
        .and_then(|metadata| metadata.get("Weir"))
        .and_then(|weir| weir.get("Accept"));
    match accepted.map(|node| &node.kind) {
        Some(Kind::List(items)) => items,
        _ => &[],
    }
}

/// Returns true if a resource accepts a check.
pub(crate) fn accepts(resource: &Node, name: &str) -> bool {
    accepted_names(resource).iter().any(|node| node.as_text() == Some(name))
}

/// Reports an unknown name in `Accept`, because such a name would have no effect.
pub(crate) fn check_accepted(resource: &Resource<'_>, findings: &Findings<'_>) {
    for node in accepted_names(resource.node) {
        let name = node.as_text().unwrap_or_default();
        if !NAMES.contains(&name) {
            let help = match similar(name, NAMES.iter().copied()) {
                Some(meant) => format!("write `{meant}`"),
                None => format!("write {}", listed(NAMES.iter().copied())),
            };
            findings.error(node.at, format!("`Accept` names the unknown check `{name}`"), help);
        }
    }
}

/// Checks the filters of one mapping.
pub(crate) fn check_filters(
    properties: &Properties<'_, '_>,
    filters: &[FilterPattern],
    table: Option<&Table>,
) {
    let shape = shape(table);
    for FilterPattern { text, at } in filters {
        let Ok(criteria) = FilterCriteria::compile(&[text]) else { continue };
        for Remark { fault, path, marked, problem, remedy, .. } in criteria.remarks(&shape) {
            let place = if path.is_empty() { path } else { format!("at `{path}`: ") };
            let at = piece(properties.resolver.findings, *at, &marked);
            let (name, message) = match fault {
                PatternFault::NeverMatches => {
                    ("never-matches", format!("this filter can never match: {place}{problem}"))
                }
                PatternFault::AlwaysMatches => (
                    "always-matches",
                    format!(
                        "this condition always matches, even if the attribute exists: {problem}"
                    ),
                ),
                PatternFault::ExcludesNothing => (
                    "always-matches",
                    format!("this `anything-but` excludes nothing: {place}{problem}"),
                ),
            };
            warn(properties, name, at, message, format!("write {remedy}"));
        }
    }
}

fn shape(table: Option<&Table>) -> RecordShape {
    let Some(table) = table else {
        let index_keys = BTreeMap::new();
        return RecordShape { keys: None, index_keys, new_image: true, old_image: true };
    };
    let keys = [Some(&table.partition_key), table.sort_key.as_ref()];
    let typed = |name: &String| {
        let found = table.attributes.iter().find(|attribute| attribute.name == *name);
        found.map(|attribute| (name.clone(), attribute.kind.as_str()))
    };
    let of_indexes =
        table.indexes.iter().flat_map(|it| it.partition_keys.iter().chain(&it.sort_keys));
    RecordShape {
        index_keys: of_indexes.filter_map(typed).collect(),
        keys: Some(keys.into_iter().flatten().filter_map(typed).collect::<BTreeMap<_, _>>()),
        new_image: !matches!(
            table.stream,
            Some(StreamViewType::KeysOnly | StreamViewType::OldImage)
        ),
        old_image: !matches!(
            table.stream,
            Some(StreamViewType::KeysOnly | StreamViewType::NewImage)
        ),
    }
}

/// Returns the location of a path in a pattern of several lines. The names of the path are searched
/// one after the other. If the pattern has only one line, returns the location of the entire
/// pattern.
pub(crate) fn place_in_lines(findings: &Findings<'_>, at: Span, path: &str) -> Span {
    let mut place = at;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let from = if place == at { at } else { behind(place) };
        match piece_from(findings, at, from, &format!("\"{name}\"")) {
            Some(found) => place = found,
            None => break,
        }
    }
    if place.line == at.line { at } else { place }
}

fn behind(place: Span) -> Span {
    Span { column: place.column + place.width, ..place }
}

/// Returns the location of a part of a pattern; without a match, the location of the entire
/// pattern.
fn piece(findings: &Findings<'_>, at: Span, marked: &str) -> Span {
    piece_from(findings, at, at, marked).unwrap_or(at)
}

/// Returns the first location of a part of the pattern at `at`, not before `from`. The part may be
/// in the first line or in the following lines of the pattern, which have the same indentation.
fn piece_from(findings: &Findings<'_>, at: Span, from: Span, marked: &str) -> Option<Span> {
    let indent = at.column.saturating_sub(1);
    for number in from.line..=findings.lines() {
        let line = findings.source_line(number);
        let own = line.chars().take_while(|letter| *letter == ' ').count();
        if number > at.line && own < indent && !line.trim().is_empty() {
            return None;
        }
        let before = if number == from.line { from.column.saturating_sub(1) } else { indent };
        let start = line.char_indices().nth(before).map_or(line.len(), |(byte, _)| byte);
        let Some(found) = line.get(start..).and_then(|rest| rest.find(marked)) else { continue };
        let before = line.get(..start + found).map_or(0, |text| text.chars().count());
        let width = marked.chars().count().max(1);
        return Some(Span { line: number, column: before + 1, width });
    }
    None
}

/// Checks the settings of one mapping against each other and against its table. An invalid limit of
/// attempts still counts as a limit, because the limit itself is reported as an error.
pub(crate) fn check_mapping(
    properties: &Properties<'_, '_>,
    mapping: &EventSourceMapping,
    table: Option<&Table>,
    is_bound_refused: bool,
) {
    let place = |name: &str| properties.key_place(name).unwrap_or(mapping.at);
    let has_bound = mapping.retry_attempts_max.is_some() || mapping.record_age_max.is_some();
    if !has_bound && is_bound_refused {
        // An invalid limit was already reported.
    } else if !has_bound {
        warn(
            properties,
            "retries-forever",
            place("MaximumRetryAttempts"),
            "a record that always fails blocks its shard until the stream trims it, up to 24 hours",
            "write `MaximumRetryAttempts: 10`, and a destination for discarded records",
        );
    } else if mapping.on_failure.is_none() && !is_destination_written(properties) {
        warn(
            properties,
            "dropped-records",
            place("DestinationConfig"),
            "discarded records are lost: this mapping has no failure destination",
            "write `DestinationConfig: {OnFailure: {Type: S3, Destination: !GetAtt Bucket.Arn}}`",
        );
    }
    if let Some(age) = mapping.record_age_max
        && age.as_secs() > RETENTION_SECONDS
    {
        warn(
            properties,
            "record-age",
            place("MaximumRecordAgeInSeconds"),
            "no record reaches this age: a stream trims records after 24 hours, and trimmed records are lost",
            "write 82800 (23 hours), so that discarded records still reach their destination",
        );
    }
    let Some(table) = table else { return };
    if mapping.parallelization_factor > 1
        && let Some(sort_key) = &table.sort_key
    {
        warn(
            properties,
            "item-order",
            place("ParallelizationFactor"),
            format!(
                "order is kept only within each item: items with the same `{}` but different `{sort_key}` \
                 are processed concurrently",
                table.partition_key
            ),
            "remove the setting if the function needs the order of a partition's items; otherwise accept `item-order`",
        );
    }
    check_images(properties, mapping, table);
}

/// Returns true if the template specifies a destination, even an invalid one.
fn is_destination_written(properties: &Properties<'_, '_>) -> bool {
    properties.mapping("DestinationConfig").is_some_and(|config| config.has("OnFailure"))
}

/// Warns if a function receives TTL deletes without the old image, which contains the deleted item.
fn check_images(properties: &Properties<'_, '_>, mapping: &EventSourceMapping, table: &Table) {
    let by_an_application = serde_json::json!({"eventName": "REMOVE", "dynamodb": {"Keys": {}}});
    let wants_expired = |filter: &FilterPattern| {
        filter.text.contains("userIdentity")
            && FilterCriteria::compile(&[&filter.text])
                .is_ok_and(|criteria| !criteria.verdict(&by_an_application).matched)
    };
    let has_old = matches!(
        table.stream,
        None | Some(StreamViewType::OldImage | StreamViewType::NewAndOldImages)
    );
    if has_old || !mapping.filters.iter().any(wants_expired) {
        return;
    }
    let view = table.stream.map_or("", StreamViewType::as_str);
    warn(
        properties,
        "ttl-without-image",
        table.stream_at.unwrap_or(mapping.at),
        format!(
            "`{}` processes TTL deletes, but with {view} the record of a deletion has only the key",
            mapping.function
        ),
        "write `StreamViewType: OLD_IMAGE` or `NEW_AND_OLD_IMAGES`",
    );
}

/// Runs the checks that compare all mappings.
pub(crate) fn check_stack(resolver: &Resolver<'_>, stack: &Stack) {
    let mut readers: BTreeMap<&str, usize> = BTreeMap::new();
    for mapping in &stack.mappings {
        let StreamSource::StreamOf(table) = &mapping.stream else { continue };
        let count = readers.entry(table).or_default();
        *count += 1;
        let function = resolver.resource(&mapping.function);
        let accepts = |name| function.is_some_and(|found| accepts(found.node, name));
        if *count > READERS_MAX && !accepts("many-readers") {
            resolver.findings.lint(
                "many-readers",
                mapping.at,
                format!("this is mapping {count} on the stream of `{table}`: more than two readers of a shard are throttled"),
                "merge functions that read the same table, or forward records from one of them",
            );
        }
        let Some(function) = function.filter(|_| mapping.filters.is_empty()) else { continue };
        let feeds_itself = function.kind == ResourceKind::Function
            && grants::written_tables(resolver, function).contains(table);
        if feeds_itself && !accepts("self-feeding") {
            resolver.findings.lint(
                "self-feeding",
                mapping.at,
                format!(
                    "`{}` may write to `{table}`, whose stream it reads without a filter: each \
                     write invokes it again, and Lambda does not stop such a loop",
                    function.id
                ),
                "write a FilterCriteria that its own writes do not match, or accept `self-feeding` \
                 if the function ignores its own writes",
            );
        }
    }
}
