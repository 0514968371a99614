//! Processes of the real binaries. Each test has its own folder and uses free ports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::wire::Endpoint;

/// The time-out for a process to answer on its port, on a busy machine.
const START_MAX: Duration = Duration::from_secs(120);

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the folder of the product's binaries; builds the binaries at the first call.
fn binaries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--locked", "-j2", "--workspace", "--bins"])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        // The binary of this test is in `<target>/debug/deps`.
        std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned()
    })
}

pub(crate) fn binary(name: &str) -> Command {
    Command::new(binaries().join(name))
}

/// Returns a copy of `command` that limits the process to `descriptors` open files and connections.
pub(crate) fn limited(command: &Command, descriptors: u32) -> Command {
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nofile={descriptors}:{descriptors}"));
    limited.arg(command.get_program()).args(command.get_args());
    command.get_current_dir().map(|folder| limited.current_dir(folder));
    limited
}

/// A process that is killed when the test ends.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(mut command: Command, log: PathBuf) -> Self {
        let file = fs::File::options().create(true).append(true).open(&log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends `kill -9`, and waits until the process has ended.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Interrupts the process as Ctrl-C does, and returns whether it ended successfully.
    pub(crate) fn interrupt(&mut self) -> bool {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        wait_for("the process to end", Duration::from_secs(60), || self.child.try_wait().unwrap())
            .success()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let start = log.len().saturating_sub(4000);
            println!("--- end of {}:\n{}", self.log.display(), log.get(start..).unwrap_or(&log));
        }
    }
}

/// Waits for a condition, with a time-out.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A `local-store` on a folder.
pub(crate) struct LocalStore {
    pub(crate) process: Process,
    pub(crate) endpoint: Endpoint,
}

impl LocalStore {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    /// Starts the store with additional flags.
    pub(crate) fn start_with(folder: &Path, flags: &[&str]) -> Self {
        Self::run(folder, Self::command(folder, flags))
    }

    /// Starts the store with additional flags and at most `descriptors` open files and connections.
    pub(crate) fn start_limited(folder: &Path, flags: &[&str], descriptors: u32) -> Self {
        Self::run(folder, limited(&Self::command(folder, flags), descriptors))
    }

    fn command(folder: &Path, flags: &[&str]) -> Command {
        let mut command = binary("local-store");
        command.args(["--port", "0", "--data"]).arg(folder.join("data")).args(flags);
        command
    }

    fn run(folder: &Path, command: Command) -> Self {
        let log = folder.join("local-store.log");
        let _ = fs::remove_file(&log);
        let mut process = Process::start(command, log);
        let address = wait_for("the store to listen", START_MAX, || {
            assert!(!process.has_ended(), "{}", process.log());
            let log = process.log();
            let (_, behind) = log.split_once("listening on http://")?;
            behind.split_whitespace().next().map(str::to_owned)
        });
        Self { process, endpoint: Endpoint::new(&address) }
    }
}

/// A `weir up` in a separate folder.
pub(crate) struct Up {
    pub(crate) folder: TempDir,
    pub(crate) process: Process,
    pub(crate) store: Endpoint,
}

