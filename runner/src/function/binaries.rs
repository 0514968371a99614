//! Builds the functions' binaries with cargo, or finds those that lie beside `weir`.
//!
//! A binary is built with the profile and into the target folder that the running `weir` was built
//! with, so what both depend on is compiled once. An installed `weir` builds nothing: it takes the
//! binaries from its own folder.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    env, fs, io,
    path::{Path, PathBuf},
    process::Stdio,
};

use md5::{Digest as _, Md5};
use serde::Deserialize;
use server::private_files;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::Command,
};

/// The lines of cargo that are told when a build fails.
const TAIL_LINES: usize = 40;

/// A binary that a function needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The function's `CodeUri`: the folder of the package's `Cargo.toml`.
    pub package_folder: PathBuf,
    /// The name of the binary in that package.
    pub binary: String,
}

impl Wanted {
    /// Whether there is something to build it from.
    #[must_use]
    pub fn has_source(&self) -> bool {
        self.package_folder.join("Cargo.toml").is_file()
    }

    /// Why it can be neither built nor found, if that is so.
    #[must_use]
    pub fn absence(&self) -> Option<Error> {
        let program = env::current_exe().unwrap_or_default();
        match self.has_source() {
            true => None,
            false => found_beside(&program, &self.package_folder, &self.binary).err(),
        }
    }
}

/// Why a binary could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither the sources nor the binary are there.
    #[error(
        "there is no package=`{manifest}` to build binary=`{binary}` from, and no file=`{beside}`; run weir in the project's folder, correct CodeUri, or put the binary there"
    )]
    Missing {
        /// The name of the binary.
        binary: String,
        /// The `Cargo.toml` that was looked for.
        manifest: PathBuf,
        /// The file that was looked for.
        beside: PathBuf,
    },
    /// cargo could not be run.
    #[error(
        "cannot run `{cargo}`: {source}; install Rust (https://rustup.rs) or set CARGO to its path"
    )]
    NoCargo {
        /// What was run.
        cargo: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// cargo ran and failed.
    #[error("building package=`{manifest}` failed:\n{output}")]
    Failed {
        /// The package.
        manifest: PathBuf,
        /// The last lines of cargo's output.
        output: String,
    },
    /// cargo succeeded and made no such binary.
    #[error("package=`{manifest}` was built, but it has no binary=`{binary}`")]
    NotMade {
        /// The package.
        manifest: PathBuf,
        /// The name of the binary.
        binary: String,
    },
    /// Another package has a binary of the same name, and this one could not be kept beside it.
    #[error(
        "another package has a binary of the name of file=`{binary}`, and it cannot be set apart: {source}; give one of them another name in its Cargo.toml and as BuildProperties.Binary"
    )]
    NotSetApart {
        /// The file.
        binary: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    /// In words, for somebody who has or has not seen each line of cargo's.
    #[must_use]
    pub fn text(&self, has_seen_output: bool) -> String {
        match self {
            Self::Failed { manifest, .. } if has_seen_output => {
                format!("building package=`{}` failed; cargo says why above", manifest.display())
            }
            other => other.to_string(),
        }
    }
}

/// Where the running program was built, if cargo built it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    target_folder: PathBuf,
    profile: String,
}

