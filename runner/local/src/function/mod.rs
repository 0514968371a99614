//! Runs Lambda functions as they are deployed: their real binaries, or their handlers in Python and Node, on
//! the Lambda Runtime API.
//!
//! A function has up to `concurrency` instances. An instance is a child process with its own listener,
//! so that each request can be attributed to its process. An instance is started when an invocation
//! finds all existing instances busy, and is kept for the next invocation. It is replaced when it exits,
//! times out, or its program has changed.
//!
//! If this process is killed (`kill -9`), its sockets close. The open request of each idle instance for
//! the next invocation then fails, and `lambda_runtime` exits. A busy instance exits when it tries to
//! respond. `orphans` kills all remaining instances.
//!
//! This module does not decide when a function runs (see the crates `mapping` and `template`), and does not
//! retry.

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
mod pipes;
mod pool;
mod program;
mod remote;
mod runtime_api;
mod signing;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use aws_credential_types::provider::SharedCredentialsProvider;
use client::failure::Result;
use client::keys;
pub use event::{Event, Observer, Stream};
pub use invoke_api::InvokeEndpoint;
pub use pool::Function;
pub use remote::Remote;

pub use mapping::InvokeOutcome;

/// The maximum size of the event of a synchronous invocation in bytes.
/// Source: AWS Lambda developer guide, "Lambda quotas" (6 MB).
pub const REQUEST_BYTES_MAX: usize = 6_291_456;

/// The maximum size of a response in bytes, as the Runtime API enforces it.
pub const RESPONSE_BYTES_MAX: usize = 6_291_556;

/// The settings with which a function runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The function's name: 1 to 64 letters, digits, hyphens and underscores.
    pub name: String,
    /// The file to start.
    pub binary: PathBuf,
    /// The working folder of the process; `None` means the working folder of this process.
    pub working_folder: Option<PathBuf>,
    /// `Handler`, which is passed to the function. A binary may ignore it.
    pub handler: String,
    /// The launch settings of a handler in Python or Node, whose interpreter is `binary`; `None`
    /// for any other program.
    pub script: Option<Launch>,
    /// The other program that runs the function, if there is one. In this case no file is started.
    pub remote: Option<Remote>,
    /// The environment variables in the template. Lambda's own variables are added to them.
    pub environment: BTreeMap<String, String>,
    /// `MemorySize` in MB, which is passed to the function.
    pub memory_mb: u32,
    /// `Timeout`: the maximum time of one invocation.
    pub timeout: Duration,
    /// The maximum time until an instance requests its first invocation.
    pub init_timeout: Duration,
    /// The maximum number of concurrent instances, at least 1.
    pub concurrency: usize,
    /// The Region, which is passed to the function.
    pub region: String,
    /// The account number of the function's ARN.
    pub account: String,
    /// The keys with which the function signs requests.
    pub credentials: Credentials,
    /// The source of newer keys, if the keys may expire. Each instance is started with the current keys, and
    /// ends before its keys expire.
    pub credentials_source: Option<SharedCredentialsProvider>,
    /// The value of `AWS_ENDPOINT_URL_DYNAMODB`, which the client of the streams also uses; `None` for AWS.
    pub dynamodb_endpoint: Option<String>,
    /// The value of `AWS_ENDPOINT_URL_S3`; `None` for AWS.
    pub s3_endpoint: Option<String>,
    /// The value of `AWS_ENDPOINT_URL_LAMBDA`, for a function that invokes other functions; `None` for
    /// AWS.
    pub lambda_endpoint: Option<String>,
    /// The folder with the log files `<name>.log`.
    pub log_folder: PathBuf,
}

/// The launch settings of a handler in Python or Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The path of the interpreter.
    pub program: PathBuf,
    /// The interpreter's arguments, which include the client of the Runtime API.
    pub arguments: Vec<String>,
    /// The environment variables of the runtime, such as `PYTHONPATH`.
    pub variables: BTreeMap<String, String>,
    /// The folder of the code, `/var/task` on Lambda.
    pub task_root: PathBuf,
    /// The folders of sources. After a change of a source file, the next invocation starts a new
    /// instance.
    pub sources: Vec<PathBuf>,
}

