//! The file in which a running `weir up` publishes its addresses and settings for other commands in its
//! folder. This module also checks that the `weir up` is still running.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::aws_host;
use crate::failure::{Result, fatal};

/// The path of the file, relative to the folder in which `weir up` was started.
pub const RUNNING_FILE: &str = ".weir/running.json";
/// Timeout of a connection within this machine. It is long enough for a busy machine.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The published addresses and settings of a `weir up`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Running {
    /// The format version of this file.
    pub schema: String,
    /// The process id.
    pub process: u32,
    /// The store's endpoint; empty on AWS.
    pub dynamodb: String,
    /// DynamoDB's endpoint if the store is on AWS, else empty. It is separate from `dynamodb`, so
    /// that no command writes to tables on AWS without an explicit flag.
    #[serde(default)]
    pub aws: String,
    /// The S3 endpoint.
    pub s3: String,
    /// The endpoint of Lambda's Invoke API.
    #[serde(default)]
    pub lambda: String,
    /// The address of the console; empty for an earlier version.
    #[serde(default)]
    pub console: String,
    /// The data folder.
    #[serde(default)]
    pub directory: PathBuf,
    /// The names of the functions, by logical id.
    #[serde(default)]
    pub functions: BTreeMap<String, String>,
    /// The names of the template's buckets.
    #[serde(default)]
    pub buckets: Vec<String>,
    /// The bucket of the archive that the function `archive-maintenance` changes; empty without
    /// one.
    #[serde(default)]
    pub archive_bucket: String,
    /// Key prefix of the archive in `archive_bucket`.
    #[serde(default)]
    pub archive_prefix: String,
    /// The tables whose streams a function archives.
    #[serde(default)]
    pub archived: Vec<String>,
    /// The tables whose streams the migration function reads.
    #[serde(default)]
    pub migrated: Vec<String>,
    /// The functions of the template that do not run on this machine, by logical id, with the
    /// reason.
    #[serde(default)]
    pub not_run: BTreeMap<String, String>,
    /// The template's path, with symbolic links resolved.
    #[serde(default)]
    pub template: PathBuf,
    /// The values of the template's parameters.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

/// The state of a `weir up` in this folder.
pub enum RunningState {
    /// No `weir up` was started, or the last one has shut down.
    NotStarted,
    /// The last `weir up` was killed, so its file still exists.
    Ended(Running),
    /// A `weir up` is running.
    Running(Running),
}

impl RunningState {
    /// Returns the state of the `weir up` in this folder.
    pub fn here() -> Self {
        Self::of(Path::new(RUNNING_FILE))
    }

    /// Returns the state of the `weir up` that uses a data folder: the `weir up` of this folder, or of
    /// the folder whose default data folder this is.
    pub fn of_data(directory: &Path) -> Self {
        let uses = |base: &Path, look: &Self| match look {
            Self::Running(said) | Self::Ended(said) => {
                is_same_folder(&base.join(&said.directory), directory)
            }
            Self::NotStarted => false,
        };
        let own = Self::here();
        if uses(Path::new(""), &own) {
            return own;
        }
        let directory = &std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        let beside = directory.parent().zip(directory.parent().and_then(Path::parent));
        let found = beside.map(|(weir, base)| (Self::of(&weir.join("running.json")), base));
        found.filter(|(look, base)| uses(base, look)).map_or(Self::NotStarted, |(look, _)| look)
    }

    fn of(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).ok();
        let said: Option<Running> = text.and_then(|text| serde_json::from_str(&text).ok());
        match said {
            None => Self::NotStarted,
            Some(running) if running.is_there() => Self::Running(running),
            Some(ended) => Self::Ended(ended),
        }
    }

    /// Returns the published values if the `weir up` is running.
    pub fn running(self) -> Option<Running> {
        match self {
            Self::Running(running) => Some(running),
            Self::Ended(_) | Self::NotStarted => None,
        }
    }

    /// Returns the last published values, even if the `weir up` has ended.
    pub fn last_published(self) -> Option<Running> {
        match self {
            Self::NotStarted => None,
            Self::Ended(said) | Self::Running(said) => Some(said),
        }
    }
}

fn is_same_folder(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| std::fs::canonicalize(path).ok();
    found(one).is_some_and(|one| Some(one) == found(other))
}

impl Running {
    /// Reads the published values of the `weir up` in this folder.
    ///
    /// # Errors
    /// When no `weir up` is running.
    pub fn read() -> Result<Self> {
        match RunningState::here() {
            RunningState::Running(running) => Ok(running),
            RunningState::Ended(ended) => Err(ended.has_ended().into()),
            RunningState::NotStarted => Err(fatal!(
                "no `weir up` is running in this folder: start `weir up` here, in another terminal"
            )),
        }
    }

