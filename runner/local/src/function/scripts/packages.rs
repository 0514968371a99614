//! Installs the packages on which handlers depend: the packages in `requirements.txt` or `package.json`,
//! and the packages of Lambda's own runtimes. Each set has its own folder below the data folder.
//!
//! The name of a folder depends on the packages and the interpreter. This module changes no file of the
//! user.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use template::Language;
use tokio::process::Command;
use xxhash_rust::xxh3::Xxh3;

use super::{Error, Handler, write};

/// The maximum time of pip or npm. It is long, because some packages are compiled.
const INSTALL_MAX: Duration = Duration::from_secs(600);

/// The number of lines of pip's or npm's output that are shown after a failure.
const TAIL_LINES: usize = 20;

const REQUIREMENTS: &str = "requirements.txt";
const PACKAGE: &str = "package.json";

/// The other files of a Node project that affect an installation.
const BESIDE_PACKAGE: &[&str] = &["package-lock.json", "npm-shrinkwrap.json", ".npmrc"];

/// The folders of installed packages.
#[derive(Debug)]
pub(super) struct Packages {
    folder: PathBuf,
}

/// Returns the file that lists the dependencies of the code in a folder; `None` if there is no such
/// file. In a layer the file may also be below `python` or `nodejs`.
pub(super) fn manifest(language: Language, code: &Path, is_layer: bool) -> Option<PathBuf> {
    let base = if is_layer { base_of_layer(language, code) } else { code.to_owned() };
    let folders = if base == code { vec![base] } else { vec![code.to_owned(), base] };
    folders.iter().find_map(|folder| match language {
        // A layer that already contains packages installed by pip needs no installation.
        Language::Python if is_layer && has_installed(folder) => None,
        Language::Python => {
            let path = folder.join(REQUIREMENTS);
            let text = fs::read_to_string(&path).ok()?;
            let lists = |line: &str| !line.trim().is_empty() && !line.trim().starts_with('#');
            text.lines().any(lists).then_some(path)
        }
        Language::Node => {
            let path = folder.join(PACKAGE);
            (!dependencies(&path)?.is_empty()).then_some(path)
        }
    })
}

fn has_installed(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| entry.path().extension().is_some_and(|ending| ending == "dist-info"))
}

/// Returns the folder of a layer that contains its modules: its folder `python` or `nodejs` if that
/// exists, otherwise the layer itself, from which SAM would build the modules.
pub(super) fn base_of_layer(language: Language, layer: &Path) -> PathBuf {
    let base = layer.join(match language {
        Language::Python => "python",
        Language::Node => "nodejs",
    });
    if base.is_dir() { base } else { layer.to_owned() }
}

/// Returns whether `sam build` built a folder from the current content of the package list
/// `manifest`.
pub(super) fn is_of(build: &Path, manifest: &Path) -> bool {
    let Some(name) = manifest.file_name() else { return false };
    let has_packages = name == REQUIREMENTS || build.join("node_modules").is_dir();
    let (own, built) = (fs::read(manifest).ok(), fs::read(build.join(name)).ok());
    has_packages && own.is_some() && own == built
}

/// Returns whether Node finds every package of a `package.json` in a `node_modules`.
pub(super) fn are_installed(manifest: &Path) -> bool {
    let names = dependencies(manifest).unwrap_or_default();
    names.iter().all(|name| is_in_node_modules(manifest.parent().unwrap_or(manifest), name))
}

/// Returns whether Node finds a package, starting from a folder.
pub(super) fn is_in_node_modules(folder: &Path, name: &str) -> bool {
    folder.ancestors().any(|above| above.join("node_modules").join(name).is_dir())
}

/// Returns the names of the packages that a `package.json` needs at run time; `None` if the file cannot be
/// read.
fn dependencies(path: &Path) -> Option<Vec<String>> {
    let package: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let listed = package.get("dependencies").and_then(Value::as_object);
    Some(listed.map(|it| it.keys().cloned().collect()).unwrap_or_default())
}

/// Returns the state of the paths in a list: a file's content, or the time of a folder's newest change. This
/// state is part of the installation's key, so that an edit causes a new installation.
fn state_of_paths(text: &str, folder: &Path) -> Vec<Vec<u8>> {
    let words = text.split(|it: char| it.is_whitespace() || "\"'=,:".contains(it));
    let paths = words.filter(|word| word.contains(['/', '.'])).map(|word| folder.join(word));
    let state = |path: PathBuf| match path.is_dir() {
        true => Some(format!("{:?}", template::sources::newest(&path)).into_bytes()),
        false => fs::read(path).ok(),
    };
    paths.filter_map(state).collect()
}

