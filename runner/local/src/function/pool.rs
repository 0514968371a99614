//! The pool of a function's instances. It starts as many instances as there are concurrent invocations,
//! up to the function's concurrency.
//!
//! `instance` runs each instance.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use locks::Mutex;
use serde_json::json;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    Credentials, Error, InvokeOutcome, REQUEST_BYTES_MAX, Settings, environment,
    event::{Event, Observer},
    instance::{Attempt, Handle, Instance, Shared, StartError},
    log::LogFile,
    orphans::Orphans,
    outcome,
    program::{self, Build},
    remote::{self, Remote},
    signing::Signing,
};
use crate::poller::{Invoke, request_id};

/// The maximum number of invocations that wait for an instance. Pollers need only a few. A larger number
/// means a caller without a limit, which Lambda would throttle, too.
const WAITING_MAX: usize = 1_000;

/// The maximum number of instances that may exit before they receive an invocation. After that many
/// exits, the invocation fails. The limit is rarely reached, because a new instance is started for
/// the invocation if no instance is idle.
const DELIVERY_ATTEMPTS: usize = 8;

/// The pause before the next start after a failed start: the first value, doubled after each failure up
/// to the second value.
const START_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The maximum time until killed processes have ended.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A function that can be invoked. Clones refer to the same function. When the last clone is dropped,
/// its instances are killed.
#[derive(Clone)]
pub struct Function {
    pool: Arc<Pool>,
}

struct Pool {
    shared: Arc<Shared>,
    signing: Signing,
    places: Semaphore,
    waiting: AtomicUsize,
    numbers: AtomicU64,
    /// Whether the other program that runs the function has responded at least once.
    remote_answered: AtomicBool,
    instances: Mutex<Instances>,
}

#[derive(Default)]
struct Instances {
    idle: Vec<Instance>,
    live: BTreeMap<u64, Handle>,
    /// The build that the last invocation found.
    build: Option<Build>,
    closed: bool,
    failed_starts: u32,
    next_start: Option<Instant>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Function {
    /// Checks the settings and opens the log. Starts no process.
    ///
    /// # Errors
    ///
    /// The settings cannot work, or the log file cannot be written.
    pub fn new(settings: Settings, observer: Observer) -> Result<Self, Error> {
        let name = settings.name.clone();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=64).contains(&name.len()) || !name.bytes().all(plain) {
            return Err(Error::InvalidName { name });
        }
        for (setting, zero) in [
            ("timeout", settings.timeout.is_zero()),
            ("init timeout", settings.init_timeout.is_zero()),
        ] {
            if zero {
                return Err(Error::Zero { name, setting });
            }
        }
        environment::check(&settings)?;
        if settings.remote.is_none() && !settings.binary.is_file() {
            return Err(Error::NoBinary { name, binary: settings.binary });
        }
        let path = settings.log_folder.join(format!("{name}.log"));
        let log =
            LogFile::open(path.clone()).map_err(|source| Error::Log { name, path, source })?;
        // The semaphore's maximum is far above the possible number of processes.
        let places = Semaphore::new(settings.concurrency.min(Semaphore::MAX_PERMITS));
        let answers_to_drop = Arc::new(AtomicU32::new(0));
        let shared = Arc::new(Shared {
            settings,
            observer,
            log,
            answers_to_drop,
            orphans: Orphans::default(),
        });
        let Settings { credentials, credentials_source, timeout, .. } = &shared.settings;
        let signing = Signing::new(credentials.clone(), credentials_source.clone(), *timeout);
        let pool = Pool {
            shared,
            signing,
            places,
            waiting: AtomicUsize::new(0),
            numbers: AtomicU64::new(1),
            remote_answered: AtomicBool::new(false),
            instances: Mutex::default(),
        };
        Ok(Self { pool: Arc::new(pool) })
    }

