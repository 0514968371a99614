//! Prepares handlers in Python and Node: their interpreter, their packages and layers, and the client of
//! the Runtime API, which is written below the data folder.
//!
//! `interpreters` finds the interpreters, `packages` installs dependencies, and `sdk` finds the packages of
//! Lambda's own runtimes. `instance` starts the handlers.

mod interpreters;
mod packages;
mod sdk;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

pub use interpreters::{Interpreter, Interpreters};
use packages::Packages;
use template::{Code, Language, Layer, Script, Stack};

use super::Launch;

/// The reason why a handler cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no interpreter for the handler's language.
    #[error("function=`{function}` needs {wanted}, and `{tried}` is not on PATH: {help}")]
    NoInterpreter {
        /// The function.
        function: String,
        /// The interpreter that the runtime requires.
        wanted: String,
        /// The programs that were searched on `PATH`.
        tried: String,
        /// The advice about what to install.
        help: &'static str,
    },
    /// The handler's dependencies could not be installed.
    #[error(
        "function=`{function}`: installing the packages of `{manifest}` failed: {reason}\nrun `{command}` to retry, or run `sam build` first: `weir up` then uses the packages of that build"
    )]
    Install {
        /// The function.
        function: String,
        /// The file that lists the packages.
        manifest: PathBuf,
        /// The last lines of the installer's output, or the reason why the installer did not start.
        reason: String,
        /// The command line of the installer.
        command: String,
    },
    /// A file below the data folder could not be written.
    #[error("cannot write `{path}`: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The folders that this module uses.
#[derive(Debug)]
pub struct Folders<'a> {
    /// The base folder of relative paths in the template.
    pub template: &'a Path,
    /// The data folder of `weir up`.
    pub data: &'a Path,
}

impl Folders<'_> {
    fn of_template(&self, folder: &str) -> PathBuf {
        let folder = self.template.join(folder);
        // A handler starts in its own folder, so the path must be absolute.
        std::path::absolute(&folder).unwrap_or(folder)
    }

    fn of_data(&self, folder: &str) -> PathBuf {
        let folder = self.data.join(folder);
        std::path::absolute(&folder).unwrap_or(folder)
    }
}

/// Finds or installs everything that the handlers in Python or Node need. Returns the launch
/// settings of each handler, by logical id.
///
/// # Errors
/// An interpreter is missing, or a package cannot be installed.
pub async fn prepare(
    stack: &Stack,
    places: &Folders<'_>,
) -> Result<BTreeMap<String, Launch>, Error> {
    let (mut interpreters, mut launches) = (Interpreters::default(), BTreeMap::new());
    let packages = Packages::in_folder(places.of_data("packages"));
    let mut used = BTreeSet::new();
    for function in &stack.functions {
        let Code::Script(script) = &function.code else { continue };
        let interpreter = interpreters.of(script, &function.logical_id).await?;
        let handler = Handler { function, script, interpreter, places, packages: &packages };
        let (launch, installed) = handler.launch().await?;
        used.extend(installed);
        launches.insert(function.logical_id.clone(), launch);
    }
    packages.keep_only(&used);
    Ok(launches)
}

/// One handler, and the data from which its launch settings are computed.
struct Handler<'a> {
    function: &'a template::Function,
    script: &'a Script,
    interpreter: Interpreter,
    places: &'a Folders<'a>,
    packages: &'a Packages,
}

