//! The interpreters on this machine. Finds an interpreter for each runtime: of the runtime's version, or of a
//! different version with a warning.
//!
//! This module runs programs to query their version, but runs no handlers.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use template::{Language, Script};
use tokio::process::Command;

use super::Error;

/// The maximum time until a program prints its version. A wrapper that first downloads the interpreter
/// is not accepted.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The oldest versions with which the clients of the Runtime API work.
const OLDEST: &[(Language, &[u32])] = &[(Language::Python, &[3, 8]), (Language::Node, &[18])];

/// A program that runs handlers of a language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The path of the interpreter itself, not of a version manager's wrapper.
    pub path: PathBuf,
    /// The version of the interpreter, such as `3.13.1`.
    pub version: String,
}

impl Interpreter {
    /// Returns whether the interpreter has the version in a runtime's name, such as `3.13` or `22`.
    fn is_of(&self, version: &str) -> bool {
        self.version.strip_prefix(version).is_some_and(|rest| rest.starts_with('.'))
    }

    fn is_recent(&self, language: Language) -> bool {
        let own: Vec<u32> = self.version.split('.').map_while(|part| part.parse().ok()).collect();
        let oldest = OLDEST.iter().find(|(of, _)| *of == language);
        oldest.is_none_or(|(_, oldest)| own.as_slice() >= *oldest)
    }
}

/// The interpreters that were found, by Lambda runtime.
#[derive(Debug, Default)]
pub struct Interpreters(BTreeMap<String, Interpreter>);

impl Interpreters {
    /// Returns the interpreter of a handler. If its version differs from the runtime's, a warning names both
    /// versions.
    ///
    /// # Errors
    /// There is no interpreter.
    pub async fn of(&mut self, script: &Script, function: &str) -> Result<Interpreter, Error> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = env::split_paths(&path).collect();
        self.among(&folders, script, function).await
    }

    /// Returns the interpreter of a handler, found in one of these folders.
    pub(super) async fn among(
        &mut self,
        folders: &[PathBuf],
        script: &Script,
        function: &str,
    ) -> Result<Interpreter, Error> {
        let runtime = script.runtime();
        if let Some(found) = self.0.get(&runtime) {
            return Ok(found.clone());
        }
        let (names, language, help) = match script.language {
            Language::Python => {
                let named = format!("python{}", script.version);
                let help = "install Python 3 (https://www.python.org/downloads), or your system's package `python3`";
                (vec![named, "python3".to_owned(), "python".to_owned()], "Python", help)
            }
            Language::Node => {
                let help = "install Node 20 or later (https://nodejs.org), or your system's package `nodejs`";
                (vec!["node".to_owned(), "nodejs".to_owned()], "Node", help)
            }
        };
        let Some(found) = find(folders, &names, script).await else {
            let wanted = format!("{language} {}", script.version);
            let tried = names.join("`, `");
            return Err(Error::NoInterpreter {
                function: function.to_owned(),
                wanted,
                tried,
                help,
            });
        };
        if !found.is_of(&script.version) {
            tracing::warn!(
                "functions for {runtime} run with {language} {} (`{}`): {language} {} is not on PATH; install that version to match Lambda",
                found.version,
                found.path.display(),
                script.version
            );
        }
        self.0.insert(runtime, found.clone());
        Ok(found)
    }
}

/// Returns the first program of these names with the script's version; otherwise the first program that
/// runs.
async fn find(folders: &[PathBuf], names: &[String], script: &Script) -> Option<Interpreter> {
    let mut other = None;
    for name in names {
        let file = format!("{name}{}", env::consts::EXE_SUFFIX);
        for program in folders.iter().map(|folder| folder.join(&file)).filter(|it| it.is_file()) {
            match query(&program, script.language).await.filter(|it| it.is_recent(script.language))
            {
                Some(found) if found.is_of(&script.version) => return Some(found),
                Some(found) => other = other.or(Some(found)),
                // The program may be a version manager's wrapper for a version that is not installed.
                None => {}
            }
        }
    }
    other
}

/// Runs a program to determine its own path and its version.
async fn query(program: &Path, language: Language) -> Option<Interpreter> {
    let (flag, code) = match language {
        Language::Python => (
            "-c",
            "import sys; print(sys.executable, '%d.%d.%d' % sys.version_info[:3], sep='\\n')",
        ),
        Language::Node => ("-p", "process.execPath + '\\n' + process.versions.node"),
    };
    let mut command = Command::new(program);
    command.args([flag, code]).stdin(Stdio::null()).kill_on_drop(true);
    let answer = tokio::time::timeout(ANSWER_MAX, command.output()).await.ok()?.ok()?;
    let text = String::from_utf8(answer.stdout).ok().filter(|_| answer.status.success())?;
    let mut lines = text.lines();
    let (path, version) = (PathBuf::from(lines.next()?), lines.next()?.to_owned());
    path.is_file().then_some(Interpreter { path, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let of = |version: &str| Interpreter { path: PathBuf::new(), version: version.to_owned() };
        for (version, wanted, expected) in
            [("3.13.1", "3.13", true), ("3.1.13", "3.13", false), ("3.130.1", "3.13", false)]
        {
            assert_eq!(of(version).is_of(wanted), expected, "{version}");
        }
        assert!(of("22.1.0").is_of("22") && !of("2.2.0").is_of("22"));
        for (version, language, expected) in [
            ("3.10.0", Language::Python, true),
            ("3.8.0", Language::Python, true),
            ("3.7.17", Language::Python, false),
            ("2.7.18", Language::Python, false),
            ("18.0.0", Language::Node, true),
            ("9.11.2", Language::Node, false),
        ] {
            assert_eq!(of(version).is_recent(language), expected, "{version}");
        }
    }
}
