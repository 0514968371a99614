//! Parses Lambda functions of type `AWS::Serverless::Function`, without their events.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    declarations::resource::Resource,
    diagnostic::Span,
    evaluation::properties::{Catalogue, Properties},
    evaluation::value::{self, Data},
    resources::origin,
    resources::policies,
    resources::script,
    stack::{BOOTSTRAP, Code, Function, LogFormat, Logging},
    syntax::node::{Kind, Node},
    syntax::plain_scalar,
};

const NOT_EMULATED: Catalogue = &[
    ("AssumeRolePolicyDocument", "permissions are not checked"),
    ("AutoPublishAlias", "the function has only the version that was built"),
    ("AutoPublishAliasAllProperties", "the function has only one version"),
    ("AutoPublishCodeSha256", "the function has only one version"),
    ("CapacityProviderConfig", "the function runs as a process of this machine"),
    ("CodeSigningConfigArn", "signatures are not checked"),
    ("DeadLetterQueue", "a scheduled invocation that fails in all attempts is only logged"),
    ("DeploymentPreference", "the new binary replaces the old binary immediately"),
    ("Description", "descriptions are shown only on AWS"),
    ("DurableConfig", "there are no durable executions"),
    ("EphemeralStorage", "the size of the temporary folder is not limited"),
    ("FileSystemConfigs", "no file system is mounted"),
    ("FunctionScalingConfig", "the runner decides how many processes run"),
    ("FunctionUrlConfig", "the function has no URL"),
    ("KmsKeyArn", "environment variables are not encrypted"),
    ("Layers", "the program runs without layers"),
    ("PermissionsBoundary", "permissions are not checked"),
    ("PropagateTags", "there are no tags"),
    ("ProvisionedConcurrencyConfig", "the runner decides how many processes run"),
    ("PublishToLatestPublished", "the function has only one version"),
    ("RecursiveLoop", "loops are not detected"),
    ("Role", "permissions are not checked"),
    ("RolePath", "permissions are not checked"),
    ("RuntimeManagementConfig", "the function runs on this machine's system"),
    ("SnapStart", "the function starts as a process"),
    ("SourceKMSKeyArn", "the code is not encrypted"),
    ("Tags", "the function has no tags"),
    ("TenancyConfig", "all tenants share the function's processes"),
    ("Tracing", "no traces are recorded"),
    ("VersionDeletionPolicy", "the function has only one version"),
    ("VersionDescription", "the function has only one version"),
    ("VpcConfig", "the function uses this machine's network"),
];

/// Environment variables that Lambda sets itself and that a template must not set (AWS Lambda
/// developer guide, "Reserved environment variables").
pub const RESERVED_VARIABLES: &[&str] = &[
    "_HANDLER",
    "_X_AMZN_TRACE_ID",
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

/// Properties of the code and of events, which other modules parse.
const ASKED_FOR_CODE: &[&str] = &[
    "EventInvokeConfig",
    "Events",
    "ImageConfig",
    "ImageUri",
    "InlineCode",
    "PackageType",
    "Runtime",
];

const NAME_BYTES_MAX: usize = 64;

/// Lambda's maximum total size of a function's environment variables, in bytes.
const ENVIRONMENT_BYTES_MAX: usize = 4_096;

/// Lambda's default and maximum number of retries of an asynchronous invocation (AWS Lambda guide,
/// "Configuring error handling settings for asynchronous invocations").
const ASYNCHRONOUS_RETRIES: u32 = 2;

const LEVELS: &[(&str, &str)] = &[
    ("TRACE", "TRACE"),
    ("DEBUG", "DEBUG"),
    ("INFO", "INFO"),
    ("WARN", "WARN"),
    ("ERROR", "ERROR"),
    ("FATAL", "FATAL"),
];

/// Checks a function name: 1 to 64 letters, digits, `-` and `_` (Lambda API reference,
/// `CreateFunction`).
fn check_name(properties: &Properties<'_, '_>, name: &str, at: Span) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
        return;
    }
    properties.resolver.findings.error(
        at,
        format!("`{name}` is not a valid function name"),
        format!("write 1 to {NAME_BYTES_MAX} letters, digits, `-` and `_`"),
    );
}

/// Parses one function. `folder` is the folder of the code if it differs from `CodeUri`. Returns
/// `None` if an error was reported.
pub(crate) fn read(
    properties: &Properties<'_, '_>,
    resource: &Resource<'_>,
    code: Code,
    folder: Option<String>,
) -> Option<Function> {
    // Other modules have read these properties, so `finish` must not report them as unread.
    for asked in ASKED_FOR_CODE {
        let _ = properties.node(asked);
    }
    if !origin::is_image(properties) {
        check_zip(properties);
    }
    policies::check(properties);
    if properties.has("Policies") {
        properties.not_emulated("Policies", "permissions are not checked");
    }
    policies::check_tenancy(properties);
    let at = properties.node("FunctionName").map_or(resource.at, |node| node.at);
    let name = properties.resolver.name_text(resource, at);
    let code_uri = code_uri(properties, &code);
    let code_uri = folder.or(code_uri);
    let handler = properties.text("Handler").map_or_else(|| BOOTSTRAP.to_owned(), |at| at.value);
    let timeout = properties.unsigned("Timeout", 1..=900).unwrap_or(3);
    let memory_mb = properties.unsigned("MemorySize", 128..=10_240).unwrap_or(128);
    let environment = environment(properties);
    let reserved = properties.unsigned("ReservedConcurrentExecutions", 0..=u32::MAX);
    let logging = logging(properties);
    check_architectures(properties);
    properties.finish(NOT_EMULATED);
    let name = name?;
    check_name(properties, &name, at);
    Some(Function {
        logical_id: resource.id.to_owned(),
        arn: properties.resolver.context.function_arn(&name),
        name,
        code_uri: code_uri?,
        code,
        handler,
        timeout: Duration::from_secs(u64::from(timeout)),
        memory_mb,
        environment,
        reserved_concurrency: reserved,
        logging,
        at: resource.at,
    })
}

