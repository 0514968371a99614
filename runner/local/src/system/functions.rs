//! The functions of a template: builds their binaries, finds interpreters for handlers in Python and
//! Node, and prepares each function for invocation.
//!
//! A binary is started for its function's first invocation. A handler in Python or Node is also
//! loaded once at the start, so that a broken handler is reported before its first record arrives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_credential_types::provider::SharedCredentialsProvider;

use crate::function::binaries::Wanted;
use crate::function::scripts::{self, Folders};
use crate::function::{Credentials, Event, Function, Launch, Observer, Remote, Settings};
use client::failure::{Failure, Result, fatal};
use template::{self, BOOTSTRAP, Code, LogFormat, Stack};
use tokio::task::JoinHandle;

/// The number of shards of a new table's stream. Each shard has one invocation at a time for each lane.
const SHARDS: usize = 4;

/// The maximum number of instances of one function, because all instances share this machine.
const INSTANCES_MAX: usize = 16;

/// The endpoints and settings that are passed to functions.
pub(crate) struct Endpoints {
    /// The endpoint of DynamoDB; `None` if the SDK finds AWS itself.
    pub(crate) dynamodb: Option<String>,
    pub(crate) s3: String,
    /// The endpoint of Lambda's Invoke API; `None` if functions invoke functions on AWS.
    pub(crate) lambda: Option<String>,
    pub(crate) credentials: Credentials,
    /// The source of newer keys, on AWS.
    pub(crate) credentials_source: Option<SharedCredentialsProvider>,
    pub(crate) log_folder: PathBuf,
    /// The address of the other program that runs the functions, if there is one.
    pub(crate) invoke_url: Option<String>,
}

/// Returns, by logical id, the binary of each function whose code is a Cargo package.
#[must_use]
pub fn wanted(stack: &Stack, template_folder: &Path) -> BTreeMap<String, Wanted> {
    let of = |function: &template::Function| {
        let Code::Binary(binary) = &function.code else { return None };
        let package_folder = template_folder.join(&function.code_uri);
        Some((function.logical_id.clone(), Wanted { package_folder, binary: binary.clone() }))
    };
    stack.functions.iter().filter_map(of).collect()
}

/// Returns, by logical id, the program of each function that another tool has built.
#[must_use]
pub fn built(stack: &Stack, template_folder: &Path) -> BTreeMap<String, PathBuf> {
    let bootstraps = stack.functions.iter().filter(|function| function.code == Code::Bootstrap);
    let of = |function: &template::Function| {
        let program = template_folder.join(&function.code_uri).join(BOOTSTRAP);
        // The program starts in its own folder, so the path must be absolute.
        let program = std::path::absolute(&program).unwrap_or(program);
        (function.logical_id.clone(), program)
    };
    bootstraps.map(of).collect()
}

/// The program of a function.
pub(crate) enum Program {
    /// A binary, by its path.
    Binary(PathBuf),
    /// A handler in Python or Node.
    Script(Launch),
}

/// Builds or finds the program of every function, by logical id.
pub(crate) async fn build(
    stack: &Stack,
    places: &Folders<'_>,
) -> Result<BTreeMap<String, Program>> {
    let scripts = scripts::prepare(stack, places).await.map_err(Failure::fatal)?;
    let binaries = binaries(stack, places.template).await?;
    let binaries = binaries.into_iter().map(|(id, path)| (id, Program::Binary(path)));
    Ok(scripts
        .into_iter()
        .map(|(id, launch)| (id, Program::Script(launch)))
        .chain(binaries)
        .collect())
}

/// Builds or finds the binaries of all functions that are binaries, by logical id.
async fn binaries(stack: &Stack, template_folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let wanted = wanted(stack, template_folder);
    let list: Vec<_> = wanted.values().cloned().collect();
    let built = built(stack, template_folder);
    if list.is_empty() {
        return Ok(built);
    }
    let names = list.iter().map(|w| w.binary.as_str()).collect::<Vec<_>>().join(", ");
    match list.iter().any(Wanted::has_source) {
        true => tracing::info!(
            "building {names} (the first build also compiles the dependencies, which takes some minutes)"
        ),
        false => {
            tracing::info!("using {names} from the folder of `weir`, because they have no sources");
        }
    }
    let mut progress = |line: &str| tracing::info!("  {line}");
    let has_seen_output = tracing::enabled!(tracing::Level::INFO);
    let paths = crate::function::binaries::build(&list, &mut progress).await;
    let paths = paths.map_err(|error| error.text(has_seen_output))?;
    let compiled =
        wanted.into_iter().filter_map(|(id, wanted)| Some((id, paths.get(&wanted)?.clone())));
    Ok(compiled.chain(built).collect())
}

/// Prepares every function for invocation, by logical id.
pub(crate) fn start(
    stack: &Stack,
    programs: &BTreeMap<String, Program>,
    endpoints: &Endpoints,
) -> Result<BTreeMap<String, Arc<Function>>> {
    let mut functions = BTreeMap::new();
    for described in &stack.functions {
        let elsewhere = Program::Binary(described.invoked_as().into());
        let program = match (&endpoints.invoke_url, programs.get(&described.logical_id)) {
            (_, Some(program)) => program,
            (Some(_), None) => &elsewhere,
            (None, None) => {
                return Err(fatal!("function `{}` has no binary", described.logical_id));
            }
        };
        let settings = settings(stack, described, program, endpoints);
        let function = Function::new(settings, observer()).map_err(Failure::fatal)?;
        functions.insert(described.logical_id.clone(), Arc::new(function));
    }
    Ok(functions)
}

