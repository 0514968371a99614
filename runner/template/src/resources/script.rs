//! Handlers in Python and Node: the folder of their code, and their layers. This module only checks
//! if files exist. It does not start programs or install packages.

use std::path::{Path, PathBuf};

use crate::syntax::node::Kind;
use crate::{
    declarations::resource::Resource,
    diagnostic::Span,
    evaluation::properties::Properties,
    evaluation::value::{Data, Value},
    not_emulated::NotEmulated,
    resources::origin::{BUILD_FOLDER, Found, NotRunHere, Uri, built, method},
    resources::sources,
    stack::{Code, Language, Layer, Script},
};

/// Returns the language and the version of a runtime. For example, `python3.13` is Python `3.13`.
pub(crate) fn language(runtime: &str) -> Option<(Language, &str)> {
    let is_version = |text: &str| {
        !text.is_empty() && text.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
    };
    let python = runtime.strip_prefix("python").map(|version| (Language::Python, version));
    let node = || Some((Language::Node, runtime.strip_prefix("nodejs")?.strip_suffix(".x")?));
    python.or_else(node).filter(|(_, version)| is_version(version))
}

/// Finds the code of a handler and its folder, relative to the template's folder.
pub(crate) fn find(
    properties: &Properties<'_, '_>,
    resource: &Resource<'_>,
    uri: &Uri,
    method: Option<(Span, &str)>,
    (language, version): (Language, &str),
) -> Option<Found> {
    let inline = match properties.has("InlineCode") {
        true => Some(properties.text("InlineCode")?.value),
        false => None,
    };
    let script = |folder: String| {
        let layers = layers(properties);
        let (version, inline) = (version.to_owned(), inline.clone());
        let build_folder = built(properties, resource.id);
        let code = Code::Script(Script { language, version, inline, build_folder, layers });
        Some(Found::Here { code, folder: Some(folder) })
    };
    if inline.is_some() {
        return script(String::new());
    }
    let folder = match uri {
        Uri::Folder(folder) => folder,
        Uri::NotRead(at, reason) => return not_here(*at, *reason, None),
        Uri::Unknown => return None,
    };
    // Without the template's folder, the existence of files cannot be checked.
    let Some(root) = &properties.resolver.context.folder else { return script(folder.clone()) };
    let is_built_otherwise = method.is_some_and(|(_, method)| language_of(method).is_none());
    let at = properties.key_place("CodeUri").unwrap_or(resource.at);
    let handler = handler(properties);
    let has_handler = |folder: &str| match &handler {
        Some(handler) => handler_file(&root.join(folder), language, handler).is_some(),
        None => true,
    };
    let build_folder = built(properties, resource.id);
    if is_built_otherwise {
        return match build_folder {
            Some(built) => {
                warn_of_old_build(properties, at, &root.join(folder));
                script(built)
            }
            None => {
                let (at, method) = method.unwrap_or((at, ""));
                let reason = format!(
                    "`{BUILD_FOLDER}/{}` does not exist; `BuildMethod: {method}` creates it",
                    resource.id
                );
                not_here(
                    at,
                    reason,
                    Some("run `sam build` first, and again after each change".to_owned()),
                )
            }
        };
    }
    if has_handler(folder) || !properties.has("Handler") {
        return script(folder.clone());
    }
    if let Some(built) = build_folder.filter(|built| has_handler(built)) {
        return script(built);
    }
    // The module with the handler may be in a layer.
    if properties.has("Layers") {
        return script(folder.clone());
    }
    let (reason, help) = lacks(root, folder, language, handler.as_deref().unwrap_or_default());
    let at = properties.key_place("Handler").unwrap_or(at);
    not_here(at, reason, Some(help))
}

fn not_here(at: Span, reason: impl Into<String>, help: Option<String>) -> Option<Found> {
    Some(Found::NotHere(NotRunHere { at, reason: reason.into(), help }))
}

/// Returns the language of a build method that has the name of a runtime. Such a build copies the
/// sources unchanged and adds their dependencies. The code therefore also runs from its source
/// folder.
fn language_of(method: &str) -> Option<Language> {
    language(method).map(|(language, _)| language)
}

fn handler(properties: &Properties<'_, '_>) -> Option<String> {
    let Data::Text(handler) = properties.value("Handler")?.data else { return None };
    Some(handler)
}

