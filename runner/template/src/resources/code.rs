//! Finds the program of a function: a cargo binary, an existing `bootstrap`, a handler in Python or
//! Node, or no program on this machine. This module inspects the folder in `CodeUri`.

use std::{collections::BTreeSet, path::Path};

use crate::resources::binary::Wanted;
use crate::resources::entrypoint::{self, Entrypoint};
use crate::{
    declarations::resource::{Resource, kebab_case},
    diagnostic::{Span, listed, similar},
    evaluation::properties::Properties,
    evaluation::value,
    resources::origin::{self, Found, NotRunHere, Uri},
    resources::package::{self, Binaries},
    resources::script,
    stack::{BOOTSTRAP, Code},
    syntax::node::Node,
};

/// SAM's build method for a Cargo package.
const CARGO: &str = "rust-cargolambda";

/// Returns the program of the function; `None` if an error was reported.
pub(crate) fn find(properties: &Properties<'_, '_>, resource: &Resource<'_>) -> Option<Found> {
    let context = properties.resolver.context;
    let uri = origin::uri(properties);
    let method = origin::method(resource);
    let is_provided =
        origin::runtime(properties).is_none_or(|(_, name)| name.starts_with("provided"));
    let is_made_otherwise = method.is_some_and(|(_, name)| name != CARGO);
    let here = |code: Code| Some(Found::Here { code, folder: None });
    let runtime = origin::runtime(properties).filter(|_| !origin::is_image(properties));
    if let Some(language) = runtime.as_ref().and_then(|(_, name)| script::language(name)) {
        return match context.invoked_elsewhere {
            true => here(Code::Elsewhere),
            false => script::find(properties, resource, &uri, method, language),
        };
    }
    let folder = match (&uri, &context.folder) {
        (Uri::Folder(uri), Some(folder)) => Some(folder.join(uri)),
        _ => None,
    };
    let has_package = folder.as_deref().is_some_and(package::is_there);
    let not_here = reason_not_here(properties, resource, &uri, method);
    if context.invoked_elsewhere && not_here.is_some() {
        return here(Code::Elsewhere);
    }
    let is_built = folder.as_deref().is_some_and(|it| is_executable(&it.join(BOOTSTRAP)));
    if is_built && is_provided && (is_made_otherwise || !has_package) {
        check_bootstrap(properties, folder.as_deref(), &uri);
        return here(Code::Bootstrap);
    }
    let made = origin::built(properties, resource.id).filter(|_| is_provided && is_made_otherwise);
    if let (Some(made), Some(root)) = (made, &context.folder)
        && is_executable(&root.join(&made).join(BOOTSTRAP))
    {
        return Some(Found::Here { code: Code::Bootstrap, folder: Some(made) });
    }
    if let Some(not_here) = not_here {
        return Some(Found::NotHere(not_here));
    }
    let package = folder.as_deref().filter(|_| has_package).and_then(package::binaries);
    let name = binary(properties, resource, package.as_ref())?;
    if let (Some(folder), Uri::Folder(uri)) = (folder, &uri) {
        let wanted = Wanted { package_folder: folder, binary: name.clone() };
        warn_of_absence(properties, &wanted, uri);
    }
    here(Code::Binary(name))
}

/// Reports an error if the operating system cannot start the `bootstrap`.
fn check_bootstrap(properties: &Properties<'_, '_>, folder: Option<&Path>, uri: &Uri) {
    let (Some(folder), Uri::Folder(uri)) = (folder, uri) else { return };
    let findings = properties.resolver.findings;
    let at = properties.node("CodeUri").map_or(properties.at, |node| node.at);
    let name = Path::new(uri).join(BOOTSTRAP).display().to_string();
    match entrypoint::look(&folder.join(BOOTSTRAP)) {
        Entrypoint::Valid => {}
        Entrypoint::NoProgram => findings.error(
            at,
            format!("`{name}` cannot be started: {}", entrypoint::NO_PROGRAM),
            "begin the file with a line such as `#!/usr/bin/env python3`, or replace it with a Linux program",
        ),
        Entrypoint::NoInterpreter(interpreter) => findings.warning(
            at,
            format!("`{name}` cannot be started: its interpreter `{interpreter}` does not exist"),
            "in the first line, name an interpreter that exists on this machine and on Lambda, for example `#!/usr/bin/env python3`",
        ),
    }
}