/// Loads each handler in Python or Node once, and warns of handlers that cannot be loaded.
pub(crate) fn check_handlers(functions: &BTreeMap<String, Arc<Function>>) -> JoinHandle<()> {
    let is_script = |function: &Function| function.settings().script.is_some();
    let scripts = functions.iter().filter(|(_, function)| is_script(function));
    let scripts: Vec<_> = scripts.map(|(id, function)| (id.clone(), function.clone())).collect();
    // Handlers are loaded sequentially, because invocations need the processor, too.
    tokio::spawn(async move {
        for (id, function) in scripts {
            if let Some(reason) = function.start_failure().await {
                tracing::warn!("function   {id} cannot start: {reason}");
            }
        }
    })
}

fn settings(
    stack: &Stack,
    described: &template::Function,
    program: &Program,
    endpoints: &Endpoints,
) -> Settings {
    let mut environment = described.environment.clone();
    if described.logging.format == LogFormat::Json {
        environment.insert("AWS_LAMBDA_LOG_FORMAT".to_owned(), "JSON".to_owned());
    }
    if let Some(level) = &described.logging.application_level {
        environment.insert("AWS_LAMBDA_LOG_LEVEL".to_owned(), level.clone());
    }
    let reserved = described.reserved_concurrency.and_then(|count| usize::try_from(count).ok());
    let (binary, script) = match program {
        Program::Binary(path) => (path, None),
        Program::Script(launch) => (&launch.program, Some(launch.clone())),
    };
    let working_folder = match (&described.code, &script) {
        (_, Some(launch)) => Some(launch.task_root.clone()),
        (Code::Bootstrap, None) => binary.parent().map(Path::to_owned),
        (Code::Binary(_) | Code::Script(_) | Code::Elsewhere, None) => None,
    };
    Settings {
        environment,
        working_folder,
        script,
        handler: described.handler.clone(),
        memory_mb: described.memory_mb,
        timeout: described.timeout,
        concurrency: reserved.unwrap_or(usize::MAX).min(instances(stack, described)),
        region: stack.region.clone(),
        account: stack.account_id.clone(),
        credentials: endpoints.credentials.clone(),
        credentials_source: endpoints.credentials_source.clone(),
        dynamodb_endpoint: endpoints.dynamodb.clone(),
        remote: endpoints
            .invoke_url
            .clone()
            .map(|url| Remote { url, name: described.invoked_as().to_owned() }),
        s3_endpoint: Some(endpoints.s3.clone()),
        lambda_endpoint: endpoints.lambda.clone(),
        ..Settings::new(&described.name, binary.to_owned(), endpoints.log_folder.clone())
    }
}

/// Returns the number of instances: as many as the function's mappings invoke at the same time, at
/// most [`INSTANCES_MAX`].
fn instances(stack: &Stack, described: &template::Function) -> usize {
    let lanes: usize = stack
        .mappings
        .iter()
        .filter(|mapping| mapping.function == described.logical_id)
        .filter_map(|mapping| usize::try_from(mapping.parallelization_factor).ok())
        .sum();
    lanes.max(1).saturating_mul(SHARDS).min(INSTANCES_MAX)
}

/// Returns an observer that logs process events, mostly at debug level. Mappings report the events that
/// users must see.
fn observer() -> Observer {
    Arc::new(|event: &Event<'_>| match event {
        Event::ProgramChanged { function } => tracing::info!(
            "function   {function} changed; this and later invocations run the new version"
        ),
        event => tracing::debug!("{event:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use template::{Context, read};

    #[cfg(unix)]
    #[test]
    fn a_bootstrap_is_started_in_its_own_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let code = folder.path().join("code");
        let bootstrap = code.join(BOOTSTRAP);
        std::fs::create_dir(&code).unwrap();
        std::fs::write(&bootstrap, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&bootstrap, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = "Transform: AWS::Serverless-2016-10-31\nResources:\n  F: {Type: \
            AWS::Serverless::Function, Properties: {CodeUri: code, Handler: x, Runtime: provided.al2}}\n";
        let context = Context { folder: Some(folder.path().to_owned()), ..Context::default() };
        let stack = read("template.yaml", text, &context).unwrap();
        let built = built(&stack, folder.path());
        assert_eq!(built["F"], bootstrap);
        assert!(wanted(&stack, folder.path()).is_empty());
        let endpoints = Endpoints {
            dynamodb: None,
            s3: String::new(),
            lambda: None,
            credentials: Credentials::local(),
            credentials_source: None,
            log_folder: folder.path().join("logs"),
            invoke_url: None,
        };
        let program = Program::Binary(bootstrap);
        let settings = settings(&stack, &stack.functions[0], &program, &endpoints);
        assert_eq!(settings.working_folder, Some(code));
    }
}