/// Builds or finds all binaries, and answers the path of each. `progress` gets each line that
/// cargo prints.
///
/// # Errors
///
/// When one of them can be neither built nor found.
pub async fn build(
    wanted: &[Wanted],
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<BTreeMap<Wanted, PathBuf>, Error> {
    build_for(&env::current_exe().unwrap_or_default(), wanted, progress).await
}

async fn build_for(
    program: &Path,
    wanted: &[Wanted],
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<BTreeMap<Wanted, PathBuf>, Error> {
    let mut packages: BTreeMap<&Path, BTreeSet<&str>> = BTreeMap::new();
    for Wanted { package_folder, binary } in wanted {
        packages.entry(package_folder).or_default().insert(binary);
    }
    let mut makers: BTreeMap<&str, usize> = BTreeMap::new();
    packages.values().flatten().for_each(|name| *makers.entry(name).or_default() += 1);
    let mut found = BTreeMap::new();
    for (folder, names) in &packages {
        let is_shared = |name: &&str| makers.get(name).is_some_and(|makers| *makers > 1);
        let (shared, own): (BTreeSet<&str>, BTreeSet<&str>) =
            names.iter().copied().partition(is_shared);
        for (names, is_alone) in [(own, false), (shared, true)] {
            if names.is_empty() {
                continue;
            }
            let paths = package(program, folder, &names, is_alone, progress).await?;
            for (binary, path) in paths {
                found.insert(Wanted { package_folder: (*folder).to_owned(), binary }, path);
            }
        }
    }
    Ok(found)
}

/// The binaries of one package; `is_alone` if another package has binaries of these names.
async fn package(
    program: &Path,
    folder: &Path,
    names: &BTreeSet<&str>,
    is_alone: bool,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<BTreeMap<String, PathBuf>, Error> {
    let manifest = folder.join("Cargo.toml");
    if manifest.is_file() {
        let made = compile(&manifest, names, is_alone, origin(program).as_ref(), progress).await?;
        if !is_alone {
            return Ok(made);
        }
        let apart = |(name, path): (String, PathBuf)| Ok((name, set_apart(&path, folder)?));
        return made.into_iter().map(apart).collect();
    }
    let path_of = |name: &&str| Ok(((*name).to_owned(), found_beside(program, folder, name)?));
    names.iter().map(path_of).collect()
}

/// Puts a binary where that of another package with its name does not take its place: cargo has one
/// place for all binaries of a name.
fn set_apart(made: &Path, package_folder: &Path) -> Result<PathBuf, Error> {
    let failed = |source| Error::NotSetApart { binary: made.to_owned(), source };
    let package = std::path::absolute(package_folder).map_err(failed)?;
    let hash = u128::from_be_bytes(Md5::digest(package.as_os_str().as_encoded_bytes()).into());
    let folder = made.with_file_name(format!("weir-{hash:032x}"));
    fs::create_dir_all(&folder).map_err(failed)?;
    let apart = folder.join(made.file_name().unwrap_or_default());
    match fs::remove_file(&apart) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // A copy where the file system has no links.
    fs::hard_link(made, &apart).or_else(|_| fs::copy(made, &apart).map(drop)).map_err(failed)?;
    Ok(apart)
}

/// The binary of a package without sources: it lies beside `program`.
fn found_beside(program: &Path, package_folder: &Path, name: &str) -> Result<PathBuf, Error> {
    let beside = program.with_file_name(format!("{name}{}", env::consts::EXE_SUFFIX));
    if beside.is_file() {
        return Ok(beside);
    }
    let manifest = package_folder.join("Cargo.toml");
    Err(Error::Missing { binary: name.to_owned(), manifest, beside })
}

/// The target folder and the profile that `program` was built with.
fn origin(program: &Path) -> Option<Origin> {
    let mut folder = program.parent()?;
    // Test programs and examples lie one folder deeper.
    if folder.ends_with("deps") || folder.ends_with("examples") {
        folder = folder.parent()?;
    }
    // Only cargo makes this folder beside what it builds.
    if !folder.join(".fingerprint").is_dir() {
        return None;
    }
    let profile = match folder.file_name()?.to_str()? {
        "debug" => "dev",
        name => name,
    };
    Some(Origin { target_folder: folder.parent()?.to_owned(), profile: profile.to_owned() })
}

fn arguments(
    manifest: &Path,
    names: &BTreeSet<&str>,
    is_alone: bool,
    origin: Option<&Origin>,
) -> Vec<PathBuf> {
    let mut arguments: Vec<PathBuf> =
        vec!["build".into(), "--message-format=json-render-diagnostics".into()];
    // Of the whole workspace, so that dependencies have the features that they were built with for
    // weir itself; for the package alone, most of them would be compiled a second time. That is
    // the price where another member has a binary of the same name.
    if !is_alone {
        arguments.push("--workspace".into());
    }
    arguments.extend(["--manifest-path".into(), manifest.to_owned()]);
    for name in names {
        arguments.extend(["--bin".into(), name.into()]);
    }
    if let Some(Origin { target_folder, profile }) = origin {
        arguments.extend(["--profile".into(), profile.into()]);
        arguments.extend(["--target-dir".into(), target_folder.clone()]);
    }
    arguments
}

async fn compile(
    manifest: &Path,
    names: &BTreeSet<&str>,
    is_alone: bool,
    origin: Option<&Origin>,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<BTreeMap<String, PathBuf>, Error> {
    // Under `cargo run` this names the cargo that runs.
    let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let no_cargo = |source| Error::NoCargo { cargo: cargo.clone(), source };
    // cargo reads its configuration from the folder it runs in: with another one, everything would
    // be compiled once more.
    let manifest = &std::path::absolute(manifest).unwrap_or_else(|_| manifest.to_owned());
    let folder = manifest.parent().unwrap_or(Path::new("."));
    let mut build = Command::new(&cargo);
    build
        .args(arguments(manifest, names, is_alone, origin))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // A binary that only its user can read cannot be deployed.
    let mut child = private_files::start_of_user(|| build.spawn()).map_err(no_cargo)?;
    let mut made = BTreeMap::new();
    let mut tail = VecDeque::new();
    let messages = each_line(child.stdout.take(), |line| {
        if let Some((name, path)) = artifact(line) {
            made.insert(name, path);
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
    let path_of = |name: &&str| match made.get(*name) {
        Some(path) => Ok(((*name).to_owned(), path.clone())),
        None => Err(Error::NotMade { manifest: manifest.clone(), binary: (*name).to_owned() }),
    };
    names.iter().map(path_of).collect()
}

async fn each_line(stream: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(&str)) {
    let Some(stream) = stream else { return };
    let mut lines = BufReader::new(stream).lines();
    // cargo writes UTF-8; a line that is not, or a broken pipe, ends what can be read of it.
    while let Ok(Some(line)) = lines.next_line().await {
        take(&line);
    }
}

/// The binary that one of cargo's messages tells of.
fn artifact(line: &str) -> Option<(String, PathBuf)> {
    #[derive(Deserialize)]
    struct Message {
        reason: String,
        target: Target,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
        kind: Vec<String>,
    }
    let message: Message = serde_json::from_str(line).ok()?;
    let binary = message.target.kind.iter().any(|kind| kind == "bin");
    (message.reason == "compiler-artifact" && binary)
        .then_some((message.target.name, message.executable?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(folder: &Path, binary: &str) -> Wanted {
        Wanted { package_folder: folder.to_owned(), binary: binary.to_owned() }
    }

    fn write_package(folder: &Path, main: &str) {
        fs::create_dir_all(folder.join("src/bin")).unwrap();
        let manifest =
            "[package]\nname = \"two\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n";
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        for name in ["one", "two"] {
            fs::write(folder.join(format!("src/bin/{name}.rs")), main).unwrap();
        }
    }

    #[test]
    fn the_target_folder_and_profile_are_those_of_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        for name in ["debug", "release", "dist"] {
            fs::create_dir_all(target.join(name).join(".fingerprint")).unwrap();
        }
        let cases = [
            ("debug/weir", Some("dev")),
            ("release/weir", Some("release")),
            ("dist/weir", Some("dist")),
            ("debug/deps/runner-0123", Some("dev")),
            ("debug/examples/x", Some("dev")),
            ("bin/weir", None),
        ];
        for (program, profile) in cases {
            let expected = profile.map(|profile| Origin {
                target_folder: target.clone(),
                profile: profile.to_owned(),
            });
            assert_eq!(origin(&target.join(program)), expected, "{program}");
        }
    }

    #[tokio::test]
    async fn binaries_are_built_where_the_program_was_built() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("target/debug/weir");
        fs::create_dir_all(program.with_file_name(".fingerprint")).unwrap();
        let package_folder = folder.path().join("package");
        write_package(&package_folder, "fn main() {}");
        let names = BTreeSet::from(["one", "two"]);
        let mut lines = Vec::new();
        let mut progress = |line: &str| lines.push(line.to_owned());
        let built = package(&program, &package_folder, &names, false, &mut progress).await.unwrap();
        for name in names {
            let file = format!("{name}{}", env::consts::EXE_SUFFIX);
            assert_eq!(built[name], program.with_file_name(file));
            assert!(built[name].is_file());
        }
        assert!(lines.iter().any(|line| line.contains("Compiling two")), "{lines:?}");

        let missing = BTreeSet::from(["three"]);
        let error =
            package(&program, &package_folder, &missing, false, &mut |_| {}).await.unwrap_err();
        assert!(error.to_string().contains("three"), "{error}");
        write_package(&package_folder, "fn main() { nonsense() }");
        let broken = BTreeSet::from(["one"]);
        let error =
            package(&program, &package_folder, &broken, false, &mut |_| {}).await.unwrap_err();
        assert!(error.text(false).contains("nonsense"), "{error}");
        let text = error.text(true);
        assert!(text.contains("above") && !text.contains("nonsense"), "{text}");
    }

    /// Of packages of their own and of members of one workspace, also when they are built again.
    #[tokio::test]
    async fn binaries_of_one_name_do_not_take_each_others_place() {
        for is_workspace in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("target/debug/weir");
            fs::create_dir_all(program.with_file_name(".fingerprint")).unwrap();
            if is_workspace {
                let members = "[workspace]\nresolver = \"2\"\nmembers = [\"one\", \"two\"]\n";
                fs::write(folder.path().join("Cargo.toml"), members).unwrap();
            }
            let packages = ["one", "two"].map(|name| folder.path().join(name));
            for (name, package) in ["one", "two"].iter().zip(&packages) {
                fs::create_dir_all(package.join("src")).unwrap();
                let own = if is_workspace { "" } else { "[workspace]\n" };
                let manifest = format!(
                    "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[[bin]]\nname = \"same\"\npath = \"src/main.rs\"\n{own}"
                );
                fs::write(package.join("Cargo.toml"), manifest).unwrap();
                let main = format!("fn main() {{ print!(\"{name}\") }}");
                fs::write(package.join("src/main.rs"), main).unwrap();
            }
            let all = [wanted(&packages[0], "same"), wanted(&packages[1], "same")];
            for _ in 0..2 {
                let built = build_for(&program, &all, &mut |_| {}).await.unwrap();
                let said = all.each_ref().map(|wanted| {
                    let output = std::process::Command::new(&built[wanted]).output().unwrap();
                    String::from_utf8(output.stdout).unwrap()
                });
                assert_eq!(said, ["one", "two"], "workspace: {is_workspace}");
            }
        }
    }

    #[tokio::test]
    async fn without_sources_the_binary_beside_the_program_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("weir");
        let beside = folder.path().join(format!("archive{}", env::consts::EXE_SUFFIX));
        fs::write(&beside, "").unwrap();
        let nowhere = folder.path().join("functions/processor");
        let names = BTreeSet::from(["archive"]);
        let found = package(&program, &nowhere, &names, false, &mut |_| {}).await.unwrap();
        assert_eq!(found["archive"], beside);
        let error = build(&[wanted(&nowhere, "counters")], &mut |_| {}).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("Cargo.toml") && text.contains("CodeUri"), "{text}");
    }
}
