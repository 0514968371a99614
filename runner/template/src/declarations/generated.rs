//! The logical ids of the resources that SAM generates in addition to the resources of a template.
//!
//! Source: AWS SAM translator 1.115 (`samtranslator.model`, `translator`, `plugins`), which builds
//! each logical id from a resource's id, names in the template, and a hash.

use crate::{
    declarations::resource::Resource,
    syntax::node::{Kind, Node},
};

/// The part of a generated logical id after the resource's own id.
enum Ending {
    /// The ending equals this string.
    Is(&'static str),
    /// The ending is this string, followed by a hash of the content or by a name from the template.
    Begins(&'static str),
    /// The ending is a name from the template, followed by this string.
    Ends(&'static str),
    /// The ending begins with the name of an entry in this property.
    EntryOf(&'static str),
}

use Ending::{Begins, Ends, EntryOf, Is};

/// Generated logical ids that do not begin with a resource's id. All resources of a stack share
/// these generated resources.
const SHARED: &[Ending] = &[
    Begins("ApiGatewayDomainName"),
    Is("CodeDeployServiceRole"),
    Begins("DomainNameAccessAssociation"),
    Begins("RecordSetGroup"),
    Is("ServerlessApiKey"),
    Is("ServerlessDeploymentApplication"),
    Is("ServerlessUsagePlan"),
    Is("ServerlessUsagePlanKey"),
];

const OF_REST_API: &[Ending] = &[
    Is(".Stage"),
    Is(".Deployment"),
    Is(".DomainName"),
    Is(".DomainNameV2"),
    Is(".UsagePlan"),
    Is(".UsagePlanKey"),
    Is(".ApiKey"),
    Is("ApiKey"),
    Is("UsagePlan"),
    Is("UsagePlanKey"),
    Begins("Deployment"),
    Begins("Stage"),
    Ends("Stage"),
    Ends("BasePathMapping"),
    Ends("AuthorizerPermission"),
    Ends("PathCondition"),
];

const OF_HTTP_API: &[Ending] = &[
    Is(".Stage"),
    Is(".DomainName"),
    Begins("Stage"),
    Ends("Stage"),
    Ends("ApiMapping"),
    Ends("AuthorizerPermission"),
];

const OF_WEB_SOCKET_API: &[Ending] = &[
    Is(".Stage"),
    Is(".DomainName"),
    Is("ConnectAuthorizer"),
    Begins("Deployment"),
    Begins("Stage"),
    Ends("Stage"),
    Ends("ApiMapping"),
    Ends("AuthorizerPermission"),
    Ends("Route"),
    Ends("Integration"),
    Ends("Permission"),
];

/// The endings of the logical ids that SAM generates from a resource's id, by resource type.
const BY_TYPE: &[(&str, &[Ending])] = &[
    ("AWS::Serverless::Api", OF_REST_API),
    ("AWS::Serverless::CapacityProvider", &[Is("OperatorRole")]),
    (
        "AWS::Serverless::Connector",
        &[
            Begins("Policy"),
            Begins("TopicPolicy"),
            Begins("QueuePolicy"),
            Ends("LambdaPermission"),
            Begins("Write"),
            Begins("Read"),
        ],
    ),
    (
        "AWS::Serverless::Function",
        &[
            Is(".Alias"),
            Is(".Version"),
            Is(".DestinationQueue"),
            Is(".DestinationTopic"),
            Is("Role"),
            Is("Url"),
            Is("UrlPublicPermissions"),
            Is("URLInvokeAllowPublicAccess"),
            Is("DeploymentGroup"),
            Begins("EventInvokeConfig"),
            Begins("Alias"),
            Begins("Version"),
            EntryOf("Events"),
        ],
    ),
    (
        "AWS::Serverless::GraphQLApi",
        &[
            Is("CloudWatchRole"),
            Is("Schema"),
            Is("DomainName"),
            Is("DomainNameApiAssociation"),
            Is("ApiCache"),
            Is("NoneDataSource"),
            Begins("ToLambdaAuthConnector"),
            Begins("DynamoDB"),
            Begins("Lambda"),
            Begins("Query"),
            Begins("Mutation"),
            Begins("Subscription"),
            EntryOf("ApiKeys"),
            EntryOf("Functions"),
        ],
    ),
    ("AWS::Serverless::HttpApi", OF_HTTP_API),
    ("AWS::Serverless::LayerVersion", &[Begins("")]),
    (
        "AWS::Serverless::StateMachine",
        &[Is("Role"), Is("Version"), Begins("Alias"), EntryOf("Events")],
    ),
    ("AWS::Serverless::WebSocketApi", OF_WEB_SOCKET_API),
];

/// The APIs that SAM generates if an event does not name an API. An entry contains the type of the
/// event, the event's property for an API, the API's logical id, and the endings of further
/// generated ids.
const IMPLICIT_APIS: &[(&str, &str, &str, &[Ending])] = &[
    ("Api", "RestApiId", "ServerlessRestApi", OF_REST_API),
    ("HttpApi", "ApiId", "ServerlessHttpApi", OF_HTTP_API),
];

/// Properties of an event that contain the name of a resource which SAM generates for the event.
const NAMED_IN_EVENTS: &[&str] = &["QueueLogicalId", "QueuePolicyLogicalId"];

/// Returns true if SAM generates a resource with this logical id.
pub(crate) fn is_generated(resources: &[Resource<'_>], name: &str) -> bool {
    let has_sam = resources.iter().any(|found| found.type_name.starts_with("AWS::Serverless::"));
    if has_sam && SHARED.iter().any(|ending| ending.fits(name, None)) {
        return true;
    }
    resources.iter().any(|resource| is_of(resource, name))
        || IMPLICIT_APIS.iter().any(|(kind, property, id, endings)| {
            let rest = name.strip_prefix(id);
            let is_theirs = rest.is_some_and(|rest| {
                rest.is_empty() || endings.iter().any(|it| it.fits(rest, None))
            });
            is_theirs
                && resources.iter().any(|resource| has_event_without(resource, kind, property))
        })
}

fn is_of(resource: &Resource<'_>, name: &str) -> bool {
    let rest = name.strip_prefix(resource.id).filter(|rest| !rest.is_empty());
    let endings = BY_TYPE.iter().find(|(kind, _)| *kind == resource.type_name);
    if let (Some(rest), Some((_, endings))) = (rest, endings)
        && endings.iter().any(|ending| ending.fits(rest, Some(resource)))
    {
        return true;
    }
    // The logical id of a connector within a resource consists of the resource's id and the
    // connector's name.
    let connectors = resource.node.get("Connectors").map_or(&[][..], Node::entries);
    rest.is_some_and(|rest| connectors.iter().any(|entry| rest.starts_with(&entry.key)))
        || events(resource)
            .any(|event| event.is_some_and(|settings| names_resource(settings, name)))
}

/// Returns the properties of each event of a resource.
fn events<'r>(resource: &'r Resource<'_>) -> impl Iterator<Item = Option<&'r Node>> {
    let entries = resource.properties.get("Events").map_or(&[][..], Node::entries);
    entries.iter().map(|entry| entry.value.get("Properties"))
}

fn names_resource(settings: &Node, name: &str) -> bool {
    settings.entries().iter().any(|entry| match &entry.value.kind {
        Kind::Text(text) => NAMED_IN_EVENTS.contains(&entry.key.as_str()) && text == name,
        Kind::Map(_) => names_resource(&entry.value, name),
        _ => false,
    })
}

fn has_event_without(resource: &Resource<'_>, kind: &str, property: &str) -> bool {
    let entries = resource.properties.get("Events").map_or(&[][..], Node::entries);
    entries.iter().any(|entry| {
        let settings = entry.value.get("Properties");
        entry.value.get("Type").and_then(Node::as_text) == Some(kind)
            && settings.is_none_or(|settings| settings.get(property).is_none())
    })
}

impl Ending {
    /// Returns true if `rest`, the part of a logical id after the resource's id, matches this
    /// ending.
    fn fits(&self, rest: &str, resource: Option<&Resource<'_>>) -> bool {
        match self {
            Is(text) => rest == *text,
            Begins(text) => rest.starts_with(text),
            Ends(text) => rest.ends_with(text),
            EntryOf(property) => resource
                .and_then(|found| found.properties.get(property))
                .map_or(&[][..], Node::entries)
                .iter()
                .any(|entry| rest.starts_with(&entry.key)),
        }
    }
}