impl Packages {
    pub(super) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the folder with the packages of a list. Installs them if necessary.
    pub(super) async fn of_manifest(
        &self,
        handler: &Handler<'_>,
        manifest: &Path,
    ) -> Result<PathBuf, Error> {
        let folder = manifest.parent().unwrap_or(manifest);
        let read = |name: &&str| fs::read(folder.join(name)).unwrap_or_default();
        let (names, local): (Vec<&str>, &[&str]) = match handler.script.language {
            Language::Python => (vec![REQUIREMENTS], &["file:", "./", "-r", "-e", "-c"]),
            Language::Node => {
                let names = std::iter::once(PACKAGE).chain(BESIDE_PACKAGE.iter().copied());
                (names.collect(), &["file:"])
            }
        };
        let mut parts: Vec<Vec<u8>> = names.iter().map(read).collect();
        // A list with relative paths has a different meaning in each folder, so the folder is part of
        // the key.
        let text = fs::read_to_string(manifest).unwrap_or_default();
        if local.iter().any(|mark| text.contains(mark)) {
            parts.push(folder.as_os_str().as_encoded_bytes().to_vec());
            parts.extend(state_of_paths(&text, folder));
            parts.extend(state_of_paths(&text, &handler.places.of_template("")));
        }
        let install = Install { handler, manifest, names: &BTreeSet::new() };
        self.installed(&install, &parts).await
    }

    /// Returns the folder with packages of Lambda's own runtime.
    pub(super) async fn of_runtime(
        &self,
        handler: &Handler<'_>,
        names: &BTreeSet<String>,
    ) -> Result<PathBuf, Error> {
        let parts: Vec<Vec<u8>> = names.iter().map(|name| name.clone().into_bytes()).collect();
        let runtime = PathBuf::from(handler.script.runtime());
        let install = Install { handler, manifest: &runtime, names };
        self.installed(&install, &parts).await
    }

    /// Removes the folders that no function uses. Ignores failures, because an unused folder only
    /// takes disk space.
    pub(super) fn keep_only(&self, used: &BTreeSet<PathBuf>) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if !used.iter().any(|used| used.starts_with(&path)) {
                let _removed = fs::remove_dir_all(&path);
            }
        }
    }

    async fn installed(&self, install: &Install<'_>, parts: &[Vec<u8>]) -> Result<PathBuf, Error> {
        let interpreter = &install.handler.interpreter;
        let mut hash = Xxh3::new();
        for part in
            [interpreter.path.as_os_str().as_encoded_bytes(), interpreter.version.as_bytes()]
        {
            hash.update(part);
            hash.update(&[0]);
        }
        for part in parts {
            hash.update(&part.len().to_le_bytes());
            hash.update(part);
        }
        let name = format!("{:032x}", hash.digest128());
        let folder = self.folder.join(&name);
        if folder.is_dir() {
            return Ok(folder);
        }
        // A folder gets its final name only when the installation is complete.
        let partial = self.folder.join(format!("{name}.partial"));
        let failed = |source| Error::Write { path: partial.clone(), source };
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(failed)?;
        }
        platform::private_files::create_directory(&partial).map_err(failed)?;
        install.run(&partial).await?;
        fs::rename(&partial, &folder).map_err(failed)?;
        Ok(folder)
    }
}

/// One run of pip or npm.
struct Install<'a> {
    handler: &'a Handler<'a>,
    /// The file that lists the packages; for packages of the runtime, the runtime's name.
    manifest: &'a Path,
    /// The packages of the runtime; empty if a file lists the packages.
    names: &'a BTreeSet<String>,
}