/// Warns if a source file is newer than the build.
fn warn_of_old_build(properties: &Properties<'_, '_>, at: Span, folder: &Path) {
    let Some(root) = &properties.resolver.context.folder else { return };
    // `sam build` writes this file last. Copied files keep their modification times, so they do not
    // show the time of the build.
    let end = root.join(BUILD_FOLDER).join("template.yaml");
    let built = end.metadata().and_then(|found| found.modified()).ok();
    if let (Some(built), Some(newest)) = (built, sources::newest(folder))
        && newest > built
    {
        properties.resolver.findings.warning(
            at,
            format!("`{BUILD_FOLDER}` is older than the sources, but its code is what runs"),
            "run `sam build`; `weir up` runs the new build from the next invocation on",
        );
    }
}

/// Returns the existing file of a handler such as `src/app.handler`; `None` if no such file exists.
fn handler_file(folder: &Path, language: Language, handler: &str) -> Option<PathBuf> {
    candidates(language, handler).into_iter().map(|name| folder.join(name)).find(|it| it.is_file())
}

/// Returns the possible files of a handler, relative to the code's folder.
fn candidates(language: Language, handler: &str) -> Vec<String> {
    match language {
        Language::Python => {
            let module = handler.rsplit_once('.').map_or(handler, |(module, _)| module);
            let module = module.replace('.', "/");
            vec![format!("{module}.py"), format!("{module}/__init__.py")]
        }
        Language::Node => {
            let (folder, name) = match handler.rsplit_once('/') {
                Some((folder, name)) => (format!("{folder}/"), name),
                None => (String::new(), handler),
            };
            let module = name.split('.').next().unwrap_or(name);
            let endings = ["", ".js", ".mjs", ".cjs", "/index.js", "/index.mjs"];
            endings.iter().map(|ending| format!("{folder}{module}{ending}")).collect()
        }
    }
}

/// Returns what is missing in the code folder of a handler, and advice.
fn lacks(root: &Path, uri: &str, language: Language, handler: &str) -> (String, String) {
    let folder = root.join(uri);
    if folder.is_file() {
        let help = "write the path of the code's folder, relative to the template".to_owned();
        return (format!("`{uri}` is a file, and archives are not unpacked"), help);
    }
    if !folder.is_dir() {
        let help = "set CodeUri to the path of the code's folder, relative to the template, or run `sam build` if a build creates the folder";
        return (format!("the folder `{uri}` does not exist"), help.to_owned());
    }
    let names = candidates(language, handler);
    let wanted = match language {
        Language::Python => names.first().cloned().unwrap_or_default(),
        Language::Node => names.get(1).cloned().unwrap_or_default(),
    };
    let place = |name: &str| match uri.trim_start_matches("./") {
        "" | "." => name.to_owned(),
        uri => Path::new(uri).join(name).display().to_string(),
    };
    let module = names.first().map(String::as_str).unwrap_or_default();
    let typed = ["ts", "mts", "cts", "tsx"].map(|ending| format!("{module}.{ending}"));
    if let Some(typed) = typed.iter().find(|name| folder.join(name).is_file()) {
        let help = "run `sam build`, with `Metadata: {BuildMethod: esbuild}` on the function, or compile \
                    it with `tsc`; `weir up` does not compile TypeScript";
        let reason =
            format!("`{}` is TypeScript, and `{}` does not exist", place(typed), place(&wanted));
        return (reason, help.to_owned());
    }
    let help = format!(
        "set Handler to `FILE.FUNCTION` and CodeUri to the folder of FILE; `{handler}` is expected in `{wanted}`"
    );
    (format!("`{}`, the file of the handler `{handler}`, does not exist", place(&wanted)), help)
}

/// Returns the layers of a function: folders from this template, and layers that exist only on AWS.
fn layers(properties: &Properties<'_, '_>) -> Vec<Layer> {
    let Some(value) = properties.value("Layers") else { return Vec::new() };
    let Data::List(items) = value.data else { return Vec::new() };
    items.into_iter().filter_map(|item| layer(properties, item)).collect()
}

