//! The import graph of one crate's files, from their text: the modules that each module refers to.
//!
//! The reader follows `mod` declarations from the crate's root. It reads `use` items and paths in
//! code that begin with `crate`, `self`, `super`, a child module or an imported module. A path
//! refers to the deepest module in it that is a file. `#[cfg(test)]` items, comments and string
//! literals do not count. The reader is not a compiler: it does not resolve glob imports or macros.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The path of a module within its crate; empty for the crate's root.
pub(crate) type Module = Vec<String>;
/// For each module that is a file, the modules that it imports.
pub(crate) type Graph = BTreeMap<Module, BTreeSet<Module>>;
/// A function that returns the text of a file, or `None` if the file does not exist.
pub(crate) type ReadFile<'r> = dyn Fn(&Path) -> Option<String> + 'r;

/// A path in the text. If it is in a `use` item, also the name that the item brings into scope.
#[derive(Clone, Debug, PartialEq)]
struct Import {
    /// The inline modules that contain the path, outermost first.
    within: Vec<String>,
    segments: Vec<String>,
    alias: Option<String>,
}

#[derive(Default)]
struct Source {
    children: Vec<String>,
    imports: Vec<Import>,
}

/// Returns the import graph of a crate, starting at its root file.
pub(crate) fn graph_of(read: &ReadFile<'_>, root: &Path) -> Graph {
    let mut sources = BTreeMap::new();
    let mut open = vec![(Module::new(), root.to_owned())];
    while let Some((module, file)) = open.pop() {
        let text = read(&file).unwrap_or_else(|| panic!("{} is missing", file.display()));
        let source = parse(&text);
        for child in &source.children {
            let candidates = child_files(&file, module.is_empty(), child);
            let found = candidates.into_iter().find(|path| read(path).is_some());
            let found = found.unwrap_or_else(|| panic!("{}: no file of {child}", file.display()));
            open.push(([module.as_slice(), std::slice::from_ref(child)].concat(), found));
        }
        sources.insert(module, source);
    }
    let resolved = |(module, source): (&Module, &Source)| {
        (module.clone(), imported_modules(&sources, module, source))
    };
    sources.iter().map(resolved).collect()
}

/// Returns the two possible paths of the file of a child module.
fn child_files(file: &Path, is_root: bool, child: &str) -> [PathBuf; 2] {
    let folder = if is_root || file.ends_with("mod.rs") {
        file.parent().expect("a file is in a folder").to_owned()
    } else {
        file.with_extension("")
    };
    [folder.join(format!("{child}.rs")), folder.join(child).join("mod.rs")]
}

fn imported_modules(
    sources: &BTreeMap<Module, Source>,
    module: &Module,
    source: &Source,
) -> BTreeSet<Module> {
    let mut aliases: BTreeMap<&str, Module> = BTreeMap::new();
    for import in &source.imports {
        if let (Some(alias), Some(path)) =
            (&import.alias, resolve(module, source, &aliases, import))
            && sources.contains_key(&path)
        {
            aliases.insert(alias, path);
        }
    }
    let mut found = BTreeSet::new();
    for import in &source.imports {
        if let Some(mut path) = resolve(module, source, &aliases, import) {
            while !sources.contains_key(&path) {
                path.pop();
            }
            found.insert(path);
        }
    }
    found.remove(module);
    found
}

/// Returns a path from the crate's root; `None` if it begins in another crate or with an item.
fn resolve(
    module: &Module,
    source: &Source,
    aliases: &BTreeMap<&str, Module>,
    import: &Import,
) -> Option<Module> {
    let mut rest = import.segments.as_slice();
    let mut path = match rest.first()?.as_str() {
        "crate" => {
            rest = &rest[1..];
            Module::new()
        }
        "self" | "super" => {
            let mut path = [module.as_slice(), &import.within].concat();
            while let Some(first @ ("self" | "super")) = rest.first().map(String::as_str) {
                if first == "super" {
                    path.pop();
                }
                rest = &rest[1..];
            }
            path
        }
        first if source.children.iter().any(|child| child == first) => module.clone(),
        first => {
            let path = aliases.get(first)?.clone();
            rest = &rest[1..];
            path
        }
    };
    path.extend_from_slice(rest);
    Some(path)
}

