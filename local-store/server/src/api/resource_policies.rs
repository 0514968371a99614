//! `PutResourcePolicy`, `GetResourcePolicy` and `DeleteResourcePolicy`: store and return a table's policy.
//! The store does not enforce policies, because it has no users.
//!
//! The error messages are those of DynamoDB. `policy_document` checks policies.

use std::sync::Arc;

use partition::{Command, ExpectedPolicy, OptionChange, POLICY_CHANGED, Reply, Table, UpdateTable};

use super::answer::text_member;
use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::policy_document;
use super::resource_arn::{self, ResourceArn};
use crate::store::Store;

/// The maximum length of a revision in characters, inclusive.
const REVISION_LENGTH_MAX: usize = 255;

fn find(store: &Store, arn: &str) -> Result<Arc<Table>, ApiError> {
    match resource_arn::parse(store, arn)? {
        ResourceArn::Table(name) => {
            store.find_table(name).ok_or_else(|| ApiError::table_not_found(name))
        }
        ResourceArn::Elsewhere => {
            Err(ApiError::invalid_parameter(format!("Invalid resource Arn: {arn}")))
        }
        ResourceArn::Foreign => Err(ApiError::validation(
            "This action is only supported by accounts that match the resource owner’s account.",
        )),
    }
}

fn constrain_revision(constraints: &mut Constraints, revision: Option<&str>) {
    if let Some(revision) = revision {
        constraints.length("expectedRevisionId", revision, 1, REVISION_LENGTH_MAX);
    }
}

/// Refuses a change if the table's policy differs from the policy that the request expects.
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

/// Converts the expected revision of a request. A string that is not a number becomes 0, a revision
/// that the store never assigns.
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
    let text = policy_document::canonical(policy)?;
    let table = find(store, arn)?;
    check_expected(&table, revision)?;
    if revision_of_same(&table, &text).is_some() {
        // Another node may have acknowledged a change that this node has not applied yet.
        let table = find(&store.up_to_date().await?, arn)?;
        check_expected(&table, revision)?;
        if let Some(same) = revision_of_same(&table, &text) {
            return Ok(revision_of(Some(same)));
        }
    }
    let expected = expected(revision);
    let table = change(store, arn, &table, OptionChange::PutPolicy { text, expected }).await?;
    Ok(revision_of(table.options.policy.as_ref().map(|policy| policy.revision)))
}

/// Returns the revision of the table's policy if the policy equals `text`. Putting the same policy
/// again must not change the revision.
fn revision_of_same(table: &Table, text: &str) -> Option<u64> {
    let policy = table.options.policy.as_ref()?;
    policy_document::is_stored(&policy.text, text).then_some(policy.revision)
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
    text_member(&mut out, "Policy", &policy_document::shown(&policy.text));
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
        _ => Err(ApiError::defect("a change of a resource policy returned an unexpected reply")),
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
