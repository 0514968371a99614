//! Resource policies as JSON documents: validates them, and normalises them to the form in which
//! DynamoDB returns and compares them.
//!
//! The store does not enforce policies. The only semantic check rejects a policy that grants access
//! to everyone.

use std::collections::BTreeSet;

use model::json::{self, Json};

use super::answer::begin_member;
use super::error::ApiError;

/// The maximum size of a policy in bytes, inclusive.
const POLICY_BYTES_MAX: usize = 20_480;
/// The version that DynamoDB assumes for a policy without `Version`.
const VERSION_UNSAID: &str = "2008-10-17";
/// The members of a policy, in the order of the response.
const OF_POLICY: [&str; 3] = ["Version", "Id", "Statement"];
/// The members of a statement, in the order of the response.
const OF_STATEMENT: [&str; 9] = [
    "Sid",
    "Effect",
    "Principal",
    "NotPrincipal",
    "Action",
    "NotAction",
    "Resource",
    "NotResource",
    "Condition",
];

/// The members of an object.
type Members<'m, 'j> = Vec<(&'m str, &'m Json<'j>)>;

/// Validates a policy and returns its canonical form, in which policies are compared. A missing
/// `Version` is not added, so a policy without it differs from a policy with the default version.
pub(crate) fn canonical(text: &str) -> Result<String, ApiError> {
    if text.len() > POLICY_BYTES_MAX {
        return Err(ApiError::invalid_parameter(format!(
            "Maximum policy size of {POLICY_BYTES_MAX} bytes exceeded"
        )));
    }
    match json::parse(text.as_bytes()) {
        Ok(Json::Null) => invalid("This text appears not to be a policy"),
        Ok(policy @ Json::Object(_)) => {
            check(text, &policy)?;
            Ok(written(&policy, false))
        }
        _ => invalid("This policy contains invalid Json"),
    }
}

/// Returns a stored policy in the form of a response. The policy is normalised, because earlier
/// releases stored policies as they were sent.
pub(crate) fn shown(stored: &str) -> String {
    json::parse(stored.as_bytes())
        .map_or_else(|_| stored.to_owned(), |policy| written(&policy, true))
}

/// Returns whether a stored policy equals a policy in the canonical form.
pub(crate) fn is_stored(stored: &str, canonical: &str) -> bool {
    stored == canonical
        || json::parse(stored.as_bytes()).is_ok_and(|policy| written(&policy, false) == canonical)
}

fn invalid<T>(reason: &str) -> Result<T, ApiError> {
    Err(ApiError::invalid_parameter(format!("Invalid policy document: {reason}")))
}

/// Returns the statements of a policy. A single statement need not be in a list.
fn statements<'p, 'j>(policy: &'p Json<'j>) -> Option<&'p [Json<'j>]> {
    match policy.get("Statement")? {
        Json::Array(statements) => Some(statements),
        statement @ Json::Object(_) => Some(std::slice::from_ref(statement)),
        _ => None,
    }
}

fn check(text: &str, policy: &Json<'_>) -> Result<(), ApiError> {
    let Some(statements) = statements(policy) else {
        return invalid("Syntax error at position (1,3)");
    };
    if statements.is_empty() {
        return invalid("Could not parse the policy: Statement is empty!");
    }
    for field in ["Effect", "Principal", "Action", "Resource"] {
        let not = format!("Not{field}");
        let has =
            |statement: &Json<'_>| statement.get(field).is_some() || statement.get(&not).is_some();
        if !statements.iter().all(has) {
            return invalid(&format!("Missing required field {field}"));
        }
    }
    if let Some((line, column)) = behind_bare_principal(text) {
        return invalid(&format!("Syntax error at position ({line},{column})"));
    }
    let mut seen = BTreeSet::new();
    let mut ids = statements.iter().filter_map(|statement| statement.get("Sid")?.as_str());
    if !ids.all(|id| seen.insert(id)) {
        return invalid("The Statement Ids in the policy are not unique");
    }
    if statements.iter().any(is_unbounded) {
        return Err(ApiError::validation(
            "Resource-based policy grants unbounded access in one or more elements. Please revise the policy to ensure least-privilege form of access",
        ));
    }
    Ok(())
}