    /// Returns the message for a `weir up` that was killed or crashed.
    pub fn has_ended(&self) -> String {
        format!("`weir up` (process {}) was killed or crashed; start it again", self.process)
    }

    /// Returns the endpoint of the store that this `weir up` uses, also on AWS. Returns `None` for a `weir
    /// up` of an earlier version on AWS, which does not publish the endpoint.
    pub fn store(&self) -> Option<&str> {
        [&self.dynamodb, &self.aws].into_iter().find(|url| !url.is_empty()).map(String::as_str)
    }

    /// Returns true if the store of this `weir up` has this address. On AWS, DynamoDB has several host names
    /// per region, none of which identifies the account.
    pub fn is_at(&self, url: &str) -> bool {
        let is_same_region = |own: &str| {
            let are_on_aws = aws_host::is_on_aws(own) && aws_host::is_on_aws(url);
            are_on_aws && aws_host::region(own) == aws_host::region(url)
        };
        self.store().is_some_and(|own| place_of(url) == place_of(own) || is_same_region(own))
    }

    /// Returns the template's parameters of this `weir up`. They are empty if the `weir up` runs a
    /// different template, or if `store`, from a flag or the environment, is a different store.
    pub fn parameters_for(&self, template: &Path, store: Option<&str>) -> BTreeMap<String, String> {
        let is_own_store = match store {
            None => true,
            Some(url) if self.store().is_none() => !is_local(url),
            Some(url) => self.is_at(url),
        };
        let is_own = is_own_store
            && std::fs::canonicalize(template).is_ok_and(|template| template == self.template);
        if is_own { self.parameters.clone() } else { BTreeMap::new() }
    }

    /// Returns the name of a function. `wanted` is its logical id or its name, in any case, with or
    /// without `Function`.
    pub fn function(&self, wanted: &str) -> Result<&str> {
        let names: Vec<&str> = self.functions.iter().flat_map(|(id, name)| [&**id, name]).collect();
        let found = match_function(wanted, &names).map_err(|unknown| {
            let elsewhere: Vec<&str> = self.not_run.keys().map(String::as_str).collect();
            let meant = match_function(wanted, &elsewhere).ok();
            match meant.and_then(|id| Some((id, self.not_run.get(id)?))) {
                Some((id, reason)) => {
                    fatal!("function `{id}` does not run on this machine: {reason}")
                }
                None => unknown,
            }
        })?;
        Ok(self.functions.get(found).map_or(found, String::as_str))
    }

    /// Returns true if this `weir up` is still running. Checks both its process id and its port, because
    /// a different process may have reused either.
    fn is_there(&self) -> bool {
        let endpoint = if self.lambda.is_empty() { &self.s3 } else { &self.lambda };
        process_runs(self.process) != Some(false) && is_listening(endpoint)
    }
}

/// Returns the host and port of a URL; all names of this machine count as one host.
fn place_of(url: &str) -> Option<(String, u16)> {
    let url: http::Uri = url.parse().ok()?;
    let host = url.host()?.to_ascii_lowercase();
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
    let is_own = matches!(host.as_str(), "localhost" | "[::1]") || host.starts_with("127.");
    Some((if is_own { "localhost".to_owned() } else { host }, port))
}

fn is_local(url: &str) -> bool {
    place_of(url).is_some_and(|(host, _)| host == "localhost")
}

/// Returns whether a process runs; `None` on a system without `/proc`.
fn process_runs(process: u32) -> Option<bool> {
    let processes = Path::new("/proc");
    if !processes.join("self/stat").exists() {
        return None;
    }
    let Ok(stat) = std::fs::read_to_string(processes.join(format!("{process}/stat"))) else {
        return Some(false);
    };
    // The process state follows the process name in brackets. `Z` is a zombie: a process that has ended
    // and has not been reaped by its parent.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    Some(!matches!(state, Some('Z' | 'X')))
}

/// Returns true if a process listens at this address, or if the address is on a different machine.
fn is_listening(url: &str) -> bool {
    let address = url.strip_prefix("http://").and_then(|rest| rest.parse::<SocketAddr>().ok());
    // An address on a different machine cannot be checked quickly, so it counts as listening.
    address.is_none_or(|address| TcpStream::connect_timeout(&address, CONNECT_MAX).is_ok())
}

