//! Reads Lambda functions: `AWS::Serverless::Function` without its events.
//! It builds and starts nothing.

use std::{collections::BTreeMap, time::Duration};

use crate::template::{
    diagnostic::Span,
    document::{Kind, Node},
    plain_scalar,
    properties::{Catalogue, Properties},
    resource::{Resource, kebab_case},
    stack::{Function, LogFormat, Logging},
    value::{self, Data},
};

const NOT_EMULATED: Catalogue = &[
    ("Architectures", "the binary is built for this machine"),
    ("AssumeRolePolicyDocument", "permissions are not checked"),
    ("AutoPublishAlias", "there is one version of the function, the one that was built"),
    ("AutoPublishAliasAllProperties", "there is one version of the function"),
    ("AutoPublishCodeSha256", "there is one version of the function"),
    ("CapacityProviderConfig", "the function runs as a process of this machine"),
    ("CodeSigningConfigArn", "signatures are not checked"),
    ("DeadLetterQueue", "an invocation by a schedule that fails to the end is only logged"),
    ("DeploymentPreference", "the new binary replaces the old one at once"),
    ("Description", "it is shown only on AWS"),
    ("DurableConfig", "there are no durable executions"),
    ("EphemeralStorage", "the size of the temporary folder is not limited"),
    ("FileSystemConfigs", "no file system is mounted"),
    ("FunctionScalingConfig", "the runner decides how many processes run"),
    ("FunctionUrlConfig", "the function has no URL"),
    ("KmsKeyArn", "environment variables are not encrypted"),
    ("Layers", "the binary runs without layers"),
    ("PermissionsBoundary", "permissions are not checked"),
    ("Policies", "permissions are not checked"),
    ("PropagateTags", "there are no tags"),
    ("ProvisionedConcurrencyConfig", "the runner decides how many processes run"),
    ("PublishToLatestPublished", "there is one version of the function"),
    ("RecursiveLoop", "loops are not detected"),
    ("Role", "permissions are not checked"),
    ("RolePath", "permissions are not checked"),
    ("RuntimeManagementConfig", "the function runs on this machine's system"),
    ("SnapStart", "the function starts as a process"),
    ("SourceKMSKeyArn", "the code is not encrypted"),
    ("Tags", "the function has no tags"),
    ("TenancyConfig", "all invocations share the processes"),
    ("Tracing", "no traces are recorded"),
    ("VersionDeletionPolicy", "there is one version of the function"),
    ("VersionDescription", "there is one version of the function"),
    ("VpcConfig", "the function uses this machine's network"),
];

/// Names that Lambda itself sets and therefore refuses (AWS Lambda developer guide, "Reserved
/// environment variables").
const RESERVED_VARIABLES: &[&str] = &[
    "_HANDLER",
    "AWS_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_DEFAULT_REGION",
    "AWS_EXECUTION_ENV",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_INITIALIZATION_TYPE",
    "AWS_LAMBDA_LOG_GROUP_NAME",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "LAMBDA_RUNTIME_DIR",
    "LAMBDA_TASK_ROOT",
];

/// Lambda's quota for all environment variables of a function together, in bytes.
const ENVIRONMENT_BYTES_MAX: usize = 4_096;

/// Lambda's default, and the most that it takes (AWS Lambda guide, "Configuring error handling settings
/// for asynchronous invocations").
const ASYNCHRONOUS_RETRIES: u32 = 2;

const LEVELS: &[(&str, &str)] = &[
    ("TRACE", "TRACE"),
    ("DEBUG", "DEBUG"),
    ("INFO", "INFO"),
    ("WARN", "WARN"),
    ("ERROR", "ERROR"),
    ("FATAL", "FATAL"),
];