    /// Returns the function's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.settings().name
    }

    /// Returns the function's settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.pool.shared.settings
    }

    /// Invokes the function once with a JSON event, and waits for the outcome. While all instances are
    /// busy, it waits for a free instance. If the returned future is dropped, the instance that runs the
    /// invocation is killed.
    pub async fn invoke(&self, payload: Bytes) -> InvokeOutcome {
        self.invoke_as(&request_id(), payload).await
    }

    /// Invokes the function as [`Function::invoke`] does, with the caller's request id. The id must be
    /// unique and consist of visible ASCII characters without slashes.
    pub async fn invoke_as(&self, request_id: &str, payload: Bytes) -> InvokeOutcome {
        let pool = &self.pool;
        if payload.len() > REQUEST_BYTES_MAX {
            // This is a function error, so that the caller's retries end: the event would never fit.
            let size = payload.len();
            let message = format!(
                "{size} byte payload is too large for the RequestResponse invocation type (limit {REQUEST_BYTES_MAX} bytes)"
            );
            let error = json!({"errorType": "RequestTooLargeException", "errorMessage": message});
            return InvokeOutcome::FunctionError {
                kind: "Unhandled".to_owned(),
                message,
                payload: error.to_string().into(),
            };
        }
        if self.settings().concurrency == 0 {
            let name = self.name();
            return InvokeOutcome::NotInvoked(format!(
                "function=`{name}` is throttled: its reserved concurrency is 0"
            ));
        }
        if pool.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            pool.waiting.fetch_sub(1, Ordering::Relaxed);
            let name = self.name();
            return InvokeOutcome::NotInvoked(format!(
                "function=`{name}`: {WAITING_MAX} invocations are already waiting; invoke the function less often, or raise its concurrency"
            ));
        }
        let place = {
            let _waiting = WaitingCount(&pool.waiting);
            pool.places.acquire().await
        };
        let Ok(_place) = place else { return pool.ended() };
        if let Some(remote) = &self.settings().remote {
            return pool.invoke_remote(remote, request_id, payload).await;
        }
        for _ in 0..DELIVERY_ATTEMPTS {
            let mut instance = match pool.instance(request_id).await {
                Ok(instance) => instance,
                Err(outcome) => return outcome,
            };
            match instance.invoke(&pool.shared, request_id, payload.clone()).await {
                Attempt::Ended { outcome, duration, init } => {
                    // Lambda's lines about an invocation follow the lines of the function.
                    instance.output_read().await;
                    pool.report(&instance, request_id, &outcome, duration, init);
                    pool.started();
                    pool.keep(instance);
                    return outcome;
                }
                Attempt::NotStarted(outcome) => {
                    pool.not_started(request_id, &outcome);
                    return outcome;
                }
                Attempt::NotReceived => {}
            }
        }
        InvokeOutcome::NotInvoked(format!("function=`{}`: its instances keep exiting", self.name()))
    }

    /// Starts an instance, waits until it is ready for an invocation, and ends it. Returns the
    /// reason if it cannot start. Does nothing if an invocation has started an instance, or if the
    /// function already has its maximum number of instances.
    pub async fn start_failure(&self) -> Option<String> {
        let pool = &self.pool;
        let _place = pool.places.try_acquire().ok()?;
        if !pool.instances().live.is_empty() {
            return None;
        }
        let keys = pool.signing.keys().await.ok()?;
        match pool.start(keys).await {
            Ok(instance) => {
                instance.start_failure(&request_id(), self.settings().init_timeout).await
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Kills an instance with `kill -9` and returns its process id; `None` if no instance is running. Prefers
    /// a busy instance. Its invocation fails, as after a crash.
    #[must_use]
    pub fn kill_instance(&self) -> Option<u32> {
        let instances = self.pool.instances();
        let live = || instances.live.values().filter(|handle| !handle.has_exited());
        let handle = live().find(|handle| handle.is_busy()).or_else(|| live().next())?;
        handle.kill();
        Some(handle.pid)
    }

    /// Drops the next `count` responses and ends their processes. For tests in which the function has
    /// done its work, but the caller does not get the response.
    pub fn lose_answers(&self, count: u32) {
        self.pool.shared.answers_to_drop.store(count, Ordering::Relaxed);
    }

    /// Returns the process ids of the running instances.
    #[must_use]
    pub fn instances(&self) -> Vec<u32> {
        let instances = self.pool.instances();
        let live = instances.live.values().filter(|handle| !handle.has_exited());
        live.map(|handle| handle.pid).collect()
    }

    /// Kills all instances and waits for their end. Running invocations fail, so the callers should be
    /// stopped first. Later invocations return `NotInvoked`.
    pub async fn shutdown(&self) {
        self.pool.places.close();
        let live = {
            let mut instances = self.pool.instances();
            instances.closed = true;
            instances.idle.clear();
            std::mem::take(&mut instances.live)
        };
        for handle in live.values() {
            handle.kill();
        }
        let exits = live.into_values().map(Handle::exited);
        // A process that survives the kill for this time will probably never end.
        let _gone = timeout(SHUTDOWN_GRACE, futures::future::join_all(exits)).await;
    }
}

#[async_trait]
impl Invoke for Function {
    async fn invoke(&self, request: &str, payload: Bytes) -> InvokeOutcome {
        self.invoke_as(request, payload).await
    }
}

/// A guard that counts an invocation as waiting until it is dropped.
struct WaitingCount<'a>(&'a AtomicUsize);

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    fn instances(&self) -> MutexGuard<'_, Instances> {
        self.instances.lock()
    }

    /// Runs the invocation in the other program. Writes Lambda's lines about it to the log.
    async fn invoke_remote(
        &self,
        remote: &Remote,
        request_id: &str,
        payload: Bytes,
    ) -> InvokeOutcome {
        let shared = &self.shared;
        let is_first = !self.remote_answered.load(Ordering::Relaxed);
        let (outcome, duration) =
            remote::invoke(remote, &shared.settings, request_id, payload, is_first).await;
        if matches!(outcome, InvokeOutcome::NotInvoked(_)) {
            return outcome;
        }
        self.remote_answered.store(true, Ordering::Relaxed);
        if let InvokeOutcome::FunctionError { message, .. } = &outcome {
            shared.log.line(Some(request_id), &format!("ERROR {message}"));
        }
        let ms = duration.as_secs_f64() * 1_000.0;
        let report =
            format!("REPORT RequestId: {request_id}\tDuration: {ms:.2} ms\tRun by: {}", remote.url);
        shared.log.line(Some(request_id), &report);
        outcome
    }

    fn ended(&self) -> InvokeOutcome {
        let name = &self.shared.settings.name;
        InvokeOutcome::NotInvoked(format!("function=`{name}` has been shut down"))
    }

    /// Returns an idle instance, or starts an instance. The caller holds a permit of the semaphore,
    /// which bounds the number of instances.
    async fn instance(&self, request_id: &str) -> Result<Instance, InvokeOutcome> {
        let not_invoked = |reason: &dyn fmt::Display| {
            let name = &self.shared.settings.name;
            InvokeOutcome::NotInvoked(format!("function=`{name}`: {reason}"))
        };
        let keys = self.signing.keys().await.map_err(|reason| not_invoked(&reason))?;
        self.follow_program().await;
        let pause = {
            let mut instances = self.instances();
            if instances.closed {
                return Err(self.ended());
            }
            let build = instances.build.clone();
            // Drops an unfit instance, which ends its process.
            while let Some(instance) = instances.idle.pop() {
                if instance.is_fit(&keys)
                    && build.as_ref().is_none_or(|build| instance.is_of(build))
                {
                    return Ok(instance);
                }
            }
            instances.next_start
        };
        if let Some(pause) = pause {
            sleep_until(pause).await;
        }
        let started = self.start(keys).await;
        let instance = started.map_err(|error| match error.invalid_entrypoint() {
            Some(why) => {
                let outcome = outcome::invalid_entrypoint(request_id, &why);
                self.not_started(request_id, &outcome);
                outcome
            }
            None => {
                self.pause();
                not_invoked(&error)
            }
        })?;
        let mut instances = self.instances();
        if instances.closed {
            return Err(self.ended());
        }
        instances.live.retain(|_, handle| !handle.has_exited());
        instances.live.insert(instance.number(), instance.handle());
        Ok(instance)
    }

    /// Checks whether the program has changed. Ends idle instances of the old program immediately.
    /// A busy instance ends before its next invocation.
    async fn follow_program(&self) {
        let program = &self.shared.settings.program();
        let (known, is_warm) = {
            let instances = self.instances();
            (instances.build.clone(), !instances.idle.is_empty())
        };
        let found = match &known {
            None => program::current_build(program),
            Some(known) => program::current(program, known, is_warm).await,
        };
        let Some(found) = found.filter(|found| known.as_ref() != Some(found)) else { return };
        let mut instances = self.instances();
        // A concurrent invocation may have found the same change.
        if instances.build.as_ref() == Some(&found) {
            return;
        }
        instances.idle.retain(|instance| instance.is_of(&found));
        instances.build = Some(found);
        // The earlier failed starts concern the old program.
        (instances.failed_starts, instances.next_start) = (0, None);
        drop(instances);
        if known.is_some() {
            let function = &self.shared.settings.name;
            (self.shared.observer)(&Event::ProgramChanged { function });
        }
    }

    /// Starts an instance. Retries for a while if the program is being written.
    async fn start(&self, keys: Credentials) -> Result<Instance, StartError> {
        let mut looks = 1;
        loop {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let started = Instance::start(self.shared.clone(), number, keys.clone()).await;
            match started {
                Err(error) if error.is_busy() && looks < program::LOOKS_MAX => looks += 1,
                started => return started,
            }
            sleep(program::SETTLED).await;
        }
    }

    /// Keeps an instance for the next invocation.
    fn keep(&self, instance: Instance) {
        let mut instances = self.instances();
        // If the program has changed meanwhile, drops the instance, which ends it.
        let is_old = instances.build.as_ref().is_some_and(|build| !instance.is_of(build));
        if !instances.closed && !is_old {
            instances.idle.push(instance);
        }
    }

    fn started(&self) {
        let mut instances = self.instances();
        instances.failed_starts = 0;
        instances.next_start = None;
    }

    /// Delays the next start, with exponential back-off.
    fn pause(&self) {
        let mut instances = self.instances();
        let (first, longest) = START_PAUSE;
        let pause = first.saturating_mul(1_u32 << instances.failed_starts.min(16)).min(longest);
        instances.failed_starts = instances.failed_starts.saturating_add(1);
        instances.next_start = Some(Instant::now() + pause);
    }

    fn not_started(&self, request_id: &str, outcome: &InvokeOutcome) {
        self.pause();
        if let InvokeOutcome::FunctionError { message, .. } = outcome {
            let text = format!("INIT_REPORT Phase: init Status: error {message}");
            for line in text.lines() {
                self.shared.log.line(Some(request_id), line);
            }
        }
        let function = &self.shared.settings.name;
        let duration = Duration::ZERO;
        let event = Event::InvocationEnded { function, request_id, outcome, duration };
        (self.shared.observer)(&event);
    }

    /// Writes Lambda's lines about an invocation, and reports its end.
    fn report(
        &self,
        instance: &Instance,
        request_id: &str,
        outcome: &InvokeOutcome,
        duration: Duration,
        init: Option<Duration>,
    ) {
        let shared = &self.shared;
        if let InvokeOutcome::FunctionError { message, .. } = outcome {
            shared.log.line(Some(request_id), &format!("ERROR {message}"));
        }
        let ms = duration.as_secs_f64() * 1_000.0;
        let mut line = format!(
            "REPORT RequestId: {request_id}\tDuration: {ms:.2} ms\tMemory Size: {} MB",
            shared.settings.memory_mb
        );
        if let Some(used) = instance.memory_mb() {
            line.push_str(&format!("\tMax Memory Used: {used} MB"));
        }
        if let Some(init) = init {
            line.push_str(&format!("\tInit Duration: {:.2} ms", init.as_secs_f64() * 1_000.0));
        }
        line.push_str(&format!("\tProcess: {}", instance.pid()));
        shared.log.line(Some(request_id), &line);
        let function = &shared.settings.name;
        let event = Event::InvocationEnded { function, request_id, outcome, duration };
        (shared.observer)(&event);
    }
}