impl Handler<'_> {
    /// Returns how to start the handler, and the folders of packages that it uses.
    async fn launch(&self) -> Result<(Launch, Vec<PathBuf>), Error> {
        let task_root = self.task_root()?;
        let layers: Vec<PathBuf> =
            self.script.layers.iter().filter_map(|it| self.layer(it)).collect();
        let (mut folders, mut installed) = (Vec::new(), Vec::new());
        for code in std::iter::once(&task_root).chain(&layers) {
            let is_layer = code != &task_root;
            if let Some(found) = self.packages_of(code, is_layer).await? {
                installed.push(found.clone());
                folders.push(found);
            }
            folders.extend(is_layer.then(|| self.module_folders(code)).into_iter().flatten());
        }
        let missing = sdk::missing(self, &task_root, &layers, &folders).await;
        if !missing.is_empty() {
            let found = self.packages.of_runtime(self, &missing).await?;
            let found = self.importable(found);
            installed.push(found.clone());
            folders.push(found);
        }
        let sources = std::iter::once(task_root.clone()).chain(layers.iter().cloned()).collect();
        let launch = Launch {
            program: self.interpreter.path.clone(),
            arguments: self.arguments(&layers)?,
            variables: self.variables(&folders),
            task_root,
            sources,
        };
        Ok((launch, installed))
    }

    /// Returns the folder of the code. Inline code is written to a file first.
    fn task_root(&self) -> Result<PathBuf, Error> {
        let Some(text) = &self.script.inline else {
            return Ok(self.places.of_template(&self.function.code_uri));
        };
        let folder = self.places.of_data("inline").join(&self.function.logical_id);
        let name = match self.script.language {
            Language::Python => "index.py",
            Language::Node => "index.js",
        };
        write(&folder, name, text)?;
        Ok(folder)
    }

    fn layer(&self, layer: &Layer) -> Option<PathBuf> {
        match layer {
            Layer::Folder(folder) => Some(self.places.of_template(folder)),
            Layer::OnAws(_) => None,
        }
    }

    /// Returns the folder with the packages that a folder of code lists; `None` if it lists no packages.
    async fn packages_of(&self, code: &Path, is_layer: bool) -> Result<Option<PathBuf>, Error> {
        let Some(manifest) = packages::manifest(self.script.language, code, is_layer) else {
            return Ok(None);
        };
        // `sam build` puts the packages next to the code, so a build of SAM needs no installation.
        let is_built =
            |folder: &Path| folder.components().any(|part| part.as_os_str() == ".aws-sam");
        if is_built(code) {
            return Ok(None);
        }
        let build = self.script.build_folder.as_deref().map(|it| self.places.of_template(it));
        if let Some(build) = build.filter(|it| packages::is_of(it, &manifest)) {
            return Ok(Some(self.importable(build)));
        }
        if self.script.language == Language::Node && packages::are_installed(&manifest) {
            return Ok(None);
        }
        let folder = self.packages.of_manifest(self, &manifest).await?;
        Ok(Some(self.importable(folder)))
    }

    /// Returns the folder that the language's search path must contain, for a folder of installed packages.
    fn importable(&self, folder: PathBuf) -> PathBuf {
        match self.script.language {
            Language::Python => folder,
            Language::Node => folder.join("node_modules"),
        }
    }

    /// Returns the folders of a layer in which the language searches modules, as below `/opt` on
    /// Lambda.
    fn module_folders(&self, layer: &Path) -> Vec<PathBuf> {
        let version = &self.script.version;
        let base = packages::base_of_layer(self.script.language, layer);
        match self.script.language {
            Language::Python => {
                let packages = base.join(format!("lib/python{version}/site-packages"));
                vec![base, packages]
            }
            Language::Node => {
                vec![base.join(format!("node{version}/node_modules")), base.join("node_modules")]
            }
        }
    }

    fn arguments(&self, layers: &[PathBuf]) -> Result<Vec<String>, Error> {
        let folder = self.places.of_data("runtime");
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        match self.script.language {
            Language::Python => {
                Ok(vec![text(write(&folder, "client.py", include_str!("client.py"))?)])
            }
            Language::Node => {
                let client = write(&folder, "client.cjs", include_str!("client.cjs"))?;
                let memory = self.function.memory_mb;
                // As on Lambda, the garbage collector runs before the memory limit is reached.
                let heap = format!("--max-old-space-size={}", memory * 9 / 10);
                let young = format!("--max-semi-space-size={}", (memory / 20).max(1));
                let bases = layers.iter().map(|it| packages::base_of_layer(Language::Node, it));
                Ok([heap, young, text(client)].into_iter().chain(bases.map(text)).collect())
            }
        }
    }

    fn variables(&self, folders: &[PathBuf]) -> BTreeMap<String, String> {
        let name = match self.script.language {
            Language::Python => "PYTHONPATH",
            Language::Node => "NODE_PATH",
        };
        let own = folders.iter().map(|it| it.to_string_lossy().into_owned());
        let given = self.function.environment.get(name).cloned();
        let path = own.chain(given).collect::<Vec<_>>().join(if cfg!(windows) { ";" } else { ":" });
        let execution = format!("AWS_Lambda_{}", self.script.runtime());
        let mut variables = BTreeMap::from([("AWS_EXECUTION_ENV".to_owned(), execution)]);
        if !path.is_empty() {
            variables.insert(name.to_owned(), path);
        }
        if self.script.language == Language::Python {
            // On Lambda the folder of the code is read-only, so Python writes no bytecode there.
            variables.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
        }
        variables
    }
}

/// Writes a file that only its owner may read, unless the file already has this content.
fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(path);
    }
    let failed = |source| Error::Write { path: path.clone(), source };
    platform::private_files::create_directory(folder).map_err(failed)?;
    fs::write(&path, text).map_err(failed)?;
    Ok(path)
}
