//! Builds the functions' binaries with cargo, or finds them in the folder of `weir`.
//!
//! A package of Weir's own workspace is built with the profile of the running `weir`, into its
//! target folder. Shared dependencies are therefore compiled only once. Any other package is built
//! in its own target folder, as `cargo build` in that package does. Its binary therefore cannot
//! replace a program of Weir or of another project, and `weir up` notices a rebuild by the user. An
//! installed `weir` without a package's sources uses the binary in its own folder.

mod metadata;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    env, fs, io,
    path::{Path, PathBuf},
    process::Stdio,
};

use metadata::{Target, Workspace};
use serde::Deserialize;
pub use template::Wanted;
use template::binary::{Missing, found_beside};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::Command,
};
use xxhash_rust::xxh3::xxh3_128;

/// The maximum number of lines of cargo's output that an error contains.
const TAIL_LINES: usize = 40;

/// The reason why a binary is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are neither sources nor a binary.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// cargo could not be started.
    #[error(
        "cannot run `{cargo}`: {source}; install Rust (https://rustup.rs) or set CARGO to its path"
    )]
    NoCargo {
        /// The program that could not be started.
        cargo: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// cargo ran and failed.
    #[error("building package=`{manifest}` failed:\n{output}")]
    Failed {
        /// The manifest of the package.
        manifest: PathBuf,
        /// The last lines of cargo's output.
        output: String,
    },
    /// cargo succeeded but did not produce a binary with this name.
    #[error("package=`{manifest}` was built, but it has no binary=`{binary}`")]
    NotMade {
        /// The manifest of the package.
        manifest: PathBuf,
        /// The name of the binary.
        binary: String,
    },
    /// Several members of a workspace have this binary, and `CodeUri` names no member.
    #[error(
        "several packages of workspace=`{manifest}` have a binary=`{binary}`: {}; set CodeUri to the folder of one of these packages", makers.join(", ")
    )]
    Ambiguous {
        /// The manifest of the workspace.
        manifest: PathBuf,
        /// The name of the binary.
        binary: String,
        /// The manifests of the packages with this binary.
        makers: Vec<String>,
    },
    /// Another package may build a binary of the same name into the same folder, and the binary could not be
    /// copied elsewhere.
    #[error(
        "another package may replace file=`{binary}` with its own binary of the same name, and weir cannot copy the file elsewhere: {source}; free disk space for the copy, or rename the binary in Cargo.toml and in BuildProperties.Binary"
    )]
    NotSetApart {
        /// The file.
        binary: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    /// Returns the error as text. The text contains cargo's output only if the user has not seen it yet.
    #[must_use]
    pub fn text(&self, has_seen_output: bool) -> String {
        match self {
            Self::Failed { manifest, .. } if has_seen_output => {
                format!(
                    "building package=`{}` failed; the output of cargo above has the reason",
                    manifest.display()
                )
            }
            other => other.to_string(),
        }
    }
}

/// The target folder and the profile of the running program, if cargo built it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    target_folder: PathBuf,
    profile: String,
}

/// The running `weir`.
struct Program {
    path: PathBuf,
    /// The root of the workspace from which the running `weir` was built.
    checkout: PathBuf,
}

impl Program {
    fn running() -> Self {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self {
            path: env::current_exe().unwrap_or_default(),
            checkout: crate_folder.ancestors().nth(2).unwrap_or(crate_folder).to_owned(),
        }
    }
}

/// Returns cargo's arguments for the target folder and the profile; none for the workspace's own target
/// folder.
fn place_flags(workspace: &Workspace, program: &Program) -> Vec<PathBuf> {
    let in_folder = |folder: PathBuf| vec!["--target-dir".into(), folder];
    match origin(&program.path) {
        Some(origin) if is_same(&workspace.root, &program.checkout) => {
            let profile = ["--profile".into(), origin.profile.into()];
            profile.into_iter().chain(in_folder(origin.target_folder)).collect()
        }
        // Other projects may use the same target folder. cargo treats packages of equal name and version as
        // the same package. A package named `archive` would therefore replace Weir's program.
        _ if workspace.shares_target_folder() => {
            in_folder(workspace.target_folder.join(folder_name(&workspace.root)))
        }
        _ => Vec::new(),
    }
}

/// Returns the name of a folder that only this package or workspace uses.
fn folder_name(of: &Path) -> String {
    let hash = xxh3_128(of.as_os_str().as_encoded_bytes());
    format!("weir-{hash:032x}")
}

