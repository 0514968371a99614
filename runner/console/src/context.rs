//! What a page may read, and whether an action may write.
//!
//! Pages and actions get nothing else: no flag, no environment, no file but those of the data folder and the
//! template that runs.

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

/// The store of a console, and what belongs to it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The endpoint of DynamoDB.
    pub endpoint: String,
    /// The endpoint of S3, if one is known.
    pub s3: Option<String>,
    /// The `weir up` that serves this console; `None` for `weir console`.
    pub own: Option<Running>,
    /// The data folder of the `weir up` that reads the streams; `None` for the one of this folder.
    pub directory: Option<PathBuf>,
    /// The faults of this `weir up`; `None` if it injects none.
    pub chaos: Option<Arc<Chaos>>,
    /// Whether actions may write.
    pub allow_writes: bool,
}

/// What pages may read and actions may write.
pub struct Context {
    place: Place,
    dynamodb: aws_sdk_dynamodb::Client,
    streams: aws_sdk_dynamodbstreams::Client,
    token: Token,
    /// The migrations of the store, with the control table that was named last. A client is kept, because a new
    /// one reads the certificates of the system and opens new connections.
    migrate: Mutex<Option<(String, Arc<Migrate>)>>,
    /// The template that was evaluated last; `None` in it if it is wrong.
    stack: Mutex<Option<(StackOrigin, Option<Arc<Stack>>)>>,
    /// Reads the streams of the migrations that are shown.
    watches: Watches,
    /// What actions have started.
    tasks: Tasks,
    loads: LoadHistory,
    rates: Rates,
    notices: Notices,
}

/// What a template is evaluated from: its file, the parameters, and the bytes of the file.
type StackOrigin = (PathBuf, BTreeMap<String, String>, Vec<u8>);

/// The control table of migrations, if the template that runs names no other one.
const CONTROL_TABLE: &str = "weir-migrations";

/// Why the system has no random numbers for the token.
#[derive(Debug, thiserror::Error)]
#[error("console: cannot generate the token for buttons: {0}")]
pub struct NoToken(getrandom::Error);

impl Context {
    /// Returns the context of a store, with a new token.
    ///
    /// # Errors
    /// The system has no random numbers.
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

    /// Returns the client of the tables.
    pub(crate) fn dynamodb(&self) -> &aws_sdk_dynamodb::Client {
        &self.dynamodb
    }

    /// Returns the client of the streams.
    pub(crate) fn streams(&self) -> &aws_sdk_dynamodbstreams::Client {
        &self.streams
    }

    /// Returns the endpoint of S3, if one is known.
    pub(crate) fn s3_endpoint(&self) -> Option<&str> {
        self.place.s3.as_deref()
    }

    /// Returns the `weir up` that reads the streams of this store on this machine: the one that serves the
    /// console, the one of a data folder, or the one of this folder.
    pub(crate) fn running(&self) -> Option<Running> {
        if let Some(own) = &self.place.own {
            return Some(own.clone());
        }
        let found = match &self.place.directory {
            // It publishes its data folder as a path from its own folder.
            Some(directory) => RunningState::of_data(directory)
                .running()
                .map(|running| Running { directory: directory.clone(), ..running }),
            None => RunningState::here().running(),
        };
        found.filter(|running| running.is_at(&self.place.endpoint))
    }

    /// Returns the data folder of that `weir up`, which has its journal and its status.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        self.running().map(|running| running.directory)
    }

    /// Returns the template that this `weir up` runs; `None` if none runs, or its file cannot be read any more. It
    /// is evaluated again when the file or its parameters have changed.
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

    /// Returns the migrations of the store. A read-only console writes nothing, not even what a status records.
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

    /// Returns the traffic of partitions over the last minutes.
    pub(crate) fn loads(&self) -> &LoadHistory {
        &self.loads
    }

    /// Returns whether this console is served by the `weir up` that reads the streams.
    pub(crate) fn is_of_weir_up(&self) -> bool {
        self.place.own.is_some()
    }

    /// Returns the faults of the `weir up` that serves the console; `None` if it injects none.
    pub(crate) fn chaos(&self) -> Option<&Chaos> {
        self.place.chaos.as_deref()
    }

    /// Returns the samples from which rates are computed.
    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Returns the results of actions, for the pages that are shown after them.
    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Returns whether and how the forms of a page can change something.
    pub(crate) fn writes(&self) -> Writes<'_> {
        match self.place.allow_writes {
            true => Writes::Allowed(&self.token),
            false => Writes::Refused,
        }
    }

    /// Checks that a request may change something: writes are allowed, and it has the token of this start.
    ///
    /// # Errors
    /// The reason why it may not.
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

/// Whether the forms of a page can change something, and the token that they need.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Writes<'a> {
    /// They can, with this token.
    Allowed(&'a Token),
    /// They cannot.
    Refused,
}
