//! Markers in the files of `runner/init/`: `{{name}}` is replaced by a value.
//!
//! There are no conditions and no loops. A line that consists of a marker is omitted if the value is
//! empty. Markers inside a value are not replaced.

/// The value of each marker.
pub(super) type Values<'v> = Vec<(&'v str, String)>;

/// Returns the text with all markers replaced by their values.
pub(super) fn fill(text: &str, values: &Values<'_>) -> String {
    let mut filled = String::new();
    for line in text.split_inclusive('\n') {
        let is_left_out = values
            .iter()
            .any(|(name, value)| value.is_empty() && line.trim() == format!("{{{{{name}}}}}"));
        if !is_left_out {
            fill_line(line, values, &mut filled);
        }
    }
    filled
}

fn fill_line(line: &str, values: &Values<'_>, filled: &mut String) {
    let mut rest = line;
    while let Some(at) = rest.find("{{") {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        let found = values.iter().find_map(|(name, value)| {
            let behind = from.strip_prefix("{{")?.strip_prefix(name)?.strip_prefix("}}")?;
            Some((value, behind))
        });
        match found {
            Some((value, behind)) => {
                filled.push_str(value);
                rest = behind;
            }
            // The first brace is JSON, and the marker begins after it.
            None => {
                filled.push('{');
                rest = from.strip_prefix('{').unwrap_or_default();
            }
        }
    }
    filled.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_become_values() {
        let values =
            vec![("a", "1".to_owned()), ("none", String::new()), ("b", "{{a}}".to_owned())];
        for (text, expected) in [
            ("x {{a}} {{a}}\n", "x 1 1\n"),
            ("'{{{a}}}'", "'{1}'"),
            ("{{b}}", "{{a}}"),
            ("{{other}} {{", "{{other}} {{"),
            ("one\n  {{none}}\ntwo {{none}}.\n", "one\ntwo .\n"),
        ] {
            assert_eq!(fill(text, &values), expected, "{text}");
        }
    }
}
