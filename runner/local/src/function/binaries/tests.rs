//! Tests of the packages that cargo builds for `weir up`: the paths of their binaries.

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
        let expected = profile
            .map(|profile| Origin { target_folder: target.clone(), profile: profile.to_owned() });
        assert_eq!(origin(&target.join(program)), expected, "{program}");
    }
}

/// Returns a running `weir` as if cargo had built it. The workspace is `checkout` and the target
/// folder is `target`, both below `folder`.
fn program(folder: &Path) -> Program {
    let path = folder.join("target/debug/weir");
    fs::create_dir_all(path.with_file_name(".fingerprint")).unwrap();
    Program { path, checkout: folder.join("checkout") }
}

/// Writes a package with one binary that prints `text`.
fn write_printer(folder: &Path, package: &str, binary: &str, text: &str, more: &str) {
    fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"{package}\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[[bin]]\nname = \"{binary}\"\npath = \"src/main.rs\"\n{more}"
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("src/main.rs"), format!("fn main() {{ print!(\"{text}\") }}")).unwrap();
}

fn printed(program: &Path) -> String {
    let output = std::process::Command::new(program).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn file_of(name: &str) -> String {
    format!("{name}{}", env::consts::EXE_SUFFIX)
}

#[tokio::test]
async fn members_of_the_own_workspace_are_built_where_the_program_was_built() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let package_folder = program.checkout.clone();
    write_package(&package_folder, "fn main() {}");
    let names = BTreeSet::from(["one", "two"]);
    let mut lines = Vec::new();
    let mut progress = |line: &str| lines.push(line.to_owned());
    let built = package(&program, &package_folder, &names, &mut progress).await.unwrap();
    for name in names {
        assert_eq!(built[name], program.path.with_file_name(file_of(name)));
        assert!(built[name].is_file());
    }
    assert!(lines.iter().any(|line| line.contains("Compiling two")), "{lines:?}");

    let missing = BTreeSet::from(["three"]);
    let error = package(&program, &package_folder, &missing, &mut |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("three"), "{error}");
    write_package(&package_folder, "fn main() { nonsense() }");
    let broken = BTreeSet::from(["one"]);
    let error = package(&program, &package_folder, &broken, &mut |_| {}).await.unwrap_err();
    assert!(error.text(false).contains("nonsense"), "{error}");
    let text = error.text(true);
    assert!(text.contains("above") && !text.contains("nonsense"), "{text}");
    fs::write(package_folder.join("Cargo.toml"), "[package]\nname = 5\n").unwrap();
    let error = package(&program, &package_folder, &broken, &mut |_| {}).await.unwrap_err();
    assert!(error.text(false).contains("name"), "{error}");
}

/// Method: the packages of two projects have equal names, or the names of Weir's own programs.
#[tokio::test]
async fn other_projects_replace_neither_each_other_nor_programs_of_weir() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let names = ["app", "archive", "weir"];
    for name in names {
        fs::write(program.path.with_file_name(file_of(name)), "Weir's").unwrap();
    }
    let projects = ["one", "two"].map(|project| {
        names.map(|name| {
            let package = folder.path().join(project).join(name);
            write_printer(&package, name, name, &format!("{project} {name}"), "[workspace]\n");
            wanted(&package, name)
        })
    });
    let mut built = Vec::new();
    for project in &projects {
        built.push(build_for(&program, project, &mut |_| {}).await.unwrap());
    }
    for ((project, number), built) in projects.iter().zip(["one", "two"]).zip(&built) {
        for wanted in project {
            let path = &built[wanted];
            assert_eq!(printed(path), format!("{number} {}", wanted.binary));
            let own = wanted.package_folder.join("target/debug").join(file_of(&wanted.binary));
            assert!(is_same(path, &own), "{}", path.display());
        }
    }
    for name in names {
        let path = program.path.with_file_name(file_of(name));
        assert_eq!(fs::read_to_string(path).unwrap(), "Weir's", "{name}");
    }
}

