//! Finds the binaries of a Cargo package from `Cargo.toml` and the locations of source files, by
//! the same rules as cargo. A template can therefore be checked without cargo.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use toml_edit::{Document, Item, Table, TableLike};

/// The binaries that a build in a folder can create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Binaries {
    /// The binaries of the package in this folder. If this folder has no package, the binaries of
    /// the workspace's members.
    pub(crate) own: BTreeSet<String>,
    /// The binaries of the workspace's members, if this folder is the root of a workspace.
    pub(crate) of_members: BTreeSet<String>,
}

impl Binaries {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.own.contains(name) || self.of_members.contains(name)
    }
}

/// Returns true if the folder contains a package or a workspace.
pub(crate) fn is_there(folder: &Path) -> bool {
    folder.join("Cargo.toml").is_file()
}

/// Returns the binaries of the package in the folder; `None` if only cargo can determine them.
pub(crate) fn binaries(folder: &Path) -> Option<Binaries> {
    let manifest = manifest(folder)?;
    let own = own(&manifest, folder)?;
    let of_members = match manifest.get("workspace").and_then(Item::as_table_like) {
        Some(_) => of_members(&manifest, folder)?,
        None => BTreeSet::new(),
    };
    let own = if own.is_empty() { of_members.clone() } else { own };
    Some(Binaries { own, of_members })
}

fn manifest(folder: &Path) -> Option<Table> {
    let text = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    Some(Document::parse(text).ok()?.into_mut().as_table().clone())
}

/// Returns the binaries that the manifest lists, and the binaries that cargo discovers
/// automatically from source files.
fn own(manifest: &Table, folder: &Path) -> Option<BTreeSet<String>> {
    let Some(package) = manifest.get("package") else { return Some(BTreeSet::new()) };
    let name = package.get("name").and_then(Item::as_str)?;
    let mut found = found(name, folder);
    let Some(written) = manifest.get("bin") else {
        let is_searched = package.get("autobins").and_then(Item::as_bool) != Some(false);
        return Some(if is_searched { names(&found) } else { BTreeSet::new() });
    };
    let mut own = BTreeSet::new();
    for target in written.as_array_of_tables()? {
        let name = target.get("name").and_then(Item::as_str)?;
        let path = target.get("path").and_then(Item::as_str).map(|path| folder.join(path));
        found.retain(|(other, source)| other != name && Some(source) != path.as_ref());
        own.insert(name.to_owned());
    }
    // In edition 2015, the default edition, a manifest that lists binaries disables automatic
    // discovery.
    let is_old = match package.get("edition") {
        Some(edition) => edition.as_str() == Some("2015"),
        None => true,
    };
    if package.get("autobins").and_then(Item::as_bool).unwrap_or(!is_old) {
        own.extend(names(&found));
    }
    Some(own)
}

fn names(found: &[(String, PathBuf)]) -> BTreeSet<String> {
    found.iter().map(|(name, _)| name.clone()).collect()
}

/// Returns the binaries that cargo discovers, with their source files: `src/main.rs`,
/// `src/bin/NAME.rs` and `src/bin/NAME/main.rs`.
fn found(package: &str, folder: &Path) -> Vec<(String, PathBuf)> {
    let main = folder.join("src").join("main.rs");
    let mut found = Vec::new();
    if main.is_file() {
        found.push((package.to_owned(), main));
    }
    let entries = fs::read_dir(folder.join("src").join("bin")).into_iter().flatten();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let source = if path.is_dir() { path.join("main.rs") } else { path.clone() };
        let is_source = source.extension().is_some_and(|end| end == "rs") && source.is_file();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()).filter(|_| is_source) {
            found.push((name.to_owned(), source));
        }
    }
    found
}

/// Returns the binaries of a workspace's members. In a pattern of `members`, only a complete path
/// component `*` is supported.
fn of_members(manifest: &Table, folder: &Path) -> Option<BTreeSet<String>> {
    let list = |name: &str| match manifest.get("workspace").and_then(|it| it.get(name)) {
        Some(list) => {
            let texts = list.as_array()?.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<String>>>()
        }
        None => Some(Vec::new()),
    };
    let excluded: Vec<PathBuf> = list("exclude")?.iter().map(|path| folder.join(path)).collect();
    let mut binaries = BTreeSet::new();
    let (mut members, mut named) = (BTreeSet::new(), paths(manifest, folder));
    for member in list("members")? {
        for member in folders(folder, &member)? {
            if excluded.contains(&member) || !is_there(&member) {
                continue;
            }
            let of_member = self::manifest(&member)?;
            binaries.extend(own(&of_member, &member)?);
            named.extend(paths(&of_member, &member));
            members.extend(fs::canonicalize(&member));
        }
    }
    // Direct and transitive path dependencies within the workspace's folder are also members. If
    // `members` does not list one of them, only cargo can find all members.
    let root = fs::canonicalize(folder).ok()?;
    let excluded: Vec<PathBuf> = excluded.iter().flat_map(fs::canonicalize).collect();
    let is_unlisted = |path: &PathBuf| {
        path.starts_with(&root)
            && *path != root
            && !members.contains(path)
            && !excluded.contains(path)
    };
    if named.iter().any(is_unlisted) { None } else { Some(binaries) }
}

/// Returns the folders of all path dependencies in a manifest.
fn paths(manifest: &dyn TableLike, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (name, item) in manifest.iter() {
        let Some(below) = item.as_table_like() else { continue };
        if !name.ends_with("dependencies") {
            found.extend(paths(below, folder));
            continue;
        }
        let path = |(_, item): (&str, &Item)| Some(folder.join(item.get("path")?.as_str()?));
        let there = below.iter().filter_map(path).filter(|path| is_there(path));
        found.extend(there.flat_map(fs::canonicalize));
    }
    found
}

