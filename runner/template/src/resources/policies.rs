//! Checks SAM's policy templates in a function's `Policies`. `grants` determines the permissions
//! that they give.
//!
//! Source of the names and parameters: AWS SAM guide, "Policy template table".

use crate::{
    diagnostic::{listed, similar},
    evaluation::properties::Properties,
    syntax::node::{Kind, Node},
};

/// The policy templates with their required parameters.
const TEMPLATES: &[(&str, &[&str])] = &[
    ("AMIDescribePolicy", &[]),
    ("AWSSecretsManagerGetSecretValuePolicy", &["SecretArn"]),
    ("AWSSecretsManagerRotationPolicy", &["FunctionName"]),
    ("AcmGetCertificatePolicy", &["CertificateArn"]),
    ("AthenaQueryPolicy", &["WorkGroupName"]),
    ("CloudFormationDescribeStacksPolicy", &[]),
    ("CloudWatchDashboardPolicy", &[]),
    ("CloudWatchDescribeAlarmHistoryPolicy", &[]),
    ("CloudWatchPutMetricPolicy", &[]),
    ("CodeCommitCrudPolicy", &["RepositoryName"]),
    ("CodeCommitReadPolicy", &["RepositoryName"]),
    ("CodePipelineLambdaExecutionPolicy", &[]),
    ("CodePipelineReadOnlyPolicy", &["PipelineName"]),
    ("ComprehendBasicAccessPolicy", &[]),
    ("CostExplorerReadOnlyPolicy", &[]),
    ("DynamoDBBackupFullAccessPolicy", &["TableName"]),
    ("DynamoDBCrudPolicy", &["TableName"]),
    ("DynamoDBReadPolicy", &["TableName"]),
    ("DynamoDBReconfigurePolicy", &["TableName"]),
    ("DynamoDBRestoreFromBackupPolicy", &["TableName"]),
    ("DynamoDBStreamReadPolicy", &["StreamName", "TableName"]),
    ("DynamoDBWritePolicy", &["TableName"]),
    ("EC2CopyImagePolicy", &["ImageId"]),
    ("EC2DescribePolicy", &[]),
    ("EFSWriteAccessPolicy", &["AccessPoint", "FileSystem"]),
    ("EKSDescribePolicy", &[]),
    ("EcsRunTaskPolicy", &["TaskDefinition"]),
    ("ElasticMapReduceAddJobFlowStepsPolicy", &["ClusterId"]),
    ("ElasticMapReduceCancelStepsPolicy", &["ClusterId"]),
    ("ElasticMapReduceModifyInstanceFleetPolicy", &["ClusterId"]),
    ("ElasticMapReduceModifyInstanceGroupsPolicy", &["ClusterId"]),
    ("ElasticMapReduceSetTerminationProtectionPolicy", &["ClusterId"]),
    ("ElasticMapReduceTerminateJobFlowsPolicy", &["ClusterId"]),
    ("ElasticsearchHttpPostPolicy", &["DomainName"]),
    ("EventBridgePutEventsPolicy", &["EventBusName"]),
    ("FilterLogEventsPolicy", &["LogGroupName"]),
    ("FirehoseCrudPolicy", &["DeliveryStreamName"]),
    ("FirehoseWritePolicy", &["DeliveryStreamName"]),
    ("KMSDecryptPolicy", &["KeyId"]),
    ("KMSEncryptPolicy", &["KeyId"]),
    ("KMSEncryptPolicy_v2", &["KeyId"]),
    ("KinesisCrudPolicy", &["StreamName"]),
    ("KinesisStreamReadPolicy", &["StreamName"]),
    ("LambdaInvokePolicy", &["FunctionName"]),
    ("MobileAnalyticsWriteOnlyAccessPolicy", &[]),
    ("OrganizationsListAccountsPolicy", &[]),
    ("PinpointEndpointAccessPolicy", &["PinpointApplicationId"]),
    ("PollyFullAccessPolicy", &["LexiconName"]),
    ("RekognitionDetectOnlyPolicy", &[]),
    ("RekognitionFacesManagementPolicy", &["CollectionId"]),
    ("RekognitionFacesPolicy", &[]),
    ("RekognitionLabelsPolicy", &[]),
    ("RekognitionNoDataAccessPolicy", &["CollectionId"]),
    ("RekognitionReadPolicy", &["CollectionId"]),
    ("RekognitionWriteOnlyAccessPolicy", &["CollectionId"]),
    ("Route53ChangeResourceRecordSetsPolicy", &["HostedZoneId"]),
    ("S3CrudPolicy", &["BucketName"]),
    ("S3FullAccessPolicy", &["BucketName"]),
    ("S3ReadPolicy", &["BucketName"]),
    ("S3WritePolicy", &["BucketName"]),
    ("SESBulkTemplatedCrudPolicy", &["IdentityName"]),
    ("SESBulkTemplatedCrudPolicy_v2", &["IdentityName", "TemplateName"]),
    ("SESCrudPolicy", &["IdentityName"]),
    ("SESEmailTemplateCrudPolicy", &[]),
    ("SESSendBouncePolicy", &["IdentityName"]),
    ("SNSCrudPolicy", &["TopicName"]),
    ("SNSPublishMessagePolicy", &["TopicName"]),
    ("SQSPollerPolicy", &["QueueName"]),
    ("SQSSendMessagePolicy", &["QueueName"]),
    ("SSMParameterReadPolicy", &["ParameterName"]),
    ("SSMParameterWithSlashPrefixReadPolicy", &["ParameterName"]),
    ("SageMakerCreateEndpointConfigPolicy", &["EndpointConfigName"]),
    ("SageMakerCreateEndpointPolicy", &["EndpointName"]),
    ("ServerlessRepoReadWriteAccessPolicy", &[]),
    ("StepFunctionsCallbackPolicy", &["StateMachineName"]),
    ("StepFunctionsExecutionPolicy", &["StateMachineName"]),
    ("StepFunctionsExecutionPolicy_v2", &["StateMachineName"]),
    ("TextractDetectAnalyzePolicy", &[]),
    ("TextractGetResultPolicy", &[]),
    ("TextractPolicy", &[]),
    ("VPCAccessPolicy", &[]),
];