impl Install<'_> {
    async fn run(&self, target: &Path) -> Result<(), Error> {
        let mut command = match self.handler.script.language {
            Language::Python => self.pip(target),
            Language::Node => self.npm(target)?,
        };
        let words =
            std::iter::once(command.as_std().get_program()).chain(command.as_std().get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let failed = |reason: String| Error::Install {
            function: self.handler.function.logical_id.clone(),
            manifest: self.manifest.to_owned(),
            reason,
            command: words.join(" "),
        };
        let function = &self.handler.function.logical_id;
        let (names, runtime) = (Vec::from_iter(self.names.clone()), self.handler.script.runtime());
        match names.as_slice() {
            [] => tracing::info!(
                "function   {function}: installing the packages that {} lists (once)",
                self.manifest.display()
            ),
            names => tracing::info!(
                "function   {function}: installing {} (once), included in Lambda's {runtime} but missing on this machine",
                names.join(", ")
            ),
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = match tokio::time::timeout(INSTALL_MAX, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(failed(format!("cannot start the installer: {error}"))),
            Err(_) => {
                return Err(failed(format!(
                    "the installer did not finish within {} s",
                    INSTALL_MAX.as_secs()
                )));
            }
        };
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default();
        Err(failed(format!("{}\n  {}", output.status, tail.join("\n  "))))
    }

    fn pip(&self, target: &Path) -> Command {
        let mut command = Command::new(&self.handler.interpreter.path);
        command.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ]);
        command.arg("--target").arg(target);
        if self.names.is_empty() {
            command.arg("-r").arg(self.manifest);
            command.current_dir(self.folder_of_paths());
        }
        command.args(self.names);
        command
    }

    /// Returns the base folder of the paths in `requirements.txt`. This is the template's folder, as for `sam
    /// build`, if all paths exist there, otherwise the folder of `requirements.txt`.
    fn folder_of_paths(&self) -> PathBuf {
        let template = self.handler.places.of_template("");
        let text = fs::read_to_string(self.manifest).unwrap_or_default();
        let paths: Vec<&str> =
            text.lines().map(str::trim).filter(|line| line.starts_with('.')).collect();
        match !paths.is_empty() && paths.iter().all(|path| template.join(path).exists()) {
            true => template,
            false => self.manifest.parent().unwrap_or(Path::new(".")).to_owned(),
        }
    }

    fn npm(&self, target: &Path) -> Result<Command, Error> {
        let package = match self.names.is_empty() {
            true => self.package_of_manifest(target)?,
            false => {
                let names = self.names.iter().map(|name| (name.clone(), json!("*")));
                json!({ "private": true, "dependencies": names.collect::<serde_json::Map<_, _>>() })
            }
        };
        write(target, PACKAGE, &package.to_string())?;
        // Prefers the npm in the folder of this Node.
        let beside = self.handler.interpreter.path.with_file_name("npm");
        let program = if beside.is_file() { beside } else { PathBuf::from("npm") };
        let mut command = Command::new(program);
        command.args(["install", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error"]);
        command.arg("--install-links").arg("--prefix").arg(target).current_dir(target);
        Ok(command)
    }

    /// Returns the project's `package.json` with only the runtime dependencies. Omits the scripts,
    /// because they would run without the project's sources.
    fn package_of_manifest(&self, target: &Path) -> Result<Value, Error> {
        let folder = self.manifest.parent().unwrap_or(Path::new("."));
        let failed = |source| Error::Write { path: self.manifest.to_owned(), source };
        let text = fs::read(self.manifest).map_err(failed)?;
        let package: Value = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        let mut kept = serde_json::Map::from_iter([("private".to_owned(), json!(true))]);
        let mut has_folders = package.get("workspaces").is_some();
        for section in ["dependencies", "optionalDependencies", "overrides"] {
            let Some(mut listed) = package.get(section).cloned() else { continue };
            for version in listed.as_object_mut().into_iter().flat_map(|it| it.values_mut()) {
                if let Some(path) = version.as_str().and_then(|text| text.strip_prefix("file:")) {
                    has_folders = true;
                    *version = json!(format!("file:{}", folder.join(path).display()));
                }
            }
            kept.insert(section.to_owned(), listed);
        }
        // The lock file of a project with packages in local folders contains relative paths, so it is
        // not copied.
        for name in BESIDE_PACKAGE.iter().filter(|name| !has_folders || **name == ".npmrc") {
            let path = folder.join(name);
            if path.is_file() {
                let to = target.join(name);
                fs::copy(&path, &to).map_err(|source| Error::Write { path: to, source })?;
            }
        }
        Ok(Value::Object(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_behind_a_list_is_a_change_of_the_list() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("part")).unwrap();
        fs::write(folder.path().join("more.txt"), "six\n").unwrap();
        let texts = ["-r more.txt\n./part\n", r#"{"a":"file:./part","b":"file:more.txt"}"#];
        let states = || texts.map(|text| state_of_paths(text, folder.path()));
        let before = states();
        assert!(before.iter().all(|state| state.len() == 2), "{before:?}");
        fs::write(folder.path().join("more.txt"), "six==1.17\n").unwrap();
        let list = states();
        assert!(before.iter().zip(&list).all(|(before, after)| before != after));
        fs::write(folder.path().join("part/own.py"), "value = 7\n").unwrap();
        assert!(list.iter().zip(states()).all(|(before, after)| *before != after));
    }
}
