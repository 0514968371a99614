//! The style, the script and the icon. They are compiled into the binary, so a page works offline.

use crate::response::Content;

/// Returns an asset by its name.
pub(crate) fn find(name: &str) -> Option<(Content, &'static str)> {
    match name {
        "console.css" => Some((Content::Css, include_str!("console.css"))),
        "console.js" => Some((Content::Script, include_str!("console.js"))),
        "icon.svg" => Some((Content::Svg, include_str!("icon.svg"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_stays_small() {
        let (_, script) = find("console.js").unwrap();
        assert!(script.len() < 10 * 1024, "{} bytes", script.len());
    }
}
