//! The workspace of a package according to `cargo metadata`: its target folder, and the packages with their
//! binaries.
//!
//! The command resolves no dependencies, so it needs neither the network nor a lock file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde::Deserialize;
use tokio::process::Command;

use super::{Error, cargo};

/// The workspace of a package. A package without a workspace is its own workspace.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(super) root: PathBuf,
    /// The folder into which cargo builds, according to `CARGO_TARGET_DIR` and cargo's configuration.
    #[serde(rename = "target_directory")]
    pub(super) target_folder: PathBuf,
    packages: Vec<Package>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Package {
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

/// A target of a package. Metadata and build messages describe it in the same form.
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
    /// Runs cargo in the folder of the package, because cargo's configuration depends on the folder.
    ///
    /// # Errors
    /// cargo cannot be started, or rejects the manifest.
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
        serde_json::from_slice(&stdout).map_err(|error| {
            failed(format!("cannot parse the output of `cargo metadata`: {error}"))
        })
    }

    /// Returns the manifests of the packages that have a binary of this name.
    pub(super) fn makers(&self, binary: &str) -> BTreeSet<&Path> {
        let has = |package: &&Package| {
            package.targets.iter().any(|target| target.is_binary() && target.name == binary)
        };
        self.packages.iter().filter(has).map(|package| package.manifest_path.as_path()).collect()
    }

    /// Returns whether packages outside this workspace may build into its target folder.
    pub(super) fn shares_target_folder(&self) -> bool {
        !self.target_folder.starts_with(&self.root)
    }
}
