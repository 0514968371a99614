//! `PutResourcePolicy`, `GetResourcePolicy` and `DeleteResourcePolicy`: a table's policy is stored
//! and given back. Nothing enforces it: this store knows no principals.
//!
//! Texts: as the service answers. Of a policy only what is plainly wrong is refused.

use std::sync::Arc;

use model::json::{self, Json};
use partition::{Command, ExpectedPolicy, OptionChange, POLICY_CHANGED, Reply, Table, UpdateTable};

use super::answer::text_member;
use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::resource_arn::{self, ResourceArn};
use crate::store::Store;

/// Largest policy in bytes, inclusive.
const POLICY_BYTES_MAX: usize = 20_480;
/// Characters of a revision, inclusive.
const REVISION_LENGTH_MAX: usize = 255;

/// Refuses what is no policy.
pub(crate) fn check_policy(text: &str) -> Result<(), ApiError> {
    if text.len() > POLICY_BYTES_MAX {
        return Err(ApiError::invalid_parameter(format!(
            "Maximum policy size of {POLICY_BYTES_MAX} bytes exceeded"
        )));
    }
    let invalid = |reason: &str| {
        Err(ApiError::invalid_parameter(format!("Invalid policy document: {reason}")))
    };
    match json::parse(text.as_bytes()) {
        Ok(Json::Null) => invalid("This text appears not to be a policy"),
        Ok(policy @ Json::Object(_)) => {
            let one;
            let statements = match policy.get("Statement") {
                Some(Json::Array(statements)) => statements.as_slice(),
                Some(statement @ Json::Object(_)) => {
                    one = [statement.clone()];
                    &one
                }
                _ => return invalid("Syntax error at position (1,3)"),
            };
            if statements.is_empty() {
                return invalid("Could not parse the policy: Statement is empty!");
            }
            for field in ["Effect", "Principal", "Action", "Resource"] {
                let not = format!("Not{field}");
                let has = |statement: &Json<'_>| {
                    statement.get(field).is_some() || statement.get(&not).is_some()
                };
                if !statements.iter().all(has) {
                    return invalid(&format!("Missing required field {field}"));
                }
            }
            Ok(())
        }
        _ => invalid("This policy contains invalid Json"),
    }
}

fn find(store: &Store, arn: &str) -> Result<Arc<Table>, ApiError> {
    match resource_arn::parse(store, arn)? {
        ResourceArn::Table(name) => {
            store.find_table(name).ok_or_else(|| ApiError::table_not_found(name))
        }
        ResourceArn::Elsewhere => {
            Err(ApiError::invalid_parameter(format!("Invalid resource Arn: {arn}")))
        }
    }
}

fn constrain_revision(constraints: &mut Constraints, revision: Option<&str>) {
    if let Some(revision) = revision {
        constraints.length("expectedRevisionId", revision, 1, REVISION_LENGTH_MAX);
    }
}

/// Refuses a change that expects another policy than the table's.
fn check_expected(table: &Table, revision: Option<&str>) -> Result<(), ApiError> {
    let name = &table.name;
    let found = table.options.policy.as_ref().map(|policy| policy.revision.to_string());
    let problem = match (revision, found) {
        (None, _) | (Some("NO_POLICY"), None) => return Ok(()),
        (Some(revision), Some(found)) if revision == found => return Ok(()),
        (Some("NO_POLICY"), Some(found)) => format!(
            "Requested policy update expecting none to be present for table {name}, but a policy exists with revision id {found}."
        ),
        (Some(revision), Some(found)) => format!(
            "Requested update for policy with revision id {revision}, but the policy associated to target table {name} has revision id {found}."
        ),
        (Some(revision), None) => format!(
            "Requested update for policy with revision id {revision}, but no policy is associated to target table {name}."
        ),
    };
    Err(ApiError::policy_not_found(&problem))
}

/// A revision that is no number was never given out, as 0 was not.
fn expected(revision: Option<&str>) -> ExpectedPolicy {
    match revision {
        None => ExpectedPolicy::Any,
        Some("NO_POLICY") => ExpectedPolicy::Absent,
        Some(revision) => ExpectedPolicy::Revision(revision.parse().unwrap_or(0)),
    }
}

pub(super) async fn put_resource_policy(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let arn = parameters.string("ResourceArn")?;
    let policy = parameters.string("Policy")?;
    let revision = parameters.string("ExpectedRevisionId")?;
    let mut constraints = Constraints::new();
    constraints.required("resourceArn", arn.is_some());
    constraints.required("policy", policy.is_some());
    constrain_revision(&mut constraints, revision);
    constraints.finish()?;
    let (arn, policy) = (arn.unwrap_or_default(), policy.unwrap_or_default());
    check_policy(policy)?;
    let table = find(store, arn)?;
    check_expected(&table, revision)?;
    let (text, expected) = (policy.to_owned(), expected(revision));
    let table = change(store, arn, &table, OptionChange::PutPolicy { text, expected }).await?;
    Ok(revision_of(table.options.policy.as_ref().map(|policy| policy.revision)))
}

pub(super) async fn delete_resource_policy(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let arn = parameters.string("ResourceArn")?;
    let revision = parameters.string("ExpectedRevisionId")?;
    let mut constraints = Constraints::new();
    constraints.required("resourceArn", arn.is_some());
    constrain_revision(&mut constraints, revision);
    constraints.finish()?;
    let arn = arn.unwrap_or_default();
    let table = find(store, arn)?;
    check_expected(&table, revision)?;
    let deleted = table.options.policy.as_ref().map(|policy| policy.revision);
    let expected = expected(revision);
    change(store, arn, &table, OptionChange::DeletePolicy { expected }).await?;
    Ok(revision_of(deleted))
}

pub(super) fn get_resource_policy(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let arn = parameters.string("ResourceArn")?;
    let mut constraints = Constraints::new();
    constraints.required("resourceArn", arn.is_some());
    constraints.finish()?;
    let arn = arn.unwrap_or_default();
    let table = find(store, arn)?;
    let policy = table.options.policy.as_ref().ok_or_else(|| ApiError::policy_not_found(arn))?;
    let mut out = String::from("{");
    text_member(&mut out, "Policy", &policy.text);
    text_member(&mut out, "RevisionId", &policy.revision.to_string());
    out.push('}');
    Ok(out)
}

async fn change(
    store: &Store,
    arn: &str,
    table: &Table,
    change: OptionChange,
) -> Result<Table, ApiError> {
    let update = UpdateTable::of_options(table.id, vec![change]);
    let replies = store.submit(vec![Command::UpdateTable(Box::new(update))]).await?;
    match replies.into_iter().next() {
        Some(Reply::Table(table)) => Ok(*table),
        Some(Reply::Invalid(text)) if text == POLICY_CHANGED => {
            Err(ApiError::policy_not_found(arn))
        }
        Some(Reply::TableNotFound) => Err(ApiError::resource_not_found()),
        _ => Err(ApiError::defect("a change of a policy was not answered with a table")),
    }
}

fn revision_of(revision: Option<u64>) -> String {
    let mut out = String::from("{");
    if let Some(revision) = revision {
        text_member(&mut out, "RevisionId", &revision.to_string());
    }
    out.push('}');
    out
}
