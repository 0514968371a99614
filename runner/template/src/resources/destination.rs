//! Parses the destination of discarded batches: `DestinationConfig` of a mapping.

use crate::{
    checks::grants,
    checks::lint,
    declarations::resource::Resource,
    diagnostic::Span,
    evaluation::properties::Properties,
    evaluation::value::Data,
    stack::Destination,
    syntax::intrinsic::{Intrinsic, Piece, pieces},
    syntax::node::{Kind, Node},
};

/// The services that can be destinations, with their names in SAM's `Type` and in ARNs.
const SERVICES: &[(&str, &str)] =
    &[("S3", "s3"), ("SQS", "sqs"), ("SNS", "sns"), ("Kafka", "kafka")];

/// The behaviour on this machine if a destination is not emulated.
const INSTEAD: &str =
    "no failure record is sent to this destination; a discarded batch is only logged";

/// Parses the destination of a mapping. For an event without a `Type`, SAM does not grant the
/// function access to the destination, so this access is checked.
pub(crate) fn read(
    properties: &Properties<'_, '_>,
    function: &str,
    is_event: bool,
) -> Option<Destination> {
    let config = properties.mapping("DestinationConfig")?;
    if config.has("OnSuccess") && !config.has("OnFailure") {
        properties.resolver.findings.error(
            config.key_place("OnSuccess").unwrap_or(config.at),
            "a mapping of a stream has no success destination, but SAM requires a failure destination",
            "write `OnFailure:` instead, or remove `DestinationConfig`",
        );
    }
    let on_failure = config.mapping("OnFailure");
    config.finish(&[("OnSuccess", "a mapping of a stream has no success destination")]);
    let on_failure = on_failure?;
    let kind = on_failure.choice("Type", SERVICES);
    if !on_failure.has("Destination") {
        on_failure.missing("Destination", "!GetAtt Bucket.Arn");
    }
    let node = on_failure.node("Destination");
    let value = on_failure.value("Destination");
    on_failure.finish(&[]);
    let value = value?;
    let destination = match value.data {
        Data::Elsewhere(elsewhere) => of_resource(&on_failure, node?, &elsewhere, value.at)?,
        _ => {
            let at = value.at;
            let instead = match node.and_then(referred_resource) {
                Some(id) if properties.resolver.resource(id).is_some() => {
                    format!("write `!GetAtt {id}.Arn`")
                }
                _ => "write an ARN, such as `!GetAtt Bucket.Arn`".to_owned(),
            };
            of_arn(&on_failure, value.text(properties.resolver.findings)?, instead, at)?
        }
    };
    let Some((name, service)) = service(&destination) else { return Some(destination) };
    match kind {
        Some(kind) if kind.value != service => properties.resolver.findings.warning(
            kind.at,
            format!(
                "the destination is of type `{name}`, but `Type` names another service, so SAM would grant access to the wrong one",
            ),
            format!("write `Type: {name}`"),
        ),
        None if is_event => check_access(properties, function, name, service),
        _ => {}
    }
    Some(destination)
}

/// Returns the names of a destination's service in SAM and in ARNs.
fn service(destination: &Destination) -> Option<(&'static str, &'static str)> {
    match destination {
        Destination::Bucket(_) => Some(("S3", "s3")),
        Destination::Queue(_) => Some(("SQS", "sqs")),
        Destination::Topic(_) => Some(("SNS", "sns")),
        Destination::Arn(_) => None,
    }
}

/// Warns if the function's role has no permission to write to the destination. Lambda delivers
/// failure records with this role.
fn check_access(properties: &Properties<'_, '_>, function: &str, name: &str, service: &str) {
    let resolver = properties.resolver;
    let Some(found) = resolver.resource(function) else { return };
    if grants::may_reach(resolver, found, service) {
        return;
    }
    lint::warn(
        properties,
        "destination-access",
        properties.key_place("DestinationConfig").unwrap_or(properties.at),
        format!(
            "discarded records cannot be written to their destination: no policy lets `{function}` use \
             {name}"
        ),
        format!(
            "write `Type: {name}` next to `Destination`, so that SAM adds the permission to the role"
        ),
    );
}