/// Returns the line and the column, both counted from 1, after the first principal that is a string
/// other than `*`.
fn behind_bare_principal(text: &str) -> Option<(usize, usize)> {
    let end = ["\"Principal\"", "\"NotPrincipal\""]
        .iter()
        .flat_map(|name| text.match_indices(name).map(|(at, name)| at + name.len()))
        .filter_map(|at| {
            let value = text.get(at..)?.trim_start().strip_prefix(':')?.trim_start();
            let (principal, rest) = value.strip_prefix('"')?.split_once('"')?;
            (principal != "*").then_some(text.len() - rest.len())
        })
        .min()?;
    let before = text.get(..end)?;
    let line = before.rsplit('\n').next().unwrap_or(before);
    Some((before.matches('\n').count() + 1, line.chars().count() + 1))
}

/// Returns whether a statement grants access to everyone without a condition.
fn is_unbounded(statement: &Json<'_>) -> bool {
    let allows = statement
        .get("Effect")
        .and_then(Json::as_str)
        .is_some_and(|effect| effect.eq_ignore_ascii_case("Allow"));
    let is_everybody = |principal: &Json<'_>| principal.as_str() == Some("*");
    let names_everybody = match statement.get("Principal") {
        Some(principal @ Json::Object(_)) => match principal.get("AWS") {
            Some(Json::Array(principals)) => principals.iter().any(is_everybody),
            Some(principal) => is_everybody(principal),
            None => false,
        },
        Some(principal) => is_everybody(principal),
        None => false,
    };
    allows && names_everybody && statement.get("Condition").is_none()
}

/// Returns a policy as JSON without white space. Members are in DynamoDB's order, and a list of one
/// element is replaced by the element.
fn written(policy: &Json<'_>, with_version: bool) -> String {
    let mut out = String::from("{");
    if with_version && policy.get("Version").is_none() {
        out.push_str("\"Version\":\"");
        out.push_str(VERSION_UNSAID);
        out.push('"');
    }
    for (name, value) in in_order(policy, &OF_POLICY) {
        begin_member(&mut out, name);
        match value {
            Json::Object(_) if name == "Statement" => {
                out.push('[');
                write_statement(&mut out, value);
                out.push(']');
            }
            Json::Array(statements) if name == "Statement" => {
                json::write_list(&mut out, statements, write_statement);
            }
            other => write(&mut out, other),
        }
    }
    out.push('}');
    out
}

/// Returns the members of an object: first the members named in `order`, in this order, then all
/// others.
fn in_order<'m, 'j>(object: &'m Json<'j>, order: &[&str]) -> Members<'m, 'j> {
    let mut members: Members<'m, 'j> =
        object.as_object().into_iter().flatten().map(|(name, value)| (&**name, value)).collect();
    let place = |name: &str| order.iter().position(|known| *known == name);
    members.sort_by_key(|(name, _)| place(name).unwrap_or(order.len()));
    members
}

fn write_statement(out: &mut String, statement: &Json<'_>) {
    if statement.as_object().is_none() {
        return write(out, statement);
    }
    out.push('{');
    for (name, value) in in_order(statement, &OF_STATEMENT) {
        begin_member(out, name);
        match (name, value) {
            ("Effect", Json::String(effect)) => {
                let known = ["Allow", "Deny"].into_iter();
                let found = known.into_iter().find(|known| known.eq_ignore_ascii_case(effect));
                json::write_string(out, found.unwrap_or(effect));
            }
            ("Principal" | "NotPrincipal", principals @ Json::Object(_)) => {
                write_principals(out, principals);
            }
            ("Condition", Json::Object(operators)) => write_condition(out, operators),
            (_, value) => write_short(out, value),
        }
    }
    out.push('}');
}