fn folders(root: &Path, pattern: &str) -> Option<Vec<PathBuf>> {
    let mut folders = vec![root.to_owned()];
    for step in pattern.split('/') {
        if step == "*" {
            let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten();
            let below = folders.into_iter().flat_map(below);
            folders = below.filter_map(|entry| Some(entry.ok()?.path())).collect();
            folders.retain(|path| path.is_dir());
        } else if step.contains(['*', '?', '[']) {
            return None;
        } else {
            folders.iter_mut().for_each(|folder| folder.push(step));
        }
    }
    Some(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a folder with these files. A file whose name does not end with `.toml` is a source
    /// file.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    const PACKAGE: &str = "[package]\nname = \"rust_app\"\nedition = \"2021\"\n";

    #[test]
    fn binaries_are_found_as_cargo_finds_them() {
        let main = ("src/main.rs", "fn main() {}");
        let with = |more: &str| format!("{PACKAGE}{more}");
        let renamed = "[[bin]]\nname = \"bootstrap\"\npath = \"src/main.rs\"\n";
        type Case<'a> = (&'a str, String, &'a [(&'a str, &'a str)], Option<&'a [&'a str]>);
        let cases: &[Case<'_>] = &[
            ("main", with(""), &[main], Some(&["rust_app"])),
            ("a library", with(""), &[("src/lib.rs", "")], Some(&[])),
            ("renamed", with(renamed), &[main], Some(&["bootstrap"])),
            (
                "src/bin",
                with(""),
                &[main, ("src/bin/one.rs", ""), ("src/bin/two/main.rs", ""), ("src/bin/x.txt", "")],
                Some(&["one", "rust_app", "two"]),
            ),
            (
                "both",
                with("[[bin]]\nname = \"one\"\npath = \"a.rs\"\n"),
                &[main],
                Some(&["one", "rust_app"]),
            ),
            ("autobins", with("autobins = false\n"), &[main], Some(&[])),
            (
                "2015",
                format!("[package]\nname = \"old\"\n{renamed}"),
                &[main, ("src/bin/one.rs", "")],
                Some(&["bootstrap"]),
            ),
            (
                "edition of the workspace",
                "[package]\nname = \"new\"\nedition.workspace = true\n[[bin]]\nname = \"a\"\n"
                    .to_owned(),
                &[main],
                Some(&["a", "new"]),
            ),
            ("no TOML", "[package".to_owned(), &[main], None),
            ("no name", "[package]\n".to_owned(), &[main], None),
        ];
        for (what, manifest, files, expected) in cases {
            let mut files = files.to_vec();
            files.push(("Cargo.toml", manifest));
            let folder = folder(&files);
            let expected =
                expected.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            assert_eq!(binaries(folder.path()).map(|found| found.own), expected, "{what}");
        }
    }

    #[test]
    fn facts_that_only_cargo_knows_are_not_reported() {
        let worker = ("worker/Cargo.toml", "[package]\nname = \"worker\"");
        let source = ("worker/src/main.rs", "fn main() {}");
        for (root, is_told) in [
            (
                "[workspace]\n[package]\nname = \"a\"\n[dependencies]\nw = { path = \"worker\" }",
                false,
            ),
            (
                "[workspace]\nmembers = [\"worker\"]\n[workspace.dependencies]\nw = { path = \"worker\" }",
                true,
            ),
            (
                "[workspace]\nexclude = [\"worker\"]\n[workspace.dependencies]\nw = { path = \"worker\" }",
                true,
            ),
            ("[workspace]\n[target.'cfg(unix)'.dependencies]\nw = { path = \"./worker\" }", false),
            ("[workspace]\n[dependencies]\nw = { path = \"gone\" }", true),
        ] {
            let folder = folder(&[("Cargo.toml", root), worker, source]);
            assert_eq!(binaries(folder.path()).is_some(), is_told, "{root}");
        }
    }

    #[test]
    fn a_workspace_has_the_binaries_of_its_members() {
        let of = |manifest: &str| {
            let two = "[package]\nname = \"two\"\n";
            folder(&[
                ("Cargo.toml", manifest),
                ("functions/one/Cargo.toml", PACKAGE),
                ("functions/one/src/main.rs", ""),
                ("functions/two/Cargo.toml", two),
                ("functions/two/src/main.rs", ""),
                ("functions/notes/README.md", ""),
            ])
        };
        let cases: &[(&str, Option<&[&str]>)] = &[
            ("[workspace]\nmembers = [\"functions/*\"]\n", Some(&["rust_app", "two"])),
            ("[workspace]\nmembers = [\"functions/one\"]\n", Some(&["rust_app"])),
            (
                "[workspace]\nmembers = [\"functions/*\"]\nexclude = [\"functions/two\"]\n",
                Some(&["rust_app"]),
            ),
            ("[workspace]\nmembers = [\"functions/t*\"]\n", None),
        ];
        for (manifest, expected) in cases {
            let folder = of(manifest);
            let expected =
                expected.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            assert_eq!(binaries(folder.path()).map(|found| found.own), expected, "{manifest}");
        }
        let folder = of("[workspace]\nmembers = [\"functions/*\"]\n");
        let member = binaries(&folder.path().join("functions/one")).unwrap();
        assert!(member.has("rust_app") && !member.has("two"));
    }
}