/// Parses a reference to a destination resource whose ARN exists only on AWS.
fn of_resource(
    on_failure: &Properties<'_, '_>,
    node: &Node,
    elsewhere: &str,
    at: Span,
) -> Option<Destination> {
    let findings = on_failure.resolver.findings;
    let (id, attribute) = match elsewhere.split_once('.') {
        Some((id, attribute)) => (id, Some(attribute)),
        None => (elsewhere, None),
    };
    let other = || {
        on_failure.not_emulated("Destination", INSTEAD);
        Some(Destination::Arn(format!("not-emulated:{elsewhere}")))
    };
    let Some(resource) = on_failure.resolver.resource(id) else { return other() };
    if is_first_in_first_out(on_failure, resource) {
        findings.error(
            at,
            format!("`{id}` is FIFO, which Lambda does not support as a destination"),
            "name a standard queue or topic",
        );
        return None;
    }
    let (destination, is_arn, what, help) = match resource.type_name {
        "AWS::SQS::Queue" => (
            Destination::Queue(id.to_owned()),
            attribute == Some("Arn"),
            "queue",
            format!("write `!GetAtt {id}.Arn`"),
        ),
        "AWS::SNS::Topic" => (
            Destination::Topic(id.to_owned()),
            matches!(attribute, None | Some("TopicArn")),
            "topic",
            format!("write `!Ref {id}`"),
        ),
        _ => return other(),
    };
    // Only a single reference is rejected. `!Sub` or `!Join` can build an ARN from a reference and
    // constant strings.
    if !is_arn && is_one_reference(node) {
        let message = match attribute {
            None => {
                format!("`!Ref {id}` is the URL of the {what}, but a destination must be an ARN")
            }
            Some(_) => format!("`!GetAtt {elsewhere}` is not the ARN of the {what}"),
        };
        findings.error(at, message, help);
        return None;
    }
    Some(destination)
}

/// Returns true if a value consists of exactly one reference.
fn is_one_reference(node: &Node) -> bool {
    match &node.kind {
        Kind::Call(Intrinsic::Ref | Intrinsic::GetAtt, _) => true,
        Kind::Call(Intrinsic::Sub, argument) => {
            let pieces = argument.as_text().map(pieces).unwrap_or_default();
            matches!(pieces.as_slice(), [Piece::Variable(_)])
        }
        _ => false,
    }
}

/// Returns the resource name in a `!Ref`; `None` for any other node.
fn referred_resource(node: &Node) -> Option<&str> {
    match &node.kind {
        Kind::Call(Intrinsic::Ref, argument) => argument.as_text(),
        _ => None,
    }
}

/// Parses the ARN of a destination. `instead` is the advice for an invalid ARN.
fn of_arn(
    on_failure: &Properties<'_, '_>,
    arn: String,
    instead: String,
    at: Span,
) -> Option<Destination> {
    let findings = on_failure.resolver.findings;
    if let Some(bucket) = arn.strip_prefix("arn:aws:s3:::") {
        return Some(Destination::Bucket(bucket.to_owned()));
    }
    if !arn.starts_with("arn:") {
        findings.error(at, format!("`{arn}` is not the ARN of a destination"), instead);
        return None;
    }
    let mut parts = arn.splitn(6, ':').skip(2);
    let (service, name) = (parts.next().unwrap_or_default(), parts.nth(2).unwrap_or_default());
    if name.ends_with(".fifo") {
        findings.error(
            at,
            format!("`{arn}` is FIFO, which Lambda does not support as a destination"),
            "write the ARN of a standard queue or topic",
        );
        return None;
    }
    match service {
        "sqs" => Some(Destination::Queue(name.to_owned())),
        "sns" => Some(Destination::Topic(name.to_owned())),
        _ if SERVICES.iter().any(|(_, known)| *known == service) => {
            on_failure.not_emulated("Destination", INSTEAD);
            Some(Destination::Arn(arn))
        }
        _ => {
            findings.error(
                at,
                format!("Lambda cannot send discarded records to `{service}`"),
                "write the ARN of a bucket, a queue or a topic, such as `!GetAtt Bucket.Arn`",
            );
            None
        }
    }
}

/// Returns true if the resource is a FIFO queue or a FIFO topic.
fn is_first_in_first_out(properties: &Properties<'_, '_>, resource: &Resource<'_>) -> bool {
    let property = match resource.type_name {
        "AWS::SQS::Queue" => "FifoQueue",
        "AWS::SNS::Topic" => "FifoTopic",
        _ => return false,
    };
    let node = resource.properties.get(property);
    let node = node.and_then(|node| properties.resolver.choose(node).flatten());
    let value = node.and_then(|node| properties.resolver.resolve(node));
    value.is_some_and(|value| match value.data {
        Data::Text(text) => matches!(text.to_ascii_lowercase().as_str(), "true" | "yes" | "on"),
        _ => false,
    })
}