/// The keys with which a function signs its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `AWS_ACCESS_KEY_ID`.
    pub access_key_id: String,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: String,
    /// `AWS_SESSION_TOKEN`.
    pub session_token: Option<String>,
    /// The time when the keys expire; `None` if no expiry is known.
    pub expires: Option<std::time::SystemTime>,
}

impl Credentials {
    /// Returns placeholder keys, for local endpoints that accept any key.
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
    /// Returns the keys for a function whose tables are at `endpoint`: the keys that this process finds
    /// now, or placeholder keys for a local endpoint.
    ///
    /// # Errors
    /// The endpoint is on AWS, and no keys are found.
    pub async fn for_endpoint(endpoint: &str) -> Result<Self> {
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
    /// Returns the settings of a function with Lambda's defaults (128 MB, 3 seconds), four instances, the
    /// local account and Region, and no endpoints. An instance may take a minute to start instead of Lambda's
    /// ten seconds, because debug builds on a busy machine are slow.
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

    /// Returns the variables for a function that another program runs. That program must pass them to the
    /// function.
    #[must_use]
    pub fn outside_environment(&self) -> BTreeMap<String, String> {
        let unreachable = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        let mut variables = environment::variables(self, unreachable, 0, None);
        // The other program has the Runtime API and the code, so it sets the variables that depend on
        // them.
        variables.retain(|name, _| {
            let is_own = matches!(&**name, "_HANDLER" | "AWS_EXECUTION_ENV" | "LAMBDA_TASK_ROOT");
            !name.starts_with("AWS_LAMBDA_") && !is_own
        });
        variables
    }

    /// Returns the program from which instances are started.
    fn program(&self) -> program::Program {
        match &self.script {
            Some(script) => program::Program::Sources(script.sources.clone()),
            None => program::Program::File(self.binary.clone()),
        }
    }

    /// Returns the function's ARN.
    #[must_use]
    pub fn arn(&self) -> String {
        format!("arn:aws:lambda:{}:{}:function:{}", self.region, self.account, self.name)
    }
}

/// The reason why a function cannot run with its settings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name violates Lambda's naming rule, so it may not be a valid file name.
    #[error(
        "function=`{name}` is not a valid name: write 1 to 64 letters, digits, hyphens and underscores"
    )]
    InvalidName {
        /// The rejected name.
        name: String,
    },
    /// A setting is zero, so no instance could ever run.
    #[error("function=`{name}`: {setting} must be greater than zero")]
    Zero {
        /// The name of the function.
        name: String,
        /// The name of the setting that is zero.
        setting: &'static str,
    },
    /// The template sets a variable that Lambda sets itself.
    #[error(
        "function=`{name}`: environment variable=`{variable}` is reserved by Lambda; use a different name"
    )]
    ReservedVariable {
        /// The name of the function.
        name: String,
        /// The name of the environment variable.
        variable: String,
    },
    /// A variable's name or value cannot be passed to a process.
    #[error(
        "function=`{name}`: environment variable=`{variable}` must have a name of letters, digits and underscores, and no zero byte in its value"
    )]
    InvalidVariable {
        /// The name of the function.
        name: String,
        /// The name of the environment variable.
        variable: String,
    },
    /// There is no file at the path of the binary.
    #[error(
        "function=`{name}`: the file binary=`{binary}` does not exist; build the function first"
    )]
    NoBinary {
        /// The name of the function.
        name: String,
        /// The path where the binary must be.
        binary: PathBuf,
    },
    /// The log file cannot be written.
    #[error("function=`{name}`: cannot write log file=`{path}`: {source}")]
    Log {
        /// The name of the function.
        name: String,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}