/// Warns if the package does not exist and its binary is not in the folder of the `weir` program.
fn warn_of_absence(properties: &Properties<'_, '_>, wanted: &Wanted, uri: &str) {
    let is_started_here = !properties.resolver.context.invoked_elsewhere;
    if is_started_here && wanted.absence().is_some() {
        properties.resolver.findings.warning(
            properties.node("CodeUri").map_or(properties.at, |node| node.at),
            format!("`{uri}` has no Cargo.toml to build `{}` from", wanted.binary),
            "write the folder of the Cargo package, relative to the template",
        );
    }
}

/// Returns the reason why the function is not built from a Cargo package; `None` if it is built
/// from a package.
fn reason_not_here(
    properties: &Properties<'_, '_>,
    resource: &Resource<'_>,
    uri: &Uri,
    method: Option<(Span, &str)>,
) -> Option<NotRunHere> {
    let not_here =
        |at: Span, reason: &str| Some(NotRunHere { at, reason: reason.to_owned(), help: None });
    let because = |name: &str, reason: &str| {
        not_here(properties.key_place(name).unwrap_or(resource.at), reason)
    };
    if properties.has("InlineCode") {
        return because("InlineCode", "code in the template is not run");
    }
    if origin::is_image(properties) {
        let named = ["PackageType", "ImageUri", "ImageConfig"];
        let name = named.into_iter().find(|name| properties.has(name)).unwrap_or_default();
        return because(name, "container images are not run");
    }
    if let Some((at, runtime)) =
        origin::runtime(properties).filter(|(_, it)| !it.starts_with("provided"))
    {
        let reason = format!("functions for the runtime `{runtime}` are not supported");
        let help = "write the function in Rust, Python or Node, or build an executable `bootstrap` for `provided.al2023` \
                    with `sam build`; to run the function with another program, such as `sam local start-lambda`, start \
                    `weir up --invoke-url http://127.0.0.1:3001`; if the function runs only on AWS, accept `not-run-here` on it";
        return Some(NotRunHere { at, reason, help: Some(help.to_owned()) });
    }
    if let Some((at, method)) = method.filter(|(_, method)| *method != CARGO) {
        let reason = format!(
            "only `BuildMethod: {CARGO}` is built, not `{method}`, and neither `CodeUri` nor the folder of \
             `sam build` has an executable `{BOOTSTRAP}`"
        );
        let help = "run `sam build` first, and again after each change";
        return Some(NotRunHere { at, reason, help: Some(help.to_owned()) });
    }
    let uri = match uri {
        Uri::NotRead(at, reason) => return not_here(*at, reason),
        Uri::Unknown => return None,
        Uri::Folder(uri) => uri,
    };
    // If the package does not exist, its binary may be in the folder of the `weir` program.
    let folder = properties.resolver.context.folder.as_ref()?.join(uri);
    let named = named_binary(resource).and_then(Node::as_text).map(str::to_owned);
    let binary = named.unwrap_or_else(|| name_of_id(resource));
    let wanted = Wanted { package_folder: folder.clone(), binary };
    if method.is_some() || wanted.absence().is_none() {
        return None;
    }
    let (reason, help) = lacks(&folder, uri);
    let at = properties.key_place("CodeUri").unwrap_or(resource.at);
    Some(NotRunHere { at, reason, help })
}

/// Returns what is missing in a function's code folder, and advice. There is no advice if the code
/// may be valid on AWS.
fn lacks(folder: &Path, uri: &str) -> (String, Option<String>) {
    let bootstrap = || Path::new(uri).join(BOOTSTRAP).display().to_string();
    if folder.is_file() {
        return (format!("`{uri}` is a file, and archives are not unpacked"), None);
    }
    if !folder.is_dir() {
        let help = format!(
            "set CodeUri to the folder of a Cargo package or of an executable `{BOOTSTRAP}`; if a build creates the folder, run the build first"
        );
        return (format!("the folder `{uri}` does not exist"), Some(help));
    }
    if folder.join(BOOTSTRAP).is_file() {
        let name = bootstrap();
        return (format!("`{name}` is not executable"), Some(format!("run `chmod +x {name}`")));
    }
    let help = format!("build or copy a program that Lambda can start to `{}`", bootstrap());
    (format!("`{uri}` has neither a Cargo.toml nor an executable `{BOOTSTRAP}`"), Some(help))
}