fn layer(properties: &Properties<'_, '_>, item: Value) -> Option<Layer> {
    let reference = match item.data {
        Data::Text(arn) => arn,
        Data::Elsewhere(reference) => reference,
        Data::Absent | Data::List(_) | Data::Stream(_) => return None,
    };
    if let Some(folder) = layer_folder(properties, &reference) {
        return Some(Layer::Folder(folder));
    }
    properties.resolver.findings.not_emulated(NotEmulated {
        resource: properties.resource.to_owned(),
        kind: properties.kind.to_owned(),
        property: properties.path("Layers"),
        at: item.at,
        instead: format!(
            "the layer `{reference}` is not loaded; list its packages as dependencies"
        ),
    });
    Some(Layer::OnAws(reference))
}

/// Returns the folder of a layer that is a resource of this template, relative to the template's
/// folder.
fn layer_folder(properties: &Properties<'_, '_>, id: &str) -> Option<String> {
    let resource = properties.resolver.resource(id)?;
    let content = match resource.type_name {
        "AWS::Serverless::LayerVersion" => "ContentUri",
        "AWS::Lambda::LayerVersion" => "Content",
        _ => return None,
    };
    let node = properties.resolver.choose(resource.properties.get(content)?)??;
    // A mapping is a location in S3, with a bucket and a key.
    if matches!(node.kind, Kind::Map(_)) {
        return None;
    }
    let content = properties.resolver.resolve(node)?;
    let Data::Text(folder) = content.data else { return None };
    // SAM builds a layer only if the layer has a build method.
    let built = method(resource).and_then(|_| built(properties, id));
    built.or(Some(folder).filter(|folder| !folder.starts_with("s3://")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::{Context, Stack, read};

    /// Returns the stack of a template whose folder contains these files. The template has a
    /// function `F` with these properties.
    fn stack(files: &[&str], metadata: &str, properties: &str) -> Stack {
        let folder = tempfile::tempdir().unwrap();
        // Each file is newer than the previous file in the list.
        for (index, file) in (1..).zip(files) {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + index);
            fs::File::create(path).unwrap().set_modified(modified).unwrap();
        }
        let text = format!(
            "Transform: AWS::Serverless-2016-10-31\nResources:\n  \
             Shared:\n    Type: AWS::Serverless::LayerVersion\n    Properties: {{ContentUri: shared}}\n  \
             Made:\n    Type: AWS::Serverless::LayerVersion\n    Metadata: {{BuildMethod: python3.13}}\n    \
             Properties: {{ContentUri: made}}\n  F:\n    \
             Type: AWS::Serverless::Function\n{metadata}    Properties: {{{properties}}}\n"
        );
        let context = Context { folder: Some(folder.path().to_owned()), ..Context::default() };
        read("t.yaml", &text, &context).unwrap_or_else(|found| panic!("{properties}: {found}"))
    }

    #[test]
    fn a_handler_runs_in_the_folder_that_has_it() {
        let python = "Runtime: python3.13, CodeUri: code, Handler: ";
        let node = "Runtime: nodejs22.x, CodeUri: code, Handler: ";
        let esbuild = "    Metadata: {BuildMethod: esbuild}\n";
        let built = ".aws-sam/build/F";
        /// Files, further attributes, properties, and the expected folder or message.
        type Case<'c> = (&'c [&'c str], &'c str, &'c str, Result<&'c str, &'c str>);
        let cases: &[Case<'_>] = &[
            (&["code/app.py"], "", &format!("{python}app.run"), Ok("code")),
            (&["app.py"], "", "Runtime: python3.10, Handler: app.run", Ok(".")),
            (&["code/a/b.py"], "", &format!("{python}a/b.run"), Ok("code")),
            (&["code/a/b/__init__.py"], "", &format!("{python}a.b.run"), Ok("code")),
            (&["code/app.mjs"], "", &format!("{node}app.run"), Ok("code")),
            (&["code/src/app.js"], "", &format!("{node}src/app.lib.run"), Ok("code")),
            (
                &["code/app.cjs", ".aws-sam/build/F/app.js"],
                "",
                &format!("{node}app.run"),
                Ok("code"),
            ),
            (&["code/app.ts", ".aws-sam/build/F/app.js"], "", &format!("{node}app.run"), Ok(built)),
            (
                &["code/app.js", ".aws-sam/build/F/x.js"],
                esbuild,
                &format!("{node}app.run"),
                Ok(built),
            ),
            (&["code/x.py"], "", &format!("{python}app.run, Layers: [!Ref Shared]"), Ok("code")),
            (&[], "", "Runtime: python3.13, Handler: index.run, InlineCode: \"x = 1\"", Ok("")),
            (&["code/app.ts"], "", &format!("{node}app.run"), Err("`code/app.ts` is TypeScript")),
            (
                &["code/app.js"],
                esbuild,
                &format!("{node}app.run"),
                Err("`BuildMethod: esbuild` creates"),
            ),
            (
                &["code/x.py"],
                "",
                &format!("{python}app.run"),
                Err("`code/app.py`, the file of the handler"),
            ),
            (
                &["code/x.js"],
                "",
                &format!("{node}app.run"),
                Err("`code/app.js`, the file of the handler"),
            ),
            (&[], "", &format!("{python}app.run"), Err("the folder `code` does not exist")),
            (&["code"], "", &format!("{python}app.run"), Err("`code` is a file")),
            (&[], "", &format!("{python}app.run").replace("code", "s3://b/k"), Err("is in S3")),
            (&["code/a.rb"], "", "Runtime: ruby3.4, CodeUri: code, Handler: a.b", Err("`ruby3.4`")),
        ];
        for (files, metadata, properties, expected) in cases {
            let stack = stack(files, metadata, properties);
            match (stack.functions.as_slice(), expected) {
                ([function], Ok(folder)) => {
                    assert!(matches!(function.code, Code::Script(_)), "{properties}");
                    assert_eq!(function.code_uri, *folder, "{files:?} {properties}");
                }
                ([], Err(reason)) => {
                    let [absent] = stack.not_run.as_slice() else { panic!("{properties}") };
                    assert!(absent.reason.contains(reason), "{}", absent.reason);
                    let warning = stack.warnings.iter().find(|it| it.message.contains(reason));
                    assert!(!warning.unwrap().help.is_empty());
                }
                found => panic!("{files:?} {properties}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_script_has_its_runtime_its_build_and_its_layers() {
        let arn = "arn:aws:lambda:us-east-1:1:layer:Tools:3";
        let properties = format!(
            "Runtime: nodejs22.x, Handler: a.b, Layers: [!Ref Shared, !Ref Made, \"{arn}\"]"
        );
        let files = [
            "a.js",
            "shared/nodejs/x.js",
            ".aws-sam/build/Made/python/x.py",
            ".aws-sam/build/F/a.js",
        ];
        let stack = stack(&files, "", &properties);
        let Code::Script(script) = &stack.functions[0].code else { panic!() };
        assert_eq!((script.language, script.runtime().as_str()), (Language::Node, "nodejs22.x"));
        assert_eq!(script.build_folder.as_deref(), Some(".aws-sam/build/F"));
        let folder = |path: &str| Layer::Folder(path.to_owned());
        let layers =
            [folder("shared"), folder(".aws-sam/build/Made"), Layer::OnAws(arn.to_owned())];
        assert_eq!(script.layers, layers);
        let listed = stack.not_emulated.iter().filter(|it| it.property == "Layers");
        assert!(listed.map(|it| &it.instead).any(|it| it.contains(arn)));
    }

    #[test]
    fn an_old_build_is_warned_of() {
        let esbuild = "    Metadata: {BuildMethod: esbuild}\n";
        let properties = "Runtime: nodejs22.x, CodeUri: code, Handler: app.run";
        let files = [".aws-sam/build/template.yaml", ".aws-sam/build/F/app.js", "code/app.ts"];
        for (files, is_old) in [(files, true), ([files[2], files[1], files[0]], false)] {
            let found = stack(&files, esbuild, properties).warnings;
            let is_warned = found.iter().any(|it| it.message.contains("is older than the sources"));
            assert_eq!(is_warned, is_old, "{files:?}");
        }
    }

    #[test]
    fn runtimes_name_their_language() {
        for (runtime, expected) in [
            ("python3.13", Some((Language::Python, "3.13"))),
            ("nodejs22.x", Some((Language::Node, "22"))),
            ("nodejs", None),
            ("python", None),
            ("java21", None),
            ("provided.al2023", None),
        ] {
            assert_eq!(language(runtime), expected, "{runtime}");
        }
    }
}