#[tokio::test]
async fn the_owners_own_build_compiles_nothing_again_and_replaces_the_file_that_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let package_folder = folder.path().join("app");
    write_printer(&package_folder, "app", "app", "one", "[workspace]\n");
    let all = [wanted(&package_folder, "app")];
    let built = build_for(&program, &all, &mut |_| {}).await.unwrap();
    let path = &built[&all[0]];
    assert_eq!(printed(path), "one");
    let build = || {
        let mut command = std::process::Command::new(cargo());
        let output = command.arg("build").current_dir(&package_folder).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        told.contains("Compiling")
    };
    assert!(!build());
    write_printer(&package_folder, "app", "app", "two", "[workspace]\n");
    assert!(build());
    assert_eq!(printed(path), "two");
}

/// Method: the packages are separate, or members of one workspace. The test also rebuilds them.
#[tokio::test]
async fn binaries_of_one_name_do_not_take_each_others_place() {
    for is_workspace in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path());
        if is_workspace {
            let members = "[workspace]\nresolver = \"2\"\nmembers = [\"one\", \"two\"]\n";
            fs::write(folder.path().join("Cargo.toml"), members).unwrap();
        }
        let packages = ["one", "two"].map(|name| folder.path().join(name));
        for (name, package) in ["one", "two"].iter().zip(&packages) {
            let own = if is_workspace { "" } else { "[workspace]\n" };
            write_printer(package, name, "same", name, own);
        }
        let all = [wanted(&packages[0], "same"), wanted(&packages[1], "same")];
        for _ in 0..2 {
            let built = build_for(&program, &all, &mut |_| {}).await.unwrap();
            let said = all.each_ref().map(|wanted| printed(&built[wanted]));
            assert_eq!(said, ["one", "two"], "workspace: {is_workspace}");
        }
        // The template may name only one of these binaries.
        let one = &all[..1];
        let built = build_for(&program, one, &mut |_| {}).await.unwrap();
        assert_eq!(printed(&built[&all[0]]), "one", "workspace: {is_workspace}");
        if is_workspace {
            let root = [wanted(folder.path(), "same")];
            let error = build_for(&program, &root, &mut |_| {}).await.unwrap_err().to_string();
            assert!(error.contains("several packages") && error.contains("CodeUri"), "{error}");
        }
    }
}

/// Method: `.cargo/config.toml` sets the shared folder, which may also be Weir's own target folder.
#[tokio::test]
async fn projects_that_share_a_target_folder_keep_their_programs() {
    for shared in ["shared", "target"] {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path());
        let shared = folder.path().join(shared);
        fs::create_dir_all(folder.path().join(".cargo")).unwrap();
        let config = format!("[build]\ntarget-dir = {:?}\n", shared.to_str().unwrap());
        fs::write(folder.path().join(".cargo/config.toml"), config).unwrap();
        let all = ["one", "two"].map(|project| {
            let package = folder.path().join(project);
            write_printer(&package, "archive", "archive", project, "[workspace]\n");
            wanted(&package, "archive")
        });
        let mut paths = Vec::new();
        for wanted in &all {
            let built = build_for(&program, std::slice::from_ref(wanted), &mut |_| {}).await;
            paths.push(built.unwrap()[wanted].clone());
        }
        for (path, project) in paths.iter().zip(["one", "two"]) {
            assert_eq!(printed(path), project);
            assert!(path.starts_with(&shared), "{}", path.display());
        }
        assert!(!shared.join("debug").join(file_of("archive")).exists());
    }
}

#[tokio::test]
async fn without_sources_the_binary_beside_the_program_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program { path: folder.path().join("weir"), checkout: folder.path().to_owned() };
    let beside = folder.path().join(file_of("archive"));
    fs::write(&beside, "").unwrap();
    let nowhere = folder.path().join("functions/processor");
    let names = BTreeSet::from(["archive"]);
    let found = package(&program, &nowhere, &names, &mut |_| {}).await.unwrap();
    assert_eq!(found["archive"], beside);
    let error = build(&[wanted(&nowhere, "counters")], &mut |_| {}).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("Cargo.toml") && text.contains("CodeUri"), "{text}");
}