/// Returns whether two paths refer to the same file. Compares the paths as text if one does not exist.
fn is_same(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    resolved(one) == resolved(other)
}

/// Builds or finds all binaries, and returns the path of each. Calls `progress` for each line that cargo
/// prints.
///
/// # Errors
///
/// A binary can be neither built nor found.
pub async fn build(
    wanted: &[Wanted],
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<BTreeMap<Wanted, PathBuf>, Error> {
    build_for(&Program::running(), wanted, progress).await
}

async fn build_for(
    program: &Program,
    wanted: &[Wanted],
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<BTreeMap<Wanted, PathBuf>, Error> {
    let mut packages: BTreeMap<&Path, BTreeSet<&str>> = BTreeMap::new();
    for Wanted { package_folder, binary } in wanted {
        packages.entry(package_folder).or_default().insert(binary);
    }
    let mut found = BTreeMap::new();
    for (folder, names) in packages {
        for (binary, path) in package(program, folder, &names, progress).await? {
            found.insert(Wanted { package_folder: folder.to_owned(), binary }, path);
        }
    }
    Ok(found)
}

/// Builds or finds the binaries of one package.
async fn package(
    program: &Program,
    folder: &Path,
    names: &BTreeSet<&str>,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<BTreeMap<String, PathBuf>, Error> {
    let manifest = folder.join("Cargo.toml");
    if !manifest.is_file() {
        let path_of =
            |name: &&str| Ok(((*name).to_owned(), found_beside(&program.path, folder, name)?));
        return names.iter().map(path_of).collect();
    }
    // cargo reads its configuration from its working folder. In another folder the configuration could
    // differ, and everything would be compiled again.
    let manifest = std::path::absolute(&manifest).unwrap_or(manifest);
    let workspace = Workspace::of(&manifest, progress).await?;
    let flags = place_flags(&workspace, program);
    let mut builds = [Build::of_workspace(), Build::alone()];
    for name in names {
        let maker = maker(&workspace, &manifest, name)?;
        let [together, alone] = &mut builds;
        let build = if maker.is_alone { alone } else { together };
        build.makers.insert((*name).to_owned(), maker.manifest);
    }
    let mut found = BTreeMap::new();
    for build in builds.iter().filter(|build| !build.makers.is_empty()) {
        for (name, made) in compile(&manifest, build, &flags, progress).await? {
            let path = if build.is_of_workspace { made } else { set_apart(&made, folder)? };
            found.insert(name, path);
        }
    }
    Ok(found)
}

/// One run of cargo.
struct Build {
    /// Whether to build all members of the workspace. Dependencies then have the features of the whole
    /// workspace, so most of them need not be compiled a second time. False if another member has a
    /// binary of the same name.
    is_of_workspace: bool,
    /// The manifest of the package that builds each binary, by the binary's name.
    makers: BTreeMap<String, PathBuf>,
}

impl Build {
    fn of_workspace() -> Self {
        Self { is_of_workspace: true, makers: BTreeMap::new() }
    }

    fn alone() -> Self {
        Self { is_of_workspace: false, makers: BTreeMap::new() }
    }
}

/// The package that builds a binary.
struct Maker {
    manifest: PathBuf,
    /// Whether the package must be built separately, because another member of its workspace has a
    /// binary of the same name.
    is_alone: bool,
}

fn maker(workspace: &Workspace, manifest: &Path, name: &str) -> Result<Maker, Error> {
    let makers = workspace.makers(name);
    let is_alone = makers.len() > 1;
    let own = makers.iter().find(|maker| is_same(maker, manifest));
    match own.or(makers.first().filter(|_| !is_alone)) {
        Some(maker) => Ok(Maker { manifest: (*maker).to_owned(), is_alone }),
        None if is_alone => Err(Error::Ambiguous {
            manifest: manifest.to_owned(),
            binary: name.to_owned(),
            makers: makers.iter().map(|maker| format!("`{}`", maker.display())).collect(),
        }),
        None => Err(Error::NotMade { manifest: manifest.to_owned(), binary: name.to_owned() }),
    }
}

/// Links or copies a binary to its own path, because cargo writes all binaries of the same name to one
/// path.
fn set_apart(made: &Path, package_folder: &Path) -> Result<PathBuf, Error> {
    let failed = |source| Error::NotSetApart { binary: made.to_owned(), source };
    let package = std::path::absolute(package_folder).map_err(failed)?;
    let folder = made.with_file_name(folder_name(&package));
    fs::create_dir_all(&folder).map_err(failed)?;
    let apart = folder.join(made.file_name().unwrap_or_default());
    match fs::remove_file(&apart) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // Copies the file if the file system does not support hard links.
    fs::hard_link(made, &apart).or_else(|_| fs::copy(made, &apart).map(drop)).map_err(failed)?;
    Ok(apart)
}

/// Returns the target folder and the profile with which `program` was built.
fn origin(program: &Path) -> Option<Origin> {
    let mut folder = program.parent()?;
    // cargo puts test programs and examples one folder deeper.
    if folder.ends_with("deps") || folder.ends_with("examples") {
        folder = folder.parent()?;
    }
    // Only cargo creates this folder next to its output.
    if !folder.join(".fingerprint").is_dir() {
        return None;
    }
    let profile = match folder.file_name()?.to_str()? {
        "debug" => "dev",
        name => name,
    };
    Some(Origin { target_folder: folder.parent()?.to_owned(), profile: profile.to_owned() })
}

/// Returns the path of cargo. Under `cargo run` the variable names the running cargo.
fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

fn arguments(manifest: &Path, build: &Build, flags: &[PathBuf]) -> Vec<PathBuf> {
    let mut arguments: Vec<PathBuf> =
        vec!["build".into(), "--message-format=json-render-diagnostics".into()];
    if build.is_of_workspace {
        arguments.push("--workspace".into());
    }
    arguments.extend(["--manifest-path".into(), manifest.to_owned()]);
    for name in build.makers.keys() {
        arguments.extend(["--bin".into(), name.into()]);
    }
    arguments.extend_from_slice(flags);
    arguments
}

async fn compile(
    manifest: &Path,
    build: &Build,
    flags: &[PathBuf],
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<BTreeMap<String, PathBuf>, Error> {
    let cargo = cargo();
    let no_cargo = |source| Error::NoCargo { cargo: cargo.clone(), source };
    let folder = manifest.parent().unwrap_or(Path::new("."));
    let mut command = Command::new(&cargo);
    command
        .args(arguments(manifest, build, flags))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // A deployment needs binaries that all users can read, so cargo runs with the user's own file mode.
    let mut child = platform::private_files::start_of_user(|| command.spawn()).map_err(no_cargo)?;
    let mut made = BTreeMap::new();
    let mut tail = VecDeque::new();
    let messages = each_line(child.stdout.take(), |line| {
        if let Some(artifact) = Artifact::of(line)
            && build.makers.get(&artifact.name).is_some_and(|it| is_same(it, &artifact.manifest))
        {
            made.insert(artifact.name, artifact.executable);
        }
    });
    let output = each_line(child.stderr.take(), |line| {
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(line.to_owned());
        progress(line);
    });
    tokio::join!(messages, output);
    let status = child.wait().await.map_err(no_cargo)?;
    let manifest = manifest.to_owned();
    if !status.success() {
        let output = tail.make_contiguous().join("\n");
        return Err(Error::Failed { manifest, output });
    }
    let path_of = |name: &String| match made.get(name) {
        Some(path) => Ok((name.clone(), path.clone())),
        None => Err(Error::NotMade { manifest: manifest.clone(), binary: name.clone() }),
    };
    build.makers.keys().map(path_of).collect()
}

async fn each_line(stream: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(&str)) {
    let Some(stream) = stream else { return };
    let mut lines = BufReader::new(stream).lines();
    // cargo writes UTF-8. An invalid line or a broken pipe ends the loop.
    while let Ok(Some(line)) = lines.next_line().await {
        take(&line);
    }
}

/// A binary that cargo has built or found up to date.
struct Artifact {
    name: String,
    /// The manifest of the binary's package.
    manifest: PathBuf,
    executable: PathBuf,
}

impl Artifact {
    /// Returns the binary that a message of cargo reports.
    fn of(line: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Message {
            reason: String,
            manifest_path: PathBuf,
            target: Target,
            executable: Option<PathBuf>,
        }
        let message: Message = serde_json::from_str(line).ok()?;
        let is_binary = message.reason == "compiler-artifact" && message.target.is_binary();
        let executable = message.executable.filter(|_| is_binary)?;
        Some(Self { name: message.target.name, manifest: message.manifest_path, executable })
    }
}

#[cfg(test)]
mod tests;
