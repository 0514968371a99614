//! Lists the resources and attributes that have an effect only on AWS, and describes the behaviour
//! on this machine instead.

use crate::{
    declarations::resource::{Resource, ResourceKind},
    diagnostic::{Findings, Span},
    not_emulated::NotEmulated,
};

/// Prefixes of resource types that are not emulated, and the behaviour on this machine instead. The
/// first entry whose prefix matches a resource's type applies.
const BY_TYPE: &[(&str, &str)] = &[
    ("AWS::ApiGateway", "no HTTP endpoint is opened"),
    ("AWS::CloudFormation::Stack", "the resources of the nested template are not created"),
    ("AWS::CloudWatch::Alarm", "no alarm is raised"),
    ("AWS::CloudWatch::Dashboard", "no dashboard is shown"),
    ("AWS::CodeDeploy::", "a new binary replaces the old binary immediately"),
    ("AWS::Events::", "events are not routed; declare a `Schedule` event on the function"),
    ("AWS::Glue::", "there is no catalog; tools read the archive's files directly"),
    ("AWS::IAM::", "permissions are not checked"),
    ("AWS::KMS::", "no data is encrypted with this key"),
    ("AWS::Lambda::Alias", "the function has only the version that was built"),
    (
        "AWS::Lambda::Function",
        "the function is not run; only an AWS::Serverless::Function with a CodeUri is built and run",
    ),
    ("AWS::Lambda::LayerVersion", "functions in Python and Node read the layer's folder"),
    ("AWS::Lambda::Permission", "permissions are not checked"),
    ("AWS::Lambda::Version", "the function has only the version that was built"),
    ("AWS::Logs::", "logs are written on this machine"),
    ("AWS::S3::BucketPolicy", "permissions are not checked"),
    (
        "AWS::SNS::",
        "failure records for this topic are files in `destinations/`; no other message is sent",
    ),
    (
        "AWS::SQS::",
        "failure records for this queue are files in `destinations/`; no message is read from it",
    ),
    ("AWS::Scheduler::", "the schedule does not run; declare a `ScheduleV2` event on the function"),
    ("AWS::Serverless::Api", "no HTTP endpoint is opened"),
    ("AWS::Serverless::Application", "the resources of the nested template are not created"),
    ("AWS::Serverless::HttpApi", "no HTTP endpoint is opened"),
    ("AWS::Serverless::LayerVersion", "functions in Python and Node read the layer's folder"),
    ("AWS::Serverless::StateMachine", "the state machine is not run"),
];

/// Attributes next to a resource's type that have an effect only on AWS, and the behaviour on this
/// machine.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("Connectors", "permissions are not checked"),
    ("CreationPolicy", "`weir up` does not wait for signals"),
    ("DeletionPolicy", "resources are not deleted"),
    ("DependsOn", "tables and buckets are created before the first function starts"),
    ("UpdatePolicy", "there are no rolling updates"),
    ("UpdateReplacePolicy", "resources are not replaced"),
];

/// Lists a resource whose type is not emulated.
pub(crate) fn list_resource(resource: &Resource<'_>, findings: &Findings<'_>) {
    let instead = BY_TYPE
        .iter()
        .find(|(prefix, _)| resource.type_name.starts_with(prefix))
        .map_or("this resource is not created", |(_, instead)| *instead);
    list(resource, String::new(), resource.at, instead, findings);
}

/// Lists the attributes next to the type of an emulated resource.
pub(crate) fn list_attributes(resource: &Resource<'_>, findings: &Findings<'_>) {
    if resource.kind == ResourceKind::Other {
        return;
    }
    for entry in resource.node.entries() {
        let name = entry.key.as_str();
        if let Some((_, instead)) = ATTRIBUTES.iter().find(|(attribute, _)| *attribute == name) {
            list(resource, name.to_owned(), entry.key_at, instead, findings);
        }
    }
}

/// Adds a property of a resource, or the entire resource, to the list of settings that are not
/// emulated.
pub(crate) fn list(
    resource: &Resource<'_>,
    property: String,
    at: Span,
    instead: &str,
    findings: &Findings<'_>,
) {
    findings.not_emulated(NotEmulated {
        resource: resource.id.to_owned(),
        kind: resource.type_name.to_owned(),
        property,
        at,
        instead: instead.to_owned(),
    });
}