/// Returns true if the file is executable.
#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Returns false on systems other than Unix, because Lambda runs only Linux programs.
#[cfg(not(unix))]
fn is_executable(_path: &Path) -> bool {
    false
}

/// Returns the name of the cargo binary. The name comes from SAM's build settings, from the logical
/// id, or from the only binary of the package. Reports an error if the name is ambiguous.
fn binary(
    properties: &Properties<'_, '_>,
    resource: &Resource<'_>,
    package: Option<&Binaries>,
) -> Option<String> {
    let findings = properties.resolver.findings;
    if let Some(given) = named_binary(resource) {
        return given_binary(properties, given, package);
    }
    let of_id = name_of_id(resource);
    let Some(package) = package else { return Some(of_id) };
    // The name derived from the logical id has priority. In a workspace whose root is a package,
    // the function may belong to a member of the workspace.
    if package.has(&of_id) {
        return Some(of_id);
    }
    if let [only] = package.own.iter().collect::<Vec<_>>().as_slice() {
        return Some((*only).clone());
    }
    let at = properties.node("CodeUri").map_or(resource.at, |node| node.at);
    if package.own.is_empty() {
        findings.error(
            at,
            "the package in this folder has no binary",
            "write a `src/main.rs`, or name the folder of another package",
        );
        return None;
    }
    findings.error(
        at,
        format!(
            "the package in this folder has several binaries, and none has the function's name `{of_id}`: {}",
            all(&package.own)
        ),
        "name the binary next to the function's Type: `Metadata: {BuildMethod: rust-cargolambda, \
         BuildProperties: {Binary: NAME}}`",
    );
    None
}

/// Returns the name of the binary that is derived from the function's logical id.
fn name_of_id(resource: &Resource<'_>) -> String {
    let id = resource.id.strip_suffix("Function").filter(|id| !id.is_empty());
    kebab_case(id.unwrap_or(resource.id))
}

/// Returns the template's node that contains the binary's name; `None` if the template does not
/// name the binary.
fn named_binary<'t>(resource: &Resource<'t>) -> Option<&'t Node> {
    resource.node.get("Metadata")?.get("BuildProperties")?.get("Binary")
}