/// Why a function cannot run here at all, and what of it says so; `None` when it can.
pub(super) fn reason_not_emulated(
    properties: &Properties<'_, '_>,
    resource: &Resource<'_>,
) -> Option<(Span, String)> {
    let because = |name: &str, reason: String| {
        Some((properties.key_place(name).unwrap_or(resource.at), reason))
    };
    if properties.has("InlineCode") {
        return because("InlineCode", "code written in the template is not run".to_owned());
    }
    let is_image = properties.text("PackageType").is_some_and(|kind| kind.value == "Image");
    if is_image || properties.has("ImageUri") || properties.has("ImageConfig") {
        let named = ["PackageType", "ImageUri", "ImageConfig"];
        let name = named.into_iter().find(|name| properties.has(name)).unwrap_or_default();
        return because(name, "container images are not run".to_owned());
    }
    let method = resource.node.get("Metadata").and_then(|metadata| metadata.get("BuildMethod"));
    if let Some((node, method)) = method.and_then(|node| Some((node, node.as_text()?)))
        && method != "rust-cargolambda"
    {
        let reason = format!("only `BuildMethod: rust-cargolambda` is built, not `{method}`");
        return Some((node.at, reason));
    }
    let runtime = properties.text("Runtime")?;
    if runtime.value.starts_with("provided") {
        return None;
    }
    let reason = format!(
        "only functions in Rust (`Runtime: provided.al2023`) are run, not `{}`",
        runtime.value
    );
    Some((runtime.at, reason))
}

/// Reads one function; `None` when an error was reported.
pub(super) fn read(properties: &Properties<'_, '_>, resource: &Resource<'_>) -> Option<Function> {
    // What was looked at to see whether the function runs here is accounted for by that.
    for asked in ["PackageType", "Runtime", "Events", "EventInvokeConfig"] {
        let _ = properties.node(asked);
    }
    if !properties.has("Runtime") {
        properties.missing("Runtime", "provided.al2023");
    }
    let at = properties.node("FunctionName").map_or(resource.at, |node| node.at);
    let name = properties.resolver.name_text(resource, at);
    let code_uri = code_uri(properties);
    let handler = properties.text("Handler").map_or_else(|| "bootstrap".to_owned(), |at| at.value);
    let timeout = properties.unsigned("Timeout", 1..=900).unwrap_or(3);
    let memory_mb = properties.unsigned("MemorySize", 128..=10_240).unwrap_or(128);
    let environment = environment(properties);
    let reserved = properties.unsigned("ReservedConcurrentExecutions", 0..=u32::MAX);
    let logging = logging(properties);
    let binary = binary(properties, resource);
    properties.finish(NOT_EMULATED);
    let name = name?;
    Some(Function {
        logical_id: resource.id.to_owned(),
        arn: properties.resolver.context.function_arn(&name),
        name,
        code_uri: code_uri?,
        binary: binary?,
        handler,
        timeout: Duration::from_secs(u64::from(timeout)),
        memory_mb,
        environment,
        reserved_concurrency: reserved,
        logging,
        at: resource.at,
    })
}

/// How often Lambda tries an asynchronous invocation that failed once more, such as one by a
/// schedule.
pub(super) fn asynchronous_retries(properties: &Properties<'_, '_>) -> u32 {
    let Some(config) = properties.mapping("EventInvokeConfig") else {
        return ASYNCHRONOUS_RETRIES;
    };
    let retries = config.unsigned("MaximumRetryAttempts", 0..=ASYNCHRONOUS_RETRIES);
    config.finish(&[
        ("DestinationConfig", "what becomes of an invocation by a schedule is only logged"),
        ("MaximumEventAgeInSeconds", "an invocation by a schedule waits for its retries only"),
    ]);
    retries.unwrap_or(ASYNCHRONOUS_RETRIES)
}

fn code_uri(properties: &Properties<'_, '_>) -> Option<String> {
    let findings = properties.resolver.findings;
    let Some(node) = properties.node("CodeUri") else {
        properties.missing("CodeUri", "functions/processor/");
        return None;
    };
    let is_remote = matches!(node.kind, Kind::Map(_));
    let text = if is_remote { None } else { Some(properties.text("CodeUri")?.value) };
    match text {
        Some(text) if !text.starts_with("s3://") => Some(text),
        _ => {
            findings.error(
                node.at,
                "the function's code lies in S3, and it is built from its source here",
                "write the folder of the Cargo package, such as `CodeUri: functions/processor/`",
            );
            None
        }
    }
}

