//! The resources that pages and actions may use.
//!
//! Pages and actions get no flags and no environment variables. The only files that they read are
//! those of the data folder and the running template.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use client::aws_host;
use client::endpoint;
use client::output::Output;
use client::running::{Running, RunningState};
use local::poller::Chaos;
use locks::Mutex;
use operations::migrate::Context as Migrate;
use template::Stack;

use crate::error::PageError;
use crate::load_history::LoadHistory;
use crate::notices::Notices;
use crate::pages::migration::watch::Watches;
use crate::rates::Rates;
use crate::tasks::Tasks;
use crate::token::Token;

/// The store that a console shows, with the settings of the console.
#[derive(Clone, Debug)]
pub struct Place {
    /// The endpoint of DynamoDB.
    pub endpoint: String,
    /// The endpoint of S3, if one is known.
    pub s3: Option<String>,
    /// The `weir up` that serves this console; `None` for `weir console`.
    pub own: Option<Running>,
    /// The data folder of the `weir up` that reads the streams; `None` for the `weir up` of the
    /// current folder.
    pub directory: Option<PathBuf>,
    /// The fault injection of this `weir up`; `None` without `--chaos`.
    pub chaos: Option<Arc<Chaos>>,
    /// Whether actions may write.
    pub allow_writes: bool,
}

/// The resources that pages and actions use.
pub struct Context {
    place: Place,
    dynamodb: aws_sdk_dynamodb::Client,
    streams: aws_sdk_dynamodbstreams::Client,
    token: Token,
    /// The client of the store's migrations, with the name of its control table. The client is
    /// cached, because a new client reads the certificates of the system and opens new connections.
    migrate: Mutex<Option<(String, Arc<Migrate>)>>,
    /// The cached result of the last evaluation of a template; the inner `None` means that the
    /// template is invalid.
    stack: Mutex<Option<(StackOrigin, Option<Arc<Stack>>)>>,
    /// The background reads of the streams of the migrations that are shown.
    watches: Watches,
    /// The tasks that actions have started.
    tasks: Tasks,
    loads: LoadHistory,
    rates: Rates,
    notices: Notices,
}

/// The input of a template's evaluation: the path of its file, the parameters, and the bytes of the
/// file.
type StackOrigin = (PathBuf, BTreeMap<String, String>, Vec<u8>);

/// The default control table of migrations, if the running template names none.
const CONTROL_TABLE: &str = "weir-migrations";

/// The error of a system that cannot generate random numbers for the token.
#[derive(Debug, thiserror::Error)]
#[error("console: cannot generate the token for buttons: {0}")]
pub struct NoToken(getrandom::Error);

impl Context {
    /// Creates the context of a store, with a new token.
    ///
    /// # Errors
    /// The system cannot generate random numbers.
    pub fn new(place: Place) -> Result<Self, NoToken> {
        Ok(Self {
            dynamodb: endpoint::client(&place.endpoint),
            streams: endpoint::streams_client(&place.endpoint),
            token: Token::random().map_err(NoToken)?,
            migrate: Mutex::new(None),
            stack: Mutex::new(None),
            watches: Watches::default(),
            tasks: Tasks::default(),
            loads: LoadHistory::default(),
            rates: Rates::default(),
            notices: Notices::default(),
            place,
        })
    }

    /// Returns the endpoint of the store.
    pub(crate) fn endpoint(&self) -> &str {
        &self.place.endpoint
    }

    /// Returns whether the store is DynamoDB on AWS, which has no clock to advance and no admin endpoint.
    pub(crate) fn is_on_aws(&self) -> bool {
        aws_host::is_on_aws(&self.place.endpoint)
    }

    /// Returns the DynamoDB client.
    pub(crate) fn dynamodb(&self) -> &aws_sdk_dynamodb::Client {
        &self.dynamodb
    }

    /// Returns the DynamoDB Streams client.
    pub(crate) fn streams(&self) -> &aws_sdk_dynamodbstreams::Client {
        &self.streams
    }

    /// Returns the endpoint of S3, if one is known.
    pub(crate) fn s3_endpoint(&self) -> Option<&str> {
        self.place.s3.as_deref()
    }