/// The key that marks a policy as a policy document instead of a policy template.
const POLICY_DOCUMENT: &str = "Statement";

/// Checks the policies of a function.
pub(crate) fn check(properties: &Properties<'_, '_>) {
    let Some(node) = properties.node("Policies") else { return };
    let policies = match &node.kind {
        Kind::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    for policy in policies {
        let Some(Some(policy)) = properties.resolver.choose(policy) else { continue };
        let entries = policy.entries();
        if entries.is_empty() || policy.get(POLICY_DOCUMENT).is_some() {
            continue;
        }
        match entries {
            [template] => check_template(properties, template),
            // SAM ignores `Policies` if the function has a role.
            _ if properties.has("Role") => {}
            [_, second, ..] => properties.resolver.findings.error(
                second.key_at,
                "a policy with several keys is neither a document nor a policy template",
                "write one policy template in each entry of the list",
            ),
            [] => {}
        }
    }
}

fn check_template(properties: &Properties<'_, '_>, template: &crate::syntax::node::Entry) {
    let findings = properties.resolver.findings;
    let name = template.key.as_str();
    let Some((_, parameters)) = TEMPLATES.iter().find(|(known, _)| *known == name) else {
        if properties.has("Role") {
            return;
        }
        let help = match similar(name, TEMPLATES.iter().map(|(name, _)| *name)) {
            Some(meant) => format!("write `{meant}`"),
            None => {
                "write one of SAM's policy templates, or a policy with a `Statement`".to_owned()
            }
        };
        findings.error(template.key_at, format!("SAM has no policy template `{name}`"), help);
        return;
    };
    let has = |parameter: &str| {
        template.value.get(parameter).is_some_and(|node| !matches!(node.kind, Kind::Null))
    };
    let missing: Vec<&str> = parameters.iter().copied().filter(|name| !has(name)).collect();
    if !missing.is_empty() && !matches!(template.value.kind, Kind::Call(..)) {
        findings.error(
            template.key_at,
            format!("the policy template `{name}` lacks {}", listed(missing.iter().copied())),
            format!("write `{name}: {{{}: ...}}`", missing.join(": ..., ")),
        );
    }
}

/// Checks which properties a function with `TenancyConfig` has, because SAM does not allow all of
/// them. `TenancyConfig` isolates the function's tenants.
pub(crate) fn check_tenancy(properties: &Properties<'_, '_>) {
    let Some(at) =
        properties.key_place("TenancyConfig").filter(|_| properties.has("TenancyConfig"))
    else {
        return;
    };
    let findings = properties.resolver.findings;
    let excluded = ["ProvisionedConcurrencyConfig", "FunctionUrlConfig", "SnapStart"];
    for name in excluded.into_iter().filter(|name| properties.has(name)) {
        findings.error(
            at,
            format!("a function with `TenancyConfig` does not support `{name}`"),
            "remove one of the two",
        );
    }
    for event in properties.node("Events").map_or(&[][..], Node::entries) {
        let Some(kind) = event.value.get("Type").and_then(Node::as_text) else { continue };
        if !matches!(kind, "Api" | "HttpApi") {
            findings.error(
                event.key_at,
                format!("a function with `TenancyConfig` does not support events of type `{kind}`"),
                "move the event to a function without `TenancyConfig`; only `Api` and `HttpApi` \
                 events are allowed",
            );
        }
    }
}
