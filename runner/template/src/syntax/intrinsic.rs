//! The names of CloudFormation's intrinsic functions, the parts of a `Fn::Sub` string, and dynamic
//! references in strings.

use crate::diagnostic::{listed, similar};

/// An intrinsic function of CloudFormation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intrinsic {
    Ref,
    Condition,
    GetAtt,
    Sub,
    Join,
    Split,
    Select,
    If,
    Equals,
    And,
    Or,
    Not,
    FindInMap,
    Base64,
    ImportValue,
    GetAzs,
    Cidr,
    Length,
    ToJsonString,
    Transform,
    /// A function that is allowed only in the section `Rules`.
    OfRules,
}

/// The names of the functions in the short form, without the exclamation mark.
const NAMES: &[(&str, Intrinsic)] = &[
    ("Ref", Intrinsic::Ref),
    ("Condition", Intrinsic::Condition),
    ("GetAtt", Intrinsic::GetAtt),
    ("Sub", Intrinsic::Sub),
    ("Join", Intrinsic::Join),
    ("Split", Intrinsic::Split),
    ("Select", Intrinsic::Select),
    ("If", Intrinsic::If),
    ("Equals", Intrinsic::Equals),
    ("And", Intrinsic::And),
    ("Or", Intrinsic::Or),
    ("Not", Intrinsic::Not),
    ("FindInMap", Intrinsic::FindInMap),
    ("Base64", Intrinsic::Base64),
    ("ImportValue", Intrinsic::ImportValue),
    ("GetAZs", Intrinsic::GetAzs),
    ("Cidr", Intrinsic::Cidr),
    ("Length", Intrinsic::Length),
    ("ToJsonString", Intrinsic::ToJsonString),
    ("Transform", Intrinsic::Transform),
    ("Contains", Intrinsic::OfRules),
    ("EachMemberEquals", Intrinsic::OfRules),
    ("EachMemberIn", Intrinsic::OfRules),
    ("RefAll", Intrinsic::OfRules),
    ("ValueOf", Intrinsic::OfRules),
    ("ValueOfAll", Intrinsic::OfRules),
];

impl Intrinsic {
    /// Returns the function's name in the short form, such as `!Ref`.
    pub(crate) fn name(self) -> String {
        let name = NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| *name);
        format!("!{name}")
    }
}

/// Returns the function with this short form, without the exclamation mark.
pub(crate) fn from_short_form(name: &str) -> Option<Intrinsic> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, intrinsic)| *intrinsic)
}

/// Returns the function whose long form is this key: `Ref` or `Fn::name`.
///
/// `Condition: name` is a function only within a condition. The module `condition` recognises it.
pub(crate) fn from_long_form(key: &str) -> Option<Intrinsic> {
    match key.strip_prefix("Fn::") {
        None if key == "Ref" => Some(Intrinsic::Ref),
        None | Some("Ref" | "Condition") => None,
        Some(name) => from_short_form(name),
    }
}

/// Returns the short forms of all functions.
pub(crate) fn short_forms() -> Vec<String> {
    let everywhere = NAMES.iter().filter(|(_, known)| *known != Intrinsic::OfRules);
    everywhere.map(|(name, _)| format!("!{name}")).collect()
}

/// Returns the long forms of all functions.
pub(crate) fn long_forms() -> Vec<String> {
    NAMES
        .iter()
        .filter(|(name, known)| *name != "Condition" && *known != Intrinsic::OfRules)
        .map(|(name, _)| if *name == "Ref" { "Ref".to_owned() } else { format!("Fn::{name}") })
        .collect()
}

/// Returns the message and the advice for an unknown function.
pub(crate) fn unknown(written: &str, known: &[String]) -> (String, String) {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    // Names are compared without their common prefix.
    let name = written.trim_start_matches('!').trim_start_matches("Fn::");
    let meant = similar(name, NAMES.iter().map(|(name, _)| *name));
    let message = format!("unknown intrinsic function `{written}`");
    let help = if let Some(meant) = meant {
        format!("write `{}{meant}`", if written.starts_with('!') { "!" } else { "Fn::" })
    } else {
        format!("write {}", listed(known))
    };
    (message, help)
}

/// A part of a `Fn::Sub` string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A part that is copied unchanged.
    Literal(&'a str),
    /// A variable, `${Name}` or `${Resource.Attribute}`.
    Variable(&'a str),
}

/// Splits a `Fn::Sub` string into its parts. `${!Name}` is the literal `${Name}`.
///
/// A `${` without a `}` is also literal, as in CloudFormation.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        if !before.is_empty() {
            pieces.push(Piece::Literal(before));
        }
        match name.strip_prefix('!') {
            Some(literal) => {
                pieces.push(Piece::Literal("${"));
                pieces.push(Piece::Literal(literal));
                pieces.push(Piece::Literal("}"));
            }
            None => pieces.push(Piece::Variable(name.trim())),
        }
        rest = behind;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest));
    }
    pieces
}

/// The services from which CloudFormation reads values during a deployment.
const DYNAMIC_REFERENCES: &[&str] =
    &["{{resolve:secretsmanager:", "{{resolve:ssm:", "{{resolve:ssm-secure:"];

/// Returns the first dynamic reference in a string, such as `{{resolve:ssm:name}}`; `None` if there
/// is none.
pub(crate) fn dynamic_reference(text: &str) -> Option<&str> {
    DYNAMIC_REFERENCES.iter().find_map(|prefix| {
        let rest = text.get(text.find(prefix)?..)?;
        rest.get(..rest.find("}}")? + 2)
    })
}

#[cfg(test)]
mod tests {
    use super::{Piece, dynamic_reference, pieces};

    #[test]
    fn a_dynamic_reference_is_found_within_a_text() {
        let cases = [
            ("{{resolve:ssm:/app/name:1}}", Some("{{resolve:ssm:/app/name:1}}")),
            ("{{resolve:ssm-secure:name}}", Some("{{resolve:ssm-secure:name}}")),
            (
                "postgres://u:{{resolve:secretsmanager:db:SecretString:password}}@host",
                Some("{{resolve:secretsmanager:db:SecretString:password}}"),
            ),
            ("{{resolve:ssm:open", None),
            ("{{resolve:other:name}}", None),
            ("{{name}}", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(dynamic_reference(text), expected, "{text}");
        }
    }

    #[test]
    fn a_sub_text_is_cut_at_its_variables() {
        let cases: &[(&str, &[Piece<'_>])] = &[
            ("", &[]),
            ("plain", &[Piece::Literal("plain")]),
            ("${A}", &[Piece::Variable("A")]),
            ("x-${A.B}-y", &[Piece::Literal("x-"), Piece::Variable("A.B"), Piece::Literal("-y")]),
            ("${AWS::Region}${A}", &[Piece::Variable("AWS::Region"), Piece::Variable("A")]),
            ("${!A}", &[Piece::Literal("${"), Piece::Literal("A"), Piece::Literal("}")]),
            ("a${b", &[Piece::Literal("a${b")]),
            ("a$b}", &[Piece::Literal("a$b}")]),
        ];
        for (text, expected) in cases {
            assert_eq!(pieces(text), *expected, "{text}");
        }
    }
}