/// Returns the name that matches `wanted`.
pub fn match_function<'a>(wanted: &str, names: &[&'a str]) -> Result<&'a str> {
    let plain = |name: &str| {
        let name = name.to_lowercase().replace(['-', '_'], "");
        name.strip_suffix("function").map_or(name.clone(), str::to_owned)
    };
    let exact = names.iter().find(|name| **name == wanted);
    exact.or_else(|| names.iter().find(|name| plain(name) == plain(wanted))).copied().ok_or_else(
        || {
            let known: std::collections::BTreeSet<_> = names.iter().copied().collect();
            let known: Vec<_> = known.into_iter().collect();
            match known.as_slice() {
                [] => fatal!("unknown function `{wanted}`; no function runs on this machine"),
                known => {
                    fatal!("unknown function `{wanted}`; functions are: {}", known.join(", "))
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weir_up_that_was_killed_does_not_run() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let lambda = format!("http://{}", listener.local_addr().unwrap());
        let running = Running { process: std::process::id(), lambda, ..Running::default() };
        assert!(running.is_there());
        if process_runs(std::process::id()).is_some() {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            let process = child.id();
            child.wait().unwrap();
            assert!(!Running { process, ..running.clone() }.is_there());
        }
        drop(listener);
        assert!(!running.is_there(), "another process has its process ID");
    }

    #[test]
    fn parameters_are_of_one_template_on_one_store() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other] = ["own.yaml", "other.yaml"].map(|name| folder.path().join(name));
        for path in [&own, &other] {
            std::fs::write(path, "").unwrap();
        }
        let parameters = BTreeMap::from([("SlotCount".to_owned(), "8".to_owned())]);
        let running = Running {
            dynamodb: "http://127.0.0.1:8000".to_owned(),
            template: std::fs::canonicalize(&own).unwrap(),
            parameters: parameters.clone(),
            ..Running::default()
        };
        assert_eq!(running.parameters_for(&own, None), parameters);
        assert_eq!(running.parameters_for(&own, Some("http://127.0.0.1:8000/")), parameters);
        assert!(running.parameters_for(&own, Some("http://127.0.0.1:9")).is_empty());
        assert!(running.parameters_for(&other, None).is_empty());
        let on_aws = Running { dynamodb: String::new(), aws: AWS.to_owned(), ..running };
        assert_eq!(on_aws.parameters_for(&own, Some(AWS)), parameters);
        let earlier = Running { aws: String::new(), ..on_aws };
        assert_eq!(earlier.parameters_for(&own, Some(AWS)), parameters);
        assert!(earlier.parameters_for(&own, Some("http://127.0.0.1:8000")).is_empty());
    }

    const AWS: &str = "https://dynamodb.eu-west-1.amazonaws.com";

    #[test]
    fn a_store_is_known_by_its_address_and_one_on_aws_by_its_region() {
        let here = "http://127.0.0.1:8000";
        for (dynamodb, aws, url, expected) in [
            (here, "", "http://localhost:8000/", true),
            (here, "", "http://127.0.0.1:8001", false),
            (here, "", AWS, false),
            ("", AWS, AWS, true),
            ("", AWS, "https://dynamodb.eu-west-1.api.aws/", true),
            ("", AWS, "https://dynamodb.eu-west-2.amazonaws.com", false),
            ("", AWS, here, false),
            // A store in place of AWS.
            ("", here, here, true),
            ("", here, AWS, false),
            ("", "", AWS, false),
        ] {
            let (dynamodb, aws) = (dynamodb.to_owned(), aws.to_owned());
            let running = Running { dynamodb, aws, ..Running::default() };
            assert_eq!(running.is_at(url), expected, "{:?} {url}", running.store());
        }
    }

    #[test]
    fn a_function_that_does_not_run_here_has_a_reason() {
        let pair = |id: &str, what: &str| BTreeMap::from([(id.to_owned(), what.to_owned())]);
        let running = Running {
            functions: pair("OneFunction", "one"),
            not_run: pair("HelloFunction", "only Rust"),
            ..Running::default()
        };
        assert_eq!(running.function("one"), Ok("one"));
        let refused = running.function("hello").unwrap_err().to_string();
        assert_eq!(refused, "function `HelloFunction` does not run on this machine: only Rust");
        let unknown = running.function("two").unwrap_err().to_string();
        assert_eq!(unknown, "unknown function `two`; functions are: OneFunction, one");
        let none = Running::default().function("two").unwrap_err().to_string();
        assert!(none.ends_with("no function runs on this machine"), "{none}");
    }
}