/// Reads the declarations of child modules and all paths of a file.
fn parse(text: &str) -> Source {
    let tokens = without_tests(&tokens(text));
    let mut source = Source::default();
    // Inline modules, each with the depth of braces around it.
    let (mut within, mut depth): (Vec<(String, usize)>, usize) = (Vec::new(), 0);
    let token = |place: usize| tokens.get(place).map_or("", String::as_str);
    let mut place = 0;
    while place < tokens.len() {
        let names =
            |within: &[(String, usize)]| within.iter().map(|(name, _)| name.clone()).collect();
        match (token(place), token(place + 1), token(place + 2)) {
            ("mod", child, ";") => {
                source.children.push(child.to_owned());
                place += 3;
            }
            ("mod", name, "{") => {
                within.push((name.to_owned(), depth));
                depth += 1;
                place += 3;
            }
            ("{", ..) => {
                depth += 1;
                place += 1;
            }
            ("}", ..) => {
                depth = depth.saturating_sub(1);
                within.pop_if(|(_, outside)| *outside == depth);
                place += 1;
            }
            ("use", next, _) if next != "<" && next != "::" => {
                let mut leaves = Vec::new();
                place = parse_use(&tokens, place + 1, &[], &mut leaves);
                let within: Vec<_> = names(&within);
                source.imports.extend(leaves.into_iter().map(|(segments, alias)| Import {
                    within: within.clone(),
                    segments,
                    alias,
                }));
            }
            (first, "::", _) if is_name(first) && !is_continued(&tokens, place) => {
                let mut segments = vec![first.to_owned()];
                // `pub(in crate::a)` is not an import.
                let is_visibility =
                    place > 1 && token(place - 1) == "in" && token(place - 2) == "(";
                place += 1;
                while token(place) == "::" && is_name(token(place + 1)) {
                    segments.push(token(place + 1).to_owned());
                    place += 2;
                }
                if !is_visibility {
                    source.imports.push(Import { within: names(&within), segments, alias: None });
                }
            }
            _ => place += 1,
        }
    }
    source
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Returns whether the token before a position belongs to the same path or to a method call.
fn is_continued(tokens: &[String], place: usize) -> bool {
    place > 0 && matches!(tokens[place - 1].as_str(), "::" | ".")
}

/// Reads one tree of a `use` item and returns the position after it.
fn parse_use(
    tokens: &[String],
    mut place: usize,
    prefix: &[String],
    leaves: &mut Vec<(Vec<String>, Option<String>)>,
) -> usize {
    let mut path = prefix.to_vec();
    let token = |place: usize| tokens.get(place).map_or("", String::as_str);
    loop {
        match token(place) {
            "{" => {
                place += 1;
                while !matches!(token(place), "}" | "") {
                    place = parse_use(tokens, place, &path, leaves);
                    place += usize::from(token(place) == ",");
                }
                return place + 1;
            }
            "*" => {
                leaves.push((path, None));
                return place + 1;
            }
            "::" => place += 1,
            name => {
                if name != "self" || path.is_empty() {
                    path.push(name.to_owned());
                }
                place += 1;
                if token(place) == "as" {
                    leaves.push((path, Some(token(place + 1).to_owned())));
                    return place + 2;
                }
                if token(place) != "::" {
                    let alias = path.last().cloned();
                    leaves.push((path, alias));
                    return place;
                }
            }
        }
    }
}

/// Returns the tokens without attributes and without items that have `#[cfg(test)]`.
pub(crate) fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut kept = Vec::with_capacity(tokens.len());
    let token = |place: usize| tokens.get(place).map_or("", String::as_str);
    let mut place = 0;
    while place < tokens.len() {
        if token(place) != "#" || token(place + 1) != "[" {
            kept.push(tokens[place].clone());
            place += 1;
            continue;
        }
        let end = behind_group(tokens, place + 1);
        let words: Vec<_> = tokens[place + 2..end].iter().map(String::as_str).collect();
        place = match words.as_slice() {
            ["cfg", "(", "test", ")", ..] | ["cfg", "(", "all", "(", "test", ..] => {
                behind_item(tokens, end)
            }
            _ => end,
        };
    }
    kept
}

/// Returns the position after the closing bracket of the group that begins at a position.
fn behind_group(tokens: &[String], mut place: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(token) = tokens.get(place) {
        place += 1;
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 1 => return place,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    place
}

/// Returns the position after an item: after its braces, or after its semicolon.
fn behind_item(tokens: &[String], mut place: usize) -> usize {
    while let Some(token) = tokens.get(place) {
        match token.as_str() {
            "(" | "[" => place = behind_group(tokens, place),
            "{" => return behind_group(tokens, place),
            ";" => return place + 1,
            _ => place += 1,
        }
    }
    place
}

/// Splits a text into names, `::` and single characters, without comments, literals and lifetimes.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    let mut rest = text;
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let is_part_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment_length(rest)
        } else if let Some(length) = text_length(rest) {
            length
        } else if is_part_of_name(first) {
            let length = rest.find(|c| !is_part_of_name(c)).unwrap_or(rest.len());
            found.push(rest[..length].to_owned());
            length
        } else {
            let length = if rest.starts_with("::") { 2 } else { first.len_utf8() };
            if !first.is_whitespace() {
                found.push(rest[..length].to_owned());
            }
            length
        };
        rest = &rest[length..];
    }
    found
}

fn block_comment_length(rest: &str) -> usize {
    let (mut depth, mut place) = (0_usize, 0);
    while place < rest.len() {
        let here = &rest[place..];
        if here.starts_with("/*") {
            (depth, place) = (depth + 1, place + 2);
        } else if here.starts_with("*/") {
            (depth, place) = (depth - 1, place + 2);
            if depth == 0 {
                break;
            }
        } else {
            place += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    place
}

/// Returns the length of the string, character or lifetime at the beginning of a text.
fn text_length(rest: &str) -> Option<usize> {
    let plain = rest.strip_prefix('b').or_else(|| rest.strip_prefix('c')).unwrap_or(rest);
    let prefix = rest.len() - plain.len();
    if let Some(raw) = plain.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = &raw[hashes + 1..];
            let length = body.find(&end).map_or(body.len(), |length| length + end.len());
            return Some(prefix + 1 + hashes + 1 + length);
        }
    }
    if plain.starts_with('"') {
        return Some(prefix + quoted_length(plain, '"'));
    }
    let character = plain.strip_prefix('\'')?;
    let mut characters = character.chars();
    let (first, second) = (characters.next()?, characters.next());
    if first == '\\' || second == Some('\'') {
        return Some(prefix + quoted_length(plain, '\''));
    }
    let name = character.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(prefix + 1 + name.unwrap_or(character.len()))
}

/// Returns the length of a quoted text including both quotes; a backslash escapes the next
/// character.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut characters = rest.char_indices().skip(1);
    while let Some((place, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return place + 1;
        }
    }
    rest.len()
}
