//! What `cargo metadata` says of the workspace of a package: where it builds, and which packages
//! have which binaries.
//!
//! It resolves no dependencies, so it needs neither the network nor a lock file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde::Deserialize;
use tokio::process::Command;

use super::{Error, cargo};

/// The workspace of a package; a package without one is its own workspace.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(super) root: PathBuf,
    /// Where cargo builds it, by `CARGO_TARGET_DIR` and cargo's configuration.
    #[serde(rename = "target_directory")]
    pub(super) target_folder: PathBuf,
    packages: Vec<Package>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Package {
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

/// A target of a package, in the metadata as in the messages of a build.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: String,
    kind: Vec<String>,
}

impl Target {
    pub(super) fn is_binary(&self) -> bool {
        self.kind.iter().any(|kind| kind == "bin")
    }
}

impl Workspace {
    /// Asks cargo in the folder of the package, as its configuration depends on the folder.
    ///
    /// # Errors
    /// When cargo cannot be run, or refuses the manifest.
    pub(super) async fn of(
        manifest: &Path,
        progress: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Self, Error> {
        let cargo = cargo();
        let no_cargo = |source| Error::NoCargo { cargo: cargo.clone(), source };
        let output = Command::new(&cargo)
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(manifest)
            .current_dir(manifest.parent().unwrap_or(Path::new(".")))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(no_cargo)?;
        let failed = |output: String| Error::Failed { manifest: manifest.to_owned(), output };
        let Output { status, stdout, stderr } = output;
        if !status.success() {
            let told = String::from_utf8_lossy(&stderr).trim_end().to_owned();
            told.lines().for_each(progress);
            return Err(failed(told));
        }
        serde_json::from_slice(&stdout)
            .map_err(|error| failed(format!("`cargo metadata` gave no metadata: {error}")))
    }

    /// The manifests of the packages that have a binary of this name.
    pub(super) fn makers(&self, binary: &str) -> BTreeSet<&Path> {
        let has = |package: &&Package| {
            package.targets.iter().any(|target| target.is_binary() && target.name == binary)
        };
        self.packages.iter().filter(has).map(|package| package.manifest_path.as_path()).collect()
    }

    /// Whether packages outside this workspace may build into its target folder.
    pub(super) fn shares_target_folder(&self) -> bool {
        !self.target_folder.starts_with(&self.root)
    }
}
