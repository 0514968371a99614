//! Conversions between an object's key and the relative path of its file. The conversions are reversible, and
//! the path never leaves the bucket's folder.
//!
//! The functions are pure. Each part of a key (the text between slashes) is used as a file name, if possible.
//! Otherwise the name is `%~` followed by the part, with every byte except `A-Z a-z 0-9 - _ =` as `%XX`. This
//! applies to the empty part (`a//b`, `/a`, and the end of `folder/`), to `.` and `..`, to parts with a
//! control character or a backslash, and to parts that begin with `%~`.

use std::path::PathBuf;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::Error;

const ESCAPE: &str = "%~";

/// The characters that an escaped name replaces.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'=');

/// The maximum length of a key in bytes. Source: Amazon S3 user guide, "Naming Amazon S3 objects".
const KEY_BYTES_MAX: usize = 1_024;

/// The maximum length of a file name in bytes on common file systems (ext4, XFS, APFS, NTFS).
const NAME_BYTES_MAX: usize = 255;

/// Returns the relative path of a key's file. The path consists of at least one plain file name.
pub(super) fn path_of(key: &str) -> Result<PathBuf, Error> {
    if key.is_empty() {
        let reason = "the key is empty; write at least one character".to_owned();
        return Err(Error::InvalidKey { key: String::new(), reason });
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { key: key.to_owned() });
    }
    let mut path = PathBuf::new();
    for part in key.split('/') {
        let name = name_of(part);
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::KeyTooLong { key: key.to_owned() });
        }
        path.push(name);
    }
    Ok(path)
}

/// Returns the file name of one part of a key.
pub(super) fn name_of(part: &str) -> String {
    if is_plain(part) {
        return part.to_owned();
    }
    format!("{ESCAPE}{}", utf8_percent_encode(part, ESCAPED))
}

/// Returns the part of a key for a file name. Returns `None` for a name that `name_of` never returns,
/// such as the name of a file that a user copied into the folder.
pub(super) fn part_of(name: &str) -> Option<String> {
    let Some(escaped) = name.strip_prefix(ESCAPE) else {
        return is_plain(name).then(|| name.to_owned());
    };
    let part = percent_decode_str(escaped).decode_utf8().ok()?.into_owned();
    // Only the form that `name_of` writes is accepted, so two files never have the same key. A part contains
    // no slash.
    (name_of(&part) == name && !part.contains('/')).then_some(part)
}

fn is_plain(part: &str) -> bool {
    !matches!(part, "" | "." | "..")
        && !part.starts_with(ESCAPE)
        && !part.chars().any(|c| c.is_control() || matches!(c, '/' | '\\'))
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_and_their_paths() {
        let long = "x".repeat(255);
        let cases = [
            ("a", "a"),
            ("votes/year=2021/part-0.parquet", "votes/year=2021/part-0.parquet"),
            ("movies/title=Am%20Ende/x", "movies/title=Am%20Ende/x"),
            ("100%/x", "100%/x"),
            ("naïve/日本", "naïve/日本"),
            (".hidden", ".hidden"),
            ("...", "..."),
            ("a b;'\"$(id){{7*7}}#:", "a b;'\"$(id){{7*7}}#:"),
            ("..%2f..%2fetc", "..%2f..%2fetc"),
            (&long, &long),
            ("../../etc/passwd", "%~%2E%2E/%~%2E%2E/etc/passwd"),
            ("/etc/passwd", "%~/etc/passwd"),
            ("a//b", "a/%~/b"),
            ("folder/", "folder/%~"),
            (".", "%~%2E"),
            ("nul\0", "%~nul%00"),
            ("c:\\windows", "%~c%3A%5Cwindows"),
            ("%~", "%~%25%7E"),
            ("line\nbreak", "%~line%0Abreak"),
        ];
        for (key, path) in cases {
            assert_eq!(path_of(key).unwrap().to_str(), Some(path), "{key:?}");
        }
    }

    #[test]
    fn keys_that_no_file_can_have_are_refused() {
        assert!(matches!(path_of(""), Err(Error::InvalidKey { .. })));
        for key in ["x".repeat(256), "/".repeat(1_025), format!("{}\n", "é".repeat(100))] {
            assert!(matches!(path_of(&key), Err(Error::KeyTooLong { .. })), "{key}");
        }
    }

    #[test]
    fn names_that_no_key_has_are_not_keys() {
        for name in [
            "%~a", "%~%2e", "%~%", "%~%4", "%~%FF", "%~%GG", "%~%41", "%~%2F", "", ".", "..",
            "a\tb",
        ] {
            assert_eq!(part_of(name), None, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn a_path_stays_below_the_bucket_and_reads_back(
            key in "([a-z%~.\\\\/\u{0}\n é:]|\\.\\./|//|%~|%2[fF]|%2[eE]){1,40}"
        ) {
            let path = path_of(&key).unwrap();
            let mut parts = Vec::new();
            for component in path.components() {
                prop_assert!(matches!(component, Component::Normal(_)));
                parts.push(part_of(component.as_os_str().to_str().unwrap()).unwrap());
            }
            prop_assert_eq!(parts.join("/"), key);
        }

        #[test]
        fn no_two_parts_share_a_file_name(a in "[a-b%~.]{0,4}", b in "[a-b%~.]{0,4}") {
            prop_assert_eq!(name_of(&a) == name_of(&b), a == b);
        }
    }
}
