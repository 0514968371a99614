//! Runs Lambda functions as they are deployed: their real binaries, or their handlers in Python and
//! Node, on the Lambda Runtime API.
//!
//! A function has up to `concurrency` instances. An instance is a child process with a listener of
//! its own, so that who asks for an invocation, who answered it and who died over it is never
//! a guess. Instances are started when an invocation finds all others busy, kept for the next one,
//! and replaced when they exit, run out of time, or their program has changed.
//!
//! When this process dies without a chance to clean up (`kill -9`), its sockets close, the call for
//! the next invocation that each instance has open breaks, and `lambda_runtime` ends the child; an
//! instance that is busy ends when it comes to answer. Only a handler that never returns outlives
//! its runner.
//!
//! It does not decide when a function runs (see the crates `mapping` and `template`), and retries nothing.

pub mod binaries;
pub mod scripts;

mod environment;
mod event;
mod instance;
mod invoke_api;
mod log;
mod memory;
mod orphans;
mod outcome;
mod pool;
mod program;
mod remote;
mod runtime_api;
mod signing;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use aws_credential_types::provider::SharedCredentialsProvider;
use client::keys;
pub use event::{Event, Observer, Stream};
pub use invoke_api::InvokeEndpoint;
pub use pool::Function;
pub use remote::Remote;

pub use mapping::InvokeOutcome;

/// The largest event of a synchronous invocation, in bytes.
/// Source: AWS Lambda developer guide, "Lambda quotas" (6 MB).
pub const REQUEST_BYTES_MAX: usize = 6_291_456;

/// The largest response, in bytes, as the Runtime API enforces it.
pub const RESPONSE_BYTES_MAX: usize = 6_291_556;

/// How a function is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name: 1 to 64 letters, digits, hyphens and underscores.
    pub name: String,
    /// The file that is started.
    pub binary: PathBuf,
    /// The folder that it is started in; `None` is that of this process.
    pub working_folder: Option<PathBuf>,
    /// `Handler`, told to the function: a binary of its own runtime is free to look at it.
    pub handler: String,
    /// How a handler in Python or Node is started by `binary`, its interpreter.
    pub script: Option<Launch>,
    /// Who runs the function instead; then no file is started.
    pub remote: Option<Remote>,
    /// The variables of the template; Lambda's own are added.
    pub environment: BTreeMap<String, String>,
    /// `MemorySize` in MB, told to the function.
    pub memory_mb: u32,
    /// `Timeout`: how long one invocation may take.
    pub timeout: Duration,
    /// How long an instance may take until it asks for its first invocation.
    pub init_timeout: Duration,
    /// Instances at one time, 1 or more.
    pub concurrency: usize,
    /// The region, told to the function.
    pub region: String,
    /// The account number of the function's ARN.
    pub account: String,
    /// The key that the function signs with.
    pub credentials: Credentials,
    /// Where newer ones come from, if those may expire: each instance is started with what it has
    /// then, and retired before its keys are past their end.
    pub credentials_source: Option<SharedCredentialsProvider>,
    /// The value of `AWS_ENDPOINT_URL_DYNAMODB`, which the streams' client gets too; none for AWS.
    pub dynamodb_endpoint: Option<String>,
    /// The value of `AWS_ENDPOINT_URL_S3`; none for AWS.
    pub s3_endpoint: Option<String>,
    /// The value of `AWS_ENDPOINT_URL_LAMBDA`, for a function that invokes others; none for AWS.
    pub lambda_endpoint: Option<String>,
    /// The folder of the log files `<name>.log`.
    pub log_folder: PathBuf,
}

/// How a handler in Python or Node is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The interpreter.
    pub program: PathBuf,
    /// The interpreter's arguments, with the client of the Runtime API.
    pub arguments: Vec<String>,
    /// The variables of its runtime, such as `PYTHONPATH`.
    pub variables: BTreeMap<String, String>,
    /// The folder of the code, `/var/task` on Lambda.
    pub task_root: PathBuf,
    /// The folders of sources: after a change in them, the next invocation starts an instance.
    pub sources: Vec<PathBuf>,
}

/// The key that a function signs its requests with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `AWS_ACCESS_KEY_ID`.
    pub access_key_id: String,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: String,
    /// `AWS_SESSION_TOKEN`.
    pub session_token: Option<String>,
    /// When it comes to its end; `None`: never, as far as anybody said.
    pub expires: Option<std::time::SystemTime>,
}

