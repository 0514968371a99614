//! Document paths as a person types them: `info.rating`, `tags[0]`, `"a.b".c`.
//!
//! A name with a dot, a bracket, a comma or a quote is written as a JSON string. Names in the path
//! are attribute names. The caller replaces them by placeholders.

use std::fmt;

/// One step of a document path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An attribute, or a member of a map.
    Name(String),
    /// A member of a list.
    Index(u32),
}

/// A path to a value in an item. It begins with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentPath(pub(crate) Vec<Step>);

/// The error of a string that is not a document path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    /// An empty name.
    #[error("a name is missing")]
    NoName,
    /// A quoted name that is not closed, or is not a JSON string.
    #[error("a quoted name is not a JSON string")]
    Quote,
    /// Brackets that do not contain a whole number.
    #[error("`[` must be followed by a whole number and `]`")]
    Index,
    /// A missing separator between two steps.
    #[error("a quoted name or `]` must be followed by `.` or `[`")]
    Separator,
}

impl DocumentPath {
    /// Parses one path.
    ///
    /// # Errors
    /// A step is malformed.
    pub(crate) fn parse(text: &str) -> Result<Self, PathError> {
        match Self::parse_list(text)?.as_slice() {
            [path] => Ok(path.clone()),
            // A comma outside quotes is an error, because it would begin a second path.
            _ => Err(PathError::Separator),
        }
    }

    /// Parses comma-separated paths. An empty string gives an empty list.
    ///
    /// # Errors
    /// A step is malformed, or a path is empty.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Self>, PathError> {
        let mut paths = Vec::new();
        let mut rest = text.trim();
        if rest.is_empty() {
            return Ok(paths);
        }
        loop {
            let (path, behind) = parse_path(rest)?;
            paths.push(path);
            match behind.strip_prefix(',') {
                Some(next) => rest = next.trim_start(),
                None => return Ok(paths),
            }
        }
    }
}

/// Parses a path up to a comma or the end. Also returns the rest of the string.
fn parse_path(text: &str) -> Result<(DocumentPath, &str), PathError> {
    let (name, mut rest) = parse_name(text)?;
    let mut steps = vec![Step::Name(name)];
    loop {
        let trimmed = rest.trim_start();
        if let Some(behind) = rest.strip_prefix('.') {
            let (name, behind) = parse_name(behind)?;
            steps.push(Step::Name(name));
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix('[') {
            let (digits, behind) = behind.split_once(']').ok_or(PathError::Index)?;
            steps.push(Step::Index(digits.trim().parse().map_err(|_| PathError::Index)?));
            rest = behind;
        } else if trimmed.is_empty() || trimmed.starts_with(',') {
            return Ok((DocumentPath(steps), trimmed));
        } else {
            return Err(PathError::Separator);
        }
    }
}

/// Parses a quoted or plain name. Also returns the rest of the string.
fn parse_name(text: &str) -> Result<(String, &str), PathError> {
    if text.starts_with('"') {
        let mut names = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let name = names.next().and_then(Result::ok).ok_or(PathError::Quote)?;
        let behind = text.get(names.byte_offset()..).unwrap_or_default();
        return if name.is_empty() { Err(PathError::NoName) } else { Ok((name, behind)) };
    }
    let end = text.find(['.', '[', ',']).unwrap_or(text.len());
    let (name, behind) = text.split_at(end);
    // White space around a comma is not part of a name.
    let name = if behind.is_empty() || behind.starts_with(',') { name.trim_end() } else { name };
    if name.is_empty() { Err(PathError::NoName) } else { Ok((name.to_owned(), behind)) }
}

/// Formats a path so that [`DocumentPath::parse`] parses it.
impl fmt::Display for DocumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Name(name) => {
                    f.write_str(if position == 0 { "" } else { "." })?;
                    let is_plain = !name.starts_with('"')
                        && !name.contains(['.', '[', ','])
                        && name.trim() == name;
                    if is_plain {
                        f.write_str(name)?;
                    } else {
                        f.write_str(&serde_json::Value::from(name.as_str()).to_string())?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_are_parsed_step_by_step() {
        for (text, expected) in [
            ("year", "[[n:year]]"),
            (" info.rating , tags[0][12].x", "[[n:info n:rating] [n:tags i:0 i:12 n:x]]"),
            (r#""a.b".c"#, "[[n:a.b n:c]]"),
            (r#""a,b",it's"#, "[[n:a,b] [n:it's]]"),
            ("<script>alert(1)</script>", "[[n:<script>alert(1)</script>]]"),
            (r#"say"hi""#, r#"[[n:say"hi"]]"#),
            ("a b", "[[n:a b]]"),
            ("", "[]"),
            ("a..b", "a name is missing"),
            ("a,", "a name is missing"),
            (".a", "a name is missing"),
            ("\"a", "a quoted name is not a JSON string"),
            ("\"\"", "a name is missing"),
            ("a[x]", "`[` must be followed by a whole number and `]`"),
            ("a[1", "`[` must be followed by a whole number and `]`"),
            ("a[-1]", "`[` must be followed by a whole number and `]`"),
            ("a[1]b", "a quoted name or `]` must be followed by `.` or `[`"),
            ("\"a\"b", "a quoted name or `]` must be followed by `.` or `[`"),
        ] {
            let found = match DocumentPath::parse_list(text) {
                Err(error) => error.to_string(),
                Ok(paths) => {
                    let step = |step: &Step| match step {
                        Step::Name(name) => format!("n:{name}"),
                        Step::Index(index) => format!("i:{index}"),
                    };
                    let path = |path: &DocumentPath| {
                        let steps: Vec<_> = path.0.iter().map(step).collect();
                        format!("[{}]", steps.join(" "))
                    };
                    let paths: Vec<_> = paths.iter().map(path).collect();
                    format!("[{}]", paths.join(" "))
                }
            };
            assert_eq!(found, expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_written_path_is_read_again(
            first in "\\PC{1,6}",
            others in prop::collection::vec(
                prop_oneof![
                    "\\PC{1,6}".prop_map(Step::Name),
                    any::<u32>().prop_map(Step::Index),
                ],
                0..4,
            ),
        ) {
            let steps = std::iter::once(Step::Name(first)).chain(others).collect();
            let path = DocumentPath(steps);
            prop_assert_eq!(DocumentPath::parse(&path.to_string()), Ok(path.clone()));
        }
    }
}