/// Reports an error if the architecture is not one of Lambda's two architectures.
fn check_architectures(properties: &Properties<'_, '_>) {
    let findings = properties.resolver.findings;
    let Some(value) = properties.value("Architectures") else { return };
    properties.not_emulated("Architectures", "the function runs on this machine's processor");
    let help = "write `Architectures: [arm64]` or `Architectures: [x86_64]`";
    match value.data {
        Data::Elsewhere(_) => {}
        Data::List(items) if items.len() == 1 => {
            for item in items.into_iter().filter(|it| !matches!(it.data, Data::Elsewhere(_))) {
                let at = item.at;
                let Some(name) = item.text(findings) else { continue };
                if !ARCHITECTURES.contains(&name.as_str()) {
                    findings.error(at, format!("unknown architecture `{name}`"), help);
                }
            }
        }
        _ => findings.error(value.at, "Architectures is a list of one architecture", help),
    }
}

/// Returns the maximum number of retries of a failed asynchronous invocation, such as an invocation
/// by a schedule.
pub(crate) fn asynchronous_retries(properties: &Properties<'_, '_>) -> u32 {
    let Some(config) = properties.mapping("EventInvokeConfig") else {
        return ASYNCHRONOUS_RETRIES;
    };
    let retries = config.unsigned("MaximumRetryAttempts", 0..=ASYNCHRONOUS_RETRIES);
    config.finish(&[
        ("DestinationConfig", "the result of a scheduled invocation is only logged"),
        ("MaximumEventAgeInSeconds", "only the number of retries limits a scheduled invocation"),
    ]);
    retries.unwrap_or(ASYNCHRONOUS_RETRIES)
}

/// Returns the folder of the code as written in the template; empty if the code is not in a folder.
fn code_uri(properties: &Properties<'_, '_>, code: &Code) -> Option<String> {
    let Some(node) = properties.node("CodeUri") else {
        let has_other = properties.has("InlineCode") || origin::is_image(properties);
        return Some(if has_other { String::new() } else { origin::DEFAULT_URI.to_owned() });
    };
    match code {
        // A mapping is a location in S3, which Weir does not read.
        Code::Elsewhere if matches!(node.kind, Kind::Map(_)) => Some(String::new()),
        Code::Elsewhere => match properties.value("CodeUri")?.data {
            Data::Text(text) => Some(text),
            _ => Some(String::new()),
        },
        Code::Binary(_) | Code::Bootstrap | Code::Script(_) => {
            Some(properties.text("CodeUri")?.value)
        }
    }
}

const ARCHITECTURES: &[&str] = &["arm64", "x86_64"];

/// The names of custom runtimes.
const PROVIDED: &[&str] = &["provided", "provided.al2", "provided.al2023"];

/// Checks SAM's requirements for a function that is not a container image.
fn check_zip(properties: &Properties<'_, '_>) {
    if !properties.has("Runtime") {
        properties.missing("Runtime", "provided.al2023");
    }
    if let Some((at, runtime)) = origin::runtime(properties)
        && runtime.starts_with("provided")
        && !PROVIDED.contains(&runtime.as_str())
    {
        properties.resolver.findings.warning(
            at,
            format!("unknown runtime `{runtime}`; Lambda rejects unknown runtimes"),
            "write `provided.al2023`",
        );
    }
    if !properties.has("Handler") {
        let is_script =
            origin::runtime(properties).is_some_and(|(_, name)| script::language(&name).is_some());
        properties.missing("Handler", if is_script { "app.handler" } else { "bootstrap" });
    }
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
                format!("Lambda sets `{name}` itself and rejects it in a template"),
                "use another name",
            );
        } else if !has_form {
            findings.error(
                entry.key_at,
                format!("`{name}` is not a valid name of an environment variable"),
                "write a letter, then letters, digits or `_`, at least two characters",
            );
        }
        warn_of_type(properties, &entry.value);
        let Some(value) = properties.resolver.resolve(&entry.value) else { continue };
        if let Data::Stream(table) = &value.data
            && !findings.runs_on_aws()
        {
            value::warn_of_stream(table, value.at, findings);
        }
        if let Some(elsewhere) = value.reference() {
            // The prefix distinguishes the placeholder from a real name.
            let placeholder = format!("not-emulated:{elsewhere}");
            findings.not_emulated(crate::not_emulated::NotEmulated {
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
            format!("Lambda allows at most {ENVIRONMENT_BYTES_MAX} bytes in all"),
        );
    }
    environment
}

/// Warns about an unquoted scalar that SAM converts to a different string.
fn warn_of_type(properties: &Properties<'_, '_>, node: &Node) {
    let findings = properties.resolver.findings;
    let Some(Some(node)) = properties.resolver.choose(node) else { return };
    let Some(text) = node.as_text() else { return };
    let is_plain = || findings.is_plain(node.at, text);
    if let Some(value) = plain_scalar::differs(text).filter(|_| is_plain()) {
        findings.warning(
            node.at,
            format!("on AWS the function gets `{value}` for `{text}`, because SAM parses YAML 1.1"),
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
            "write `LogFormat: JSON` next to the log level",
        );
    }
    config.finish(&[
        ("LogGroup", "logs are written on this machine"),
        ("SystemLogLevel", "Lambda's own log lines are not written"),
    ]);
    Logging { format, application_level: level.map(|level| level.value.to_owned()) }
}