fn all(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn given_binary(
    properties: &Properties<'_, '_>,
    given: &Node,
    package: Option<&Binaries>,
) -> Option<String> {
    let findings = properties.resolver.findings;
    let name = value::literal(given, "BuildProperties.Binary", findings)?;
    // The name becomes a part of a path, so path separators are not allowed.
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if name.is_empty() || !name.chars().all(allowed) {
        findings.error(
            given.at,
            format!("`{name}` is not a valid name of a cargo binary"),
            "write letters, digits, `-` or `_`, as in Cargo.toml",
        );
        return None;
    }
    if let Some(package) = package.filter(|package| !package.has(name)) {
        let known = || package.own.iter().map(String::as_str);
        let help = match similar(name, known()) {
            Some(meant) => format!("write `{meant}`"),
            None if package.own.is_empty() => "write a `src/main.rs`".to_owned(),
            None => format!("write {}", listed(known())),
        };
        findings.error(given.at, format!("the package in `CodeUri` has no binary `{name}`"), help);
        return None;
    }
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Context, Stack, read};

    const PACKAGE: &str = "[package]\nname = \"rust_app\"\nedition = \"2024\"\n";
    const CARGO_BUILT: &str = "    Metadata: {BuildMethod: rust-cargolambda}\n";

    /// Returns the stack of a template with a function `HelloWorldFunction`. Its `CodeUri` is the
    /// folder `app`, which contains these files.
    fn found(files: &[&str], metadata: &str, properties: &str, elsewhere: bool) -> Stack {
        try_find(files, metadata, properties, elsewhere)
            .unwrap_or_else(|found| panic!("{metadata}{properties}: {found}"))
    }

    fn try_find(
        files: &[&str],
        metadata: &str,
        properties: &str,
        elsewhere: bool,
    ) -> Result<Stack, crate::Diagnostics> {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = match *file {
                toml if toml.ends_with(".toml") => PACKAGE,
                bootstrap if bootstrap.ends_with(BOOTSTRAP) => "#!/bin/sh\n",
                _ => "",
            };
            fs::write(&path, text).unwrap();
            #[cfg(unix)]
            if file.ends_with(BOOTSTRAP) {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        read_in(folder.path(), metadata, properties, elsewhere)
    }

    fn read_in(
        folder: &Path,
        metadata: &str,
        properties: &str,
        elsewhere: bool,
    ) -> Result<Stack, crate::Diagnostics> {
        let text = format!(
            "Transform: AWS::Serverless-2016-10-31\nResources:\n  HelloWorldFunction:\n    Type: \
             AWS::Serverless::Function\n{metadata}    Properties: {{{properties}}}\n"
        );
        let context = Context {
            folder: Some(folder.to_owned()),
            invoked_elsewhere: elsewhere,
            ..Context::default()
        };
        read("template.yaml", &text, &context)
    }

    #[test]
    fn a_members_binary_of_the_functions_name_comes_before_the_roots_only_one() {
        let of_name = |name: &str| format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n");
        for (member, expected) in [("hello-world", "hello-world"), ("other", "root")] {
            let folder = tempfile::tempdir().unwrap();
            let app = folder.path().join("app");
            let root = of_name("root") + "[workspace]\nmembers = [\"member\"]\n";
            for (package, manifest) in [(app.clone(), root), (app.join("member"), of_name(member))]
            {
                fs::create_dir_all(package.join("src")).unwrap();
                fs::write(package.join("Cargo.toml"), manifest).unwrap();
                fs::write(package.join("src/main.rs"), "").unwrap();
            }
            let stack = read_in(folder.path(), CARGO_BUILT, &properties("provided.al2023"), false);
            let code = stack.unwrap().functions[0].code.clone();
            assert_eq!(code, Code::Binary(expected.to_owned()));
        }
    }

    fn properties(runtime: &str) -> String {
        format!("CodeUri: app, Handler: bootstrap, Runtime: {runtime}")
    }

    #[test]
    fn a_function_is_run_from_what_lies_in_its_folder() {
        let rust = &properties("provided.al2023");
        let (manifest, main, built) = ("app/Cargo.toml", "app/src/main.rs", "app/bootstrap");
        let (one, two) = ("app/src/bin/one.rs", "app/src/bin/hello-world.rs");
        let named =
            "    Metadata: {BuildMethod: rust-cargolambda, BuildProperties: {Binary: one}}\n";
        let makefile = "    Metadata: {BuildMethod: makefile}\n";
        let binary = |name: &str| Some(Code::Binary(name.to_owned()));
        let cases: &[(&[&str], &str, &str, Option<Code>)] = &[
            (&[manifest, main], CARGO_BUILT, rust, binary("rust_app")),
            (&[manifest, main], "", rust, binary("rust_app")),
            (&[manifest, one], CARGO_BUILT, rust, binary("one")),
            (&[manifest, main, one, two], CARGO_BUILT, rust, binary("hello-world")),
            (&[manifest, main, one, two], named, rust, binary("one")),
            // Without a package, the binary may be in the folder of the `weir` program.
            (&[], CARGO_BUILT, rust, binary("hello-world")),
            (&[manifest, main, built], CARGO_BUILT, rust, binary("rust_app")),
            (&[], "", rust, None),
            (&["app/bootstrap.txt"], "", rust, None),
            (&["app"], "", rust, None),
            (&[manifest, main], makefile, rust, None),
            (&[built], "", &properties("java21"), None),
            (&[], "", "CodeUri: s3://bucket/key, Handler: bootstrap, Runtime: provided.al2", None),
            (&[], "", "PackageType: Image, ImageUri: image", None),
            #[cfg(unix)]
            (&[built], CARGO_BUILT, rust, Some(Code::Bootstrap)),
            #[cfg(unix)]
            (&[built], "", rust, Some(Code::Bootstrap)),
            #[cfg(unix)]
            (&[manifest, main, built], makefile, rust, Some(Code::Bootstrap)),
        ];
        for (files, metadata, properties, expected) in cases {
            let stack = found(files, metadata, properties, false);
            let code = stack.functions.first().map(|function| function.code.clone());
            assert_eq!(code, *expected, "{files:?} {metadata}{properties}");
            assert_eq!(stack.not_run.len(), usize::from(expected.is_none()));
            let is_absent = files.is_empty() && expected.is_some();
            let warned = stack.warnings.iter().any(|it| it.message.contains("no Cargo.toml to"));
            assert_eq!(warned, is_absent, "{files:?}: {:?}", stack.warnings);
        }
    }

    #[test]
    fn functions_run_elsewhere_only_all_together() {
        let manifest: &[&str] = &["app/Cargo.toml", "app/src/main.rs"];
        let python = "CodeUri: app, Handler: app.run, Runtime: python3.13";
        let named = &format!("{python}, FunctionName: hello");
        let cases: &[(&[&str], &str, &str, &str)] = &[
            (manifest, CARGO_BUILT, &properties("provided.al2023"), "rust_app"),
            (&[], "", &properties("provided.al2023"), "HelloWorldFunction"),
            (&[], "", python, "HelloWorldFunction"),
            (&[], "", named, "hello"),
            (
                &[],
                "",
                "InlineCode: x, Handler: index.run, Runtime: python3.13",
                "HelloWorldFunction",
            ),
            (&[], "", "PackageType: Image, ImageUri: image", "HelloWorldFunction"),
        ];
        for (files, metadata, properties, expected) in cases {
            let stack = found(files, metadata, properties, true);
            let names: Vec<&str> = stack.functions.iter().map(|it| it.invoked_as()).collect();
            assert_eq!(names, [*expected], "{properties}");
            assert!(stack.not_run.is_empty(), "{properties}");
        }
    }

    #[test]
    fn a_binary_that_the_package_does_not_have_is_refused() {
        let rust = &properties("provided.al2023");
        let with_binary = |name: &str| {
            format!(
                "    Metadata: {{BuildMethod: rust-cargolambda, BuildProperties: {{Binary: {name}}}}}\n"
            )
        };
        let (manifest, one) = ("app/Cargo.toml", "app/src/bin/one.rs");
        let cases: &[(&[&str], &str, &str, &str)] = &[
            (
                &[manifest, one, "app/src/bin/two.rs"],
                CARGO_BUILT,
                "several binaries, and none has the function's name `hello-world`: `one`, `two`",
                "BuildProperties: {Binary: NAME}",
            ),
            (&[manifest, one], &with_binary("on"), "has no binary `on`", "write `one`"),
            (&[manifest, one], &with_binary("other"), "has no binary `other`", "write `one`"),
            (&[manifest], CARGO_BUILT, "has no binary", "src/main.rs"),
            (&[manifest], &with_binary("one"), "has no binary `one`", "src/main.rs"),
            (&[manifest, one], &with_binary("a/b"), "`a/b` is not a valid name", "letters, digits"),
        ];
        for (files, metadata, message, help) in cases {
            let found = try_find(files, metadata, rust, false).unwrap_err().shown;
            let [found] = found.as_slice() else { panic!("{found:?}") };
            assert!(found.message.contains(message), "{}", found.message);
            assert!(found.help.contains(help), "{}", found.help);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn problems_of_a_bootstrap_are_reported() {
        use std::os::unix::fs::PermissionsExt;
        let cases = [
            ("#!/bin/sh\n", 0o644, "`app/bootstrap` is not executable", "chmod +x app/bootstrap"),
            (
                "echo\n",
                0o755,
                "`app/bootstrap` cannot be started: it is neither a Linux program",
                "#!/usr/bin",
            ),
            ("#!/no/sh\n", 0o755, "its interpreter `/no/sh` does not exist", "first line"),
        ];
        for (text, mode, message, help) in cases {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("app/bootstrap");
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = read_in(folder.path(), "", &properties("provided.al2023"), false);
            let found = read.map_or_else(|refused| refused.shown, |stack| stack.warnings);
            let is_said =
                |it: &crate::Diagnostic| it.message.contains(message) && it.help.contains(help);
            assert!(found.iter().any(is_said), "{found:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let stack = read_in(folder.path(), "", &properties("provided.al2023"), false).unwrap();
        let [warning] = stack.warnings.as_slice() else { panic!("{:?}", stack.warnings) };
        assert!(warning.message.contains("the folder `app` does not exist"), "{warning:?}");
        assert!(warning.help.contains("run the build first"), "{warning:?}");
    }
}