    /// Returns the `weir up` that reads the streams of this store on this machine: the `weir up`
    /// that serves the console, or that of the given data folder, or that of the current folder.
    pub(crate) fn running(&self) -> Option<Running> {
        if let Some(own) = &self.place.own {
            return Some(own.clone());
        }
        let found = match &self.place.directory {
            // `weir up` publishes its data folder as a path relative to its own working directory.
            Some(directory) => RunningState::of_data(directory)
                .running()
                .map(|running| Running { directory: directory.clone(), ..running }),
            None => RunningState::here().running(),
        };
        found.filter(|running| running.is_at(&self.place.endpoint))
    }

    /// Returns the data folder of the running `weir up`, which contains its journal and its status.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        self.running().map(|running| running.directory)
    }

    /// Returns the template of the running `weir up`; `None` if none is running, or the template
    /// cannot be read or is invalid. The result is cached until the file or its parameters change.
    pub(crate) fn stack(&self) -> Option<Arc<Stack>> {
        let running = self.running()?;
        let bytes = std::fs::read(&running.template).ok()?;
        let origin = (running.template, running.parameters, bytes);
        if let Some((of, stack)) = self.stack.lock().as_ref()
            && *of == origin
        {
            return stack.clone();
        }
        let (path, parameters, bytes) = &origin;
        let context = template::Context {
            parameters: parameters.clone(),
            folder: path.parent().map(PathBuf::from),
            ..template::Context::default()
        };
        let stack = template::read_bytes(&path.display().to_string(), bytes, &context).ok();
        let stack = stack.map(Arc::new);
        *self.stack.lock() = Some((origin, stack.clone()));
        stack
    }

    /// Returns the name of the control table of migrations.
    pub(crate) fn control_table(&self) -> String {
        let stack = self.stack();
        let functions = stack.iter().flat_map(|stack| &stack.functions);
        let mut named = functions.filter_map(|function| function.environment.get("CONTROL_TABLE"));
        named.next().cloned().unwrap_or_else(|| CONTROL_TABLE.to_owned())
    }

    /// Returns the client of the store's migrations. In a read-only console, the client is
    /// read-only: it skips even the writes that normally accompany a read of the status.
    pub(crate) fn migrate(&self) -> Arc<Migrate> {
        let table = self.control_table();
        let mut known = self.migrate.lock();
        if let Some((_, migrate)) = known.as_ref().filter(|(named, _)| *named == table) {
            return Arc::clone(migrate);
        }
        let migrate = Migrate::new(&self.place.endpoint, &table, Output::Json);
        let migrate = if self.place.allow_writes { migrate } else { migrate.read_only() };
        let migrate = Arc::new(migrate);
        *known = Some((table, Arc::clone(&migrate)));
        migrate
    }

    /// Returns the background reads of the streams of migrations.
    pub(crate) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Returns the tasks that actions have started.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Returns the load history of partitions over the last minutes.
    pub(crate) fn loads(&self) -> &LoadHistory {
        &self.loads
    }

    /// Returns whether this console is served by the `weir up` that reads the streams, not by `weir
    /// console`.
    pub(crate) fn is_of_weir_up(&self) -> bool {
        self.place.own.is_some()
    }

    /// Returns the fault injection of the `weir up` that serves the console; `None` without
    /// `--chaos`.
    pub(crate) fn chaos(&self) -> Option<&Chaos> {
        self.place.chaos.as_deref()
    }

    /// Returns the samples from which rates are computed.
    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Returns the stored results of actions, which the page after an action shows.
    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Returns whether the forms of a page may write, with the token that they must send.
    pub(crate) fn writes(&self) -> Writes<'_> {
        match self.place.allow_writes {
            true => Writes::Allowed(&self.token),
            false => Writes::Refused,
        }
    }

    /// Checks that writes are allowed, and that the request has the token of this console.
    ///
    /// # Errors
    /// Writes are not allowed, or the token is wrong.
    pub(crate) fn check_write(&self, token: Option<&str>) -> Result<(), PageError> {
        let Writes::Allowed(own) = self.writes() else {
            return Err(PageError::Refused(READ_ONLY.to_owned()));
        };
        if token.is_some_and(|token| own.is(token)) {
            return Ok(());
        }
        Err(PageError::Refused(
            "the request has no valid token, or this console was restarted: reload the page and press the button again"
                .to_owned(),
        ))
    }
}

/// The reason why the buttons of a console are disabled.
pub(crate) const READ_ONLY: &str =
    "this console is read-only: to enable its buttons, start it with --allow-writes";

/// The permission of a page's forms to write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Writes<'a> {
    /// Forms may write, with this token.
    Allowed(&'a Token),
    /// Forms may not write.
    Refused,
}
