//! The environment of an instance: Lambda's variables and the template's variables. An instance inherits only
//! `PATH` from this process.
//!
//! The functions are pure. Source: AWS Lambda developer guide, "Defined runtime environment variables".

use std::{collections::BTreeMap, net::SocketAddr};

use super::{Error, Settings};
use template::RESERVED_VARIABLES;

/// Rejects variables that Lambda would reject.
pub(super) fn check(settings: &Settings) -> Result<(), Error> {
    for (variable, value) in &settings.environment {
        let (name, variable) = (settings.name.clone(), variable.clone());
        if RESERVED_VARIABLES.contains(&&*variable) {
            return Err(Error::ReservedVariable { name, variable });
        }
        let plain = variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if variable.is_empty() || !plain || value.contains('\0') {
            return Err(Error::InvalidVariable { name, variable });
        }
    }
    Ok(())
}

/// Returns all variables of instance `number`, whose Runtime API listens on `api`. `path` is the `PATH`
/// of this process, the only variable that an instance inherits.
pub(super) fn variables(
    settings: &Settings,
    api: SocketAddr,
    number: u64,
    path: Option<String>,
) -> BTreeMap<String, String> {
    let Settings { name, region, credentials, .. } = settings;
    let mut variables = BTreeMap::new();
    let mut set = |variable: &str, value: String| variables.insert(variable.to_owned(), value);
    if let Some(path) = path {
        set("PATH", path);
    }
    set("LANG", "en_US.UTF-8".to_owned());
    set("TZ", ":UTC".to_owned());
    // Without this variable, the SDK would request credentials over the network, although the variables
    // already contain them.
    set("AWS_EC2_METADATA_DISABLED", "true".to_owned());
    if let Some(endpoint) = &settings.dynamodb_endpoint {
        set("AWS_ENDPOINT_URL_DYNAMODB", endpoint.clone());
        set("AWS_ENDPOINT_URL_DYNAMODB_STREAMS", endpoint.clone());
    }
    if let Some(endpoint) = &settings.s3_endpoint {
        set("AWS_ENDPOINT_URL_S3", endpoint.clone());
    }
    if let Some(endpoint) = &settings.lambda_endpoint {
        set("AWS_ENDPOINT_URL_LAMBDA", endpoint.clone());
    }
    for (variable, value) in &settings.environment {
        set(variable, value.clone());
    }
    set("AWS_LAMBDA_RUNTIME_API", api.to_string());
    set("AWS_LAMBDA_FUNCTION_NAME", name.clone());
    set("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", settings.memory_mb.to_string());
    set("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST".to_owned());
    set("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand".to_owned());
    set("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{name}"));
    set("AWS_LAMBDA_LOG_STREAM_NAME", format!("instance-{number}"));
    set("AWS_EXECUTION_ENV", "AWS_Lambda_rust".to_owned());
    for (variable, value) in settings.script.iter().flat_map(|script| &script.variables) {
        set(variable, value.clone());
    }
    set("_HANDLER", settings.handler.clone());
    let beside = settings.binary.parent();
    let folder = settings.script.as_ref().map_or(beside, |script| Some(script.task_root.as_path()));
    if let Some(folder) = folder.filter(|it| !it.as_os_str().is_empty()) {
        set("LAMBDA_TASK_ROOT", folder.to_string_lossy().into_owned());
    }
    set("AWS_REGION", region.clone());
    set("AWS_DEFAULT_REGION", region.clone());
    set("AWS_ACCESS_KEY_ID", credentials.access_key_id.clone());
    set("AWS_SECRET_ACCESS_KEY", credentials.secret_access_key.clone());
    if let Some(token) = &credentials.session_token {
        set("AWS_SESSION_TOKEN", token.clone());
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variable: &str, value: &str) -> Settings {
        let mut settings = Settings::new("archive", "/code/archive".into(), "logs".into());
        settings.handler = "archive.run".to_owned();
        settings.environment.insert(variable.to_owned(), value.to_owned());
        settings
    }

    #[test]
    fn the_template_sets_its_own_variables_and_not_those_of_lambda() {
        let mut settings = settings("BUCKET", "b");
        settings.environment.insert("AWS_ENDPOINT_URL_S3".to_owned(), "http://mine".to_owned());
        settings.dynamodb_endpoint = Some("http://127.0.0.1:8000".to_owned());
        settings.s3_endpoint = Some("http://127.0.0.1:9000".to_owned());
        settings.lambda_endpoint = Some("http://127.0.0.1:9001".to_owned());
        assert!(check(&settings).is_ok());
        let api = "127.0.0.1:1234".parse().unwrap();
        let variables = variables(&settings, api, 7, Some("/bin".to_owned()));
        let expected = [
            ("BUCKET", "b"),
            ("PATH", "/bin"),
            ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:8000"),
            ("AWS_ENDPOINT_URL_S3", "http://mine"),
            ("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:9001"),
            ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1234"),
            ("AWS_LAMBDA_FUNCTION_NAME", "archive"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "instance-7"),
            ("_HANDLER", "archive.run"),
            ("LAMBDA_TASK_ROOT", "/code"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "local"),
        ];
        for (variable, value) in expected {
            assert_eq!(variables[variable], value, "{variable}");
        }
        assert!(!variables.contains_key("AWS_SESSION_TOKEN"));
        let outside = settings.outside_environment();
        assert!(outside.contains_key("BUCKET") && !outside.contains_key("LAMBDA_TASK_ROOT"));
    }

    #[test]
    fn variables_that_lambda_refuses_are_refused() {
        let cases = [("AWS_REGION", "x"), ("", "x"), ("A=B", "x"), ("A B", "x"), ("A", "x\0")];
        for (variable, value) in cases {
            assert!(check(&settings(variable, value)).is_err(), "{variable:?}");
        }
    }
}