impl Up {
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), flags)
    }

    pub(crate) fn start_in(folder: TempDir, flags: &[&str]) -> Self {
        let flags: Vec<&str> = ["--port", "0"].iter().chain(flags).copied().collect();
        let (process, endpoints) = Self::run(&folder, &flags, &[], None);
        let url = endpoints["dynamodb"].as_str().unwrap();
        Self { store: Endpoint::new(url.strip_prefix("http://").unwrap()), folder, process }
    }

    /// Starts `weir up` with the folder's template and at most `descriptors` open files and
    /// connections.
    pub(crate) fn start_limited(folder: TempDir, descriptors: u32) -> Self {
        let flags = ["--port", "0"];
        let (process, endpoints) = Self::run(&folder, &flags, &[], Some(descriptors));
        let url = endpoints["dynamodb"].as_str().unwrap();
        Self { store: Endpoint::new(url.strip_prefix("http://").unwrap()), folder, process }
    }

    /// Starts `weir up` on the store that environment variables specify.
    pub(crate) fn start_elsewhere(
        folder: TempDir,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let (process, endpoints) = Self::run(&folder, flags, environment, None);
        assert_eq!(endpoints["dynamodb"], "");
        Self { store: Endpoint::new("nowhere"), folder, process }
    }

    fn run(
        folder: &TempDir,
        flags: &[&str],
        environment: &[(&str, &str)],
        descriptors: Option<u32>,
    ) -> (Process, Value) {
        let running = folder.path().join(".weir/running.json");
        let _ = fs::remove_file(&running);
        let mut command = binary("weir");
        // A test may have written its own template into the folder.
        let own = folder.path().join("template.yaml");
        let template = if own.exists() { own } else { root().join("template.yaml") };
        command.args(["up", "--s3-port", "0", "--template"]);
        command.arg(template).args(flags).current_dir(folder.path());
        let mut command = match descriptors {
            Some(descriptors) => limited(&command, descriptors),
            None => command,
        };
        command.envs(environment.iter().copied());
        let mut process = Process::start(command, folder.path().join("weir.log"));
        let endpoints: Value = wait_for("weir up to run", START_MAX * 4, || {
            assert!(!process.has_ended(), "{}", process.log());
            serde_json::from_str(&fs::read_to_string(&running).ok()?).ok()
        });
        (process, endpoints)
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(".weir/up").join(below)
    }
}

/// Returns a command of `weir` for a store, with the store's address and keys in environment
/// variables.
pub(crate) fn weir_on(store: &Endpoint) -> Command {
    let mut command = binary("weir");
    command.env("AWS_ENDPOINT_URL_DYNAMODB", format!("http://{}", store.address()));
    if let Some((id, secret)) = store.key() {
        command.env("WEIR_KEYS", "own").env("AWS_ACCESS_KEY_ID", id);
        command.env("AWS_SECRET_ACCESS_KEY", secret);
    }
    command
}

/// Runs `weir` to completion.
pub(crate) fn weir(folder: &Path, arguments: &[&str]) -> Output {
    binary("weir").args(arguments).current_dir(folder).output().unwrap()
}

/// Returns a shell that runs a command in a folder, with the real binaries on its path.
pub(crate) fn shell(folder: &Path, command: &str) -> Command {
    let path = format!("{}:{}", binaries().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    shell
}

/// The property of a mapping that sends discarded records to the bucket of [`pets_project`].
pub(crate) const TO_BUCKET: &str =
    "DestinationConfig: {OnFailure: {Type: S3, Destination: !GetAtt Failures.Arn}}";

/// Creates a project with the table `pets`, a bucket, and functions in Python that all run
/// `handler`. Each function has a name and further properties of its mapping, one per line. The
/// variable `PLACE` is the folder of the project.
pub(crate) fn pets_project(handler: &str, functions: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    let mut template = String::from(
        "Transform: AWS::Serverless-2016-10-31
Resources:
  Pets:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: pets
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
      KeySchema: [{AttributeName: id, KeyType: HASH}]
      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}
  Failures:
    Type: AWS::S3::Bucket
    Properties: {BucketName: failures}
",
    );
    for (name, properties) in functions {
        let properties = properties.replace('\n', "\n            ");
        template.push_str(&format!(
            "  {name}:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: python3.13
      CodeUri: code
      Handler: app.handler
      Timeout: 30
      Environment: {{Variables: {{PLACE: '{place}'}}}}
      Events:
        Pets:
          Type: DynamoDB
          Properties:
            Stream: !GetAtt Pets.StreamArn
            StartingPosition: TRIM_HORIZON
            MaximumRetryAttempts: 0
            {properties}
"
        ));
    }
    fs::create_dir(folder.path().join("code")).unwrap();
    fs::write(folder.path().join("code/app.py"), handler).unwrap();
    fs::write(folder.path().join("template.yaml"), template).unwrap();
    folder
}