/// The cargo binary: what SAM's builder is told, or what the function's logical id says.
fn binary(properties: &Properties<'_, '_>, resource: &Resource<'_>) -> Option<String> {
    let metadata = resource.node.get("Metadata");
    let given = metadata
        .and_then(|metadata| metadata.get("BuildProperties"))
        .and_then(|build| build.get("Binary"));
    let Some(given) = given else {
        let id = resource.id.strip_suffix("Function").filter(|id| !id.is_empty());
        return Some(kebab_case(id.unwrap_or(resource.id)));
    };
    let name = value::literal(given, "BuildProperties.Binary", properties.resolver.findings)?;
    // The name becomes a path of the build's folder.
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if name.is_empty() || !name.chars().all(allowed) {
        properties.resolver.findings.error(
            given.at,
            format!("`{name}` is no name of a cargo binary"),
            "write letters, digits, `-` or `_`, as in Cargo.toml",
        );
        return None;
    }
    Some(name.to_owned())
}

fn environment(properties: &Properties<'_, '_>) -> BTreeMap<String, String> {
    let findings = properties.resolver.findings;
    let mut environment = BTreeMap::new();
    let Some(section) = properties.mapping("Environment") else { return environment };
    for entry in section.named("Variables") {
        let name = entry.key.as_str();
        let has_form = name.len() >= 2
            && name.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if RESERVED_VARIABLES.contains(&name) {
            findings.error(
                entry.key_at,
                format!("Lambda sets `{name}` itself and refuses it here"),
                "use another name",
            );
        } else if !has_form {
            findings.error(
                entry.key_at,
                format!("`{name}` is no name of an environment variable"),
                "write a letter, then letters, digits or `_`, at least two in all",
            );
        }
        warn_of_type(properties, &entry.value);
        let Some(value) = properties.resolver.resolve(&entry.value) else { continue };
        if let Data::Elsewhere(elsewhere) = &value.data {
            // The function must get something that is not mistaken for a real name.
            let placeholder = format!("not-emulated:{elsewhere}");
            findings.not_emulated(crate::template::stack::NotEmulated {
                resource: properties.resource.to_owned(),
                kind: properties.kind.to_owned(),
                property: format!("Environment.Variables.{name}"),
                at: entry.key_at,
                instead: format!(
                    "`{elsewhere}` is known only on AWS; the function gets `{placeholder}`"
                ),
            });
            environment.insert(name.to_owned(), placeholder);
        } else if !matches!(value.data, Data::Absent)
            && let Some(text) = value.text(findings)
        {
            environment.insert(name.to_owned(), text);
        }
    }
    section.finish(&[]);
    let bytes: usize = environment.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ENVIRONMENT_BYTES_MAX {
        findings.error(
            section.at,
            format!("the environment variables have {bytes} bytes"),
            format!("Lambda takes at most {ENVIRONMENT_BYTES_MAX} bytes in all"),
        );
    }
    environment
}

/// Warns of a scalar without quotes that SAM hands on as something else than what is written.
fn warn_of_type(properties: &Properties<'_, '_>, node: &Node) {
    let findings = properties.resolver.findings;
    let Some(Some(node)) = properties.resolver.choose(node) else { return };
    let Some(text) = node.as_text() else { return };
    // A quoted text begins with its quotes, a block with its mark, an alias with its name.
    let line = findings.source_line(node.at.line);
    let before = node.at.column.saturating_sub(1);
    let is_text = line.chars().take(before).collect::<String>().trim_end().ends_with("!!str");
    let is_plain = line.chars().skip(before).collect::<String>().starts_with(text);
    if let Some(value) = plain_scalar::differs(text).filter(|_| is_plain && !is_text) {
        findings.warning(
            node.at,
            format!("on AWS the function gets `{value}` for `{text}`, which SAM reads as YAML 1.1"),
            format!("put it in quotes: \"{text}\""),
        );
    }
}

fn logging(properties: &Properties<'_, '_>) -> Logging {
    let Some(config) = properties.mapping("LoggingConfig") else { return Logging::default() };
    let formats = [("JSON", LogFormat::Json), ("Text", LogFormat::Text)];
    let format = config.choice("LogFormat", &formats).map(|at| at.value).unwrap_or_default();
    let level = config.choice("ApplicationLogLevel", LEVELS);
    if let (Some(level), LogFormat::Text) = (&level, format) {
        properties.resolver.findings.error(
            level.at,
            "a log level needs the JSON format",
            "write `LogFormat: JSON` beside it",
        );
    }
    config.finish(&[
        ("LogGroup", "logs are written on this machine"),
        ("SystemLogLevel", "Lambda's own log lines are not written"),
    ]);
    Logging { format, application_level: level.map(|level| level.value.to_owned()) }
}