fn write_principals(out: &mut String, principals: &Json<'_>) {
    out.push('{');
    for (kind, value) in in_order(principals, &[]) {
        begin_member(out, kind);
        let one = std::slice::from_ref(value);
        let all = value.as_array().unwrap_or(one);
        let texts: Option<Vec<&str>> = all.iter().map(Json::as_str).collect();
        let Some(texts) = texts.filter(|_| kind == "AWS") else {
            write_short(out, value);
            continue;
        };
        // An account is written as the ARN of its root user. Duplicates are removed.
        let mut named: Vec<String> = Vec::new();
        for text in texts {
            let is_account = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
            let name =
                if is_account { format!("arn:aws:iam::{text}:root") } else { text.to_owned() };
            if !named.contains(&name) {
                named.push(name);
            }
        }
        match named.as_slice() {
            [only] => json::write_string(out, only),
            all => json::write_list(out, all, |out, name| json::write_string(out, name)),
        }
    }
    out.push('}');
}

/// Writes a condition: its operators, each with keys and their values.
fn write_condition(out: &mut String, operators: &[(std::borrow::Cow<'_, str>, Json<'_>)]) {
    out.push('{');
    for (operator, keys) in operators {
        begin_member(out, operator);
        let Some(keys) = keys.as_object() else {
            write(out, keys);
            continue;
        };
        out.push('{');
        for (key, value) in keys {
            begin_member(out, key);
            write_short(out, value);
        }
        out.push('}');
    }
    out.push('}');
}

/// Writes a list. A list of one element is replaced by the element.
fn write_short(out: &mut String, value: &Json<'_>) {
    match value {
        Json::Array(members) => match members.as_slice() {
            [only] => write(out, only),
            _ => write(out, value),
        },
        other => write(out, other),
    }
}

fn write(out: &mut String, value: &Json<'_>) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Json::Integer(number) => out.push_str(&number.to_string()),
        Json::Float(number) => out.push_str(&number.to_string()),
        Json::String(text) => json::write_string(out, text),
        Json::Array(members) => json::write_list(out, members, write),
        Json::Object(members) => {
            out.push('{');
            for (name, member) in members {
                begin_member(out, name);
                write(out, member);
            }
            out.push('}');
        }
        // A policy contains no items: the parser creates items only for operations that have them.
        Json::Item(_) => out.push_str("{}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: if a client sends a policy that the store returned, the store returns it unchanged.
    #[test]
    fn the_returned_form_is_stable() {
        for (sent, given_back) in [
            (
                r#"{"Statement": {"Action": ["a:b"], "Resource": "*", "Effect": "allow", "Principal": {"AWS": ["123456789012", "arn:aws:iam::123456789012:root"]}}}"#,
                r#"{"Version":"2008-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"a:b","Resource":"*"}]}"#,
            ),
            (
                r#"{"Statement":[{"Condition":{"StringEquals":{"aws:PrincipalAccount":["1"]},"Bool":{"x":true}},"Resource":["b","a"],"Action":["c","c"],"Principal":{"AWS":["b","a"],"Service":["s"]},"Effect":"Deny","Sid":"\u0056"}],"Version":"2012-10-17"}"#,
                r#"{"Version":"2012-10-17","Statement":[{"Sid":"V","Effect":"Deny","Principal":{"AWS":["b","a"],"Service":"s"},"Action":["c","c"],"Resource":["b","a"],"Condition":{"StringEquals":{"aws:PrincipalAccount":"1"},"Bool":{"x":true}}}]}"#,
            ),
        ] {
            let canonical = canonical(sent).unwrap();
            assert_eq!(shown(&canonical), given_back);
            assert_eq!(shown(given_back), given_back);
            assert!(is_stored(sent, &canonical));
        }
        assert_eq!(shown("not a policy"), "not a policy");
    }

    #[test]
    fn places_of_principals_count_from_one() {
        for (text, place) in [
            (r#"{"Principal":"123"}"#, Some((1, 19))),
            ("{\n \"Principal\" : \"é\",", Some((2, 19))),
            (r#"{"NotPrincipal":"*","Principal":{"AWS":"1"}}"#, None),
            (r#"{"Sid":"Principal"}"#, None),
        ] {
            assert_eq!(behind_bare_principal(text), place, "{text}");
        }
    }
}