impl Credentials {
    /// Keys that open nothing: the local endpoints take any.
    #[must_use]
    pub fn local() -> Self {
        Self {
            access_key_id: "local".to_owned(),
            secret_access_key: "local".to_owned(),
            session_token: None,
            expires: None,
        }
    }
}

impl Credentials {
    /// Returns the key that a function signs with whose tables are behind `endpoint`: a copy of the one
    /// that this process finds now, or keys that open nothing for a local endpoint.
    ///
    /// # Errors
    /// When the endpoint is on AWS and no key is found.
    pub async fn for_endpoint(endpoint: &str) -> Result<Self, String> {
        if !keys::are_own(endpoint) {
            return Ok(Self::local());
        }
        Ok((&keys::own(endpoint).await?).into())
    }
}

impl From<&aws_credential_types::Credentials> for Credentials {
    fn from(found: &aws_credential_types::Credentials) -> Self {
        Self {
            access_key_id: found.access_key_id().to_owned(),
            secret_access_key: found.secret_access_key().to_owned(),
            session_token: found.session_token().map(str::to_owned),
            expires: found.expiry(),
        }
    }
}

impl Settings {
    /// A function with Lambda's defaults (128 MB, 3 seconds), four instances, the local account and
    /// region, and no endpoints. An instance may take a minute to start: debug builds on a busy
    /// machine take longer than the ten seconds that Lambda gives.
    #[must_use]
    pub fn new(name: &str, binary: PathBuf, log_folder: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            binary,
            working_folder: None,
            handler: "bootstrap".to_owned(),
            script: None,
            remote: None,
            environment: BTreeMap::new(),
            memory_mb: 128,
            timeout: Duration::from_secs(3),
            init_timeout: Duration::from_secs(60),
            concurrency: 4,
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            credentials: Credentials::local(),
            credentials_source: None,
            dynamodb_endpoint: None,
            s3_endpoint: None,
            lambda_endpoint: None,
            log_folder,
        }
    }

    /// The variables that whoever runs the function instead of this process has to give it.
    #[must_use]
    pub fn outside_environment(&self) -> BTreeMap<String, String> {
        let unreachable = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        let mut variables = environment::variables(self, unreachable, 0, None);
        // Who runs it has a Runtime API and the code, and tells what goes with those.
        variables.retain(|name, _| {
            let is_own = matches!(&**name, "_HANDLER" | "AWS_EXECUTION_ENV" | "LAMBDA_TASK_ROOT");
            !name.starts_with("AWS_LAMBDA_") && !is_own
        });
        variables
    }

    /// What its instances are started from.
    fn program(&self) -> program::Program {
        match &self.script {
            Some(script) => program::Program::Sources(script.sources.clone()),
            None => program::Program::File(self.binary.clone()),
        }
    }

    /// The function's ARN.
    #[must_use]
    pub fn arn(&self) -> String {
        format!("arn:aws:lambda:{}:{}:function:{}", self.region, self.account, self.name)
    }
}

/// A function cannot be run as it is set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name breaks Lambda's rule, and would not be a file name.
    #[error(
        "function=`{name}` is not a valid name: write 1 to 64 letters, digits, hyphens and underscores"
    )]
    InvalidName {
        /// The name.
        name: String,
    },
    /// No instance could ever run.
    #[error("function=`{name}`: {setting} must be greater than zero")]
    Zero {
        /// The function.
        name: String,
        /// The setting.
        setting: &'static str,
    },
    /// The template sets a variable that Lambda sets itself.
    #[error(
        "function=`{name}`: environment variable=`{variable}` is reserved by Lambda; choose another name"
    )]
    ReservedVariable {
        /// The function.
        name: String,
        /// The variable.
        variable: String,
    },
    /// A variable's name or value cannot be passed to a process.
    #[error(
        "function=`{name}`: environment variable=`{variable}` must have a name of letters, digits and underscores, and no zero byte in its value"
    )]
    InvalidVariable {
        /// The function.
        name: String,
        /// The variable.
        variable: String,
    },
    /// There is no file to start.
    #[error("function=`{name}`: there is no file binary=`{binary}`; build it first")]
    NoBinary {
        /// The function.
        name: String,
        /// Where it should be.
        binary: PathBuf,
    },
    /// The log file cannot be written.
    #[error("function=`{name}`: cannot write log file=`{path}`: {source}")]
    Log {
        /// The function.
        name: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
