//! `CreateTable`: creates a table with its indexes. The table exists when the response is sent.
//!
//! `key_elements` and `index_parameters` parse keys and indexes.

use std::collections::BTreeSet;

use model::key::KeySchema;
use model::limits::TABLES_MAX;
use partition::{Billing, Command, CreateTable, IndexDefinition, Reply};

use super::constraints::Constraints;
use super::error::ApiError;
use super::index_parameters::{IndexLists, check_definitions_used};
use super::key_elements::{self, Element, read_elements};
use super::parameters::Parameters;
use super::table_description::{CREATING, Sizes, Status, WarmThroughput, description_member};
use super::table_options::OptionParameters;
use super::table_settings::{
    TableSettings, check_supported, stream_label, throughput_missing, throughput_not_allowed,
};
use super::tables;
use crate::store::Store;

pub(super) async fn create_table(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = parameters.string("TableName")?;
    let definitions = read_elements(parameters, "AttributeDefinitions", "AttributeType")?;
    let key_schema = read_elements(parameters, "KeySchema", "KeyType")?;
    let indexes = IndexLists::read(parameters)?;
    let settings = TableSettings::read(parameters)?;
    let options = OptionParameters::read(parameters)?;
    let has_warm = options.throughput.has_warm();

    let name = tables::required(name)?;
    let mut constraints = Constraints::new();
    key_elements::constrain_definitions(&mut constraints, definitions.as_deref(), true);
    constraints.name_of_settings(name);
    settings.constrain(&mut constraints);
    let elements = key_schema.as_deref();
    key_elements::constrain_key_elements(&mut constraints, "keySchema", elements);
    key_elements::constrain_key_schema(&mut constraints, "keySchema", elements, false);
    indexes.constrain(&mut constraints);
    options.constrain(&mut constraints);
    constraints.finish()?;

    check_supported(parameters)?;
    let billing = billing(&settings)?;
    let definitions = definitions.unwrap_or_default();
    let key_schema = check_definitions(&definitions, &key_schema.unwrap_or_default())?;
    let mut options = options.check_new(store, billing)?;
    let indexes = indexes.check(&definitions, &key_schema, billing, &mut options)?;
    check_used(&definitions, &key_schema, &indexes)?;
    let stream = match settings.stream(true)?.flatten() {
        Some(view_type) => Some((view_type, stream_label(store.now())?)),
        None => None,
    };
    let whole = store.table_name(tables::name_of(store, name)?);
    let whole = whole.ok_or_else(|| ApiError::table_not_found(name))?;
    let catalogue = store.catalogue();
    let own_tables = || catalogue.by_name().filter(|table| store.owns(table)).count();
    if catalogue.find(whole.whole()).is_none() && own_tables() >= TABLES_MAX {
        return Err(ApiError::limit_exceeded(&format!(
            "Subscriber limit exceeded: there are {TABLES_MAX} tables already; delete one first"
        )));
    }
    let create = CreateTable {
        name: whole.clone(),
        key_schema,
        billing,
        deletion_protection: settings.deletion_protection.unwrap_or(false),
        stream,
        indexes,
        options,
    };
    let replies = store.submit(vec![Command::CreateTable(Box::new(create))]).await?;
    match replies.into_iter().next() {
        Some(Reply::Table(table)) => {
            let mut out = String::from("{");
            let empty = Sizes::default();
            let status = Status::new(CREATING, WarmThroughput::Requested { table: has_warm });
            description_member(&mut out, "TableDescription", store, &table, &empty, status);
            out.push('}');
            Ok(out)
        }
        Some(Reply::TableExists) => Err(ApiError::table_exists(&whole)),
        _ => Err(ApiError::defect("CreateTable returned an unexpected reply")),
    }
}

fn billing(settings: &TableSettings<'_>) -> Result<Billing, ApiError> {
    if settings.billing_mode == Some("PAY_PER_REQUEST") {
        return if settings.has_throughput() {
            Err(throughput_not_allowed())
        } else {
            Ok(Billing::OnDemand)
        };
    }
    settings.provisioned()?.ok_or_else(throughput_missing)
}

/// Checks that each attribute definition is used and occurs only once. Returns the key schema of
/// the table.
fn check_definitions(
    definitions: &[Element<'_>],
    elements: &[Element<'_>],
) -> Result<KeySchema, ApiError> {
    if elements.len() > definitions.len() {
        return Err(ApiError::validation(
            "Invalid KeySchema: Some index key attribute have no definition",
        ));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = definitions.iter().find(|definition| !seen.insert(definition.name)) {
        return Err(ApiError::validation(format!(
            "Attribute Name is duplicated: {}",
            twice.name.unwrap_or_default()
        )));
    }
    key_elements::key_schema(definitions, elements)
}

/// Checks that a key of the table or of an index uses every attribute definition. DynamoDB has two
/// error messages for an unused definition.
fn check_used(
    definitions: &[Element<'_>],
    key_schema: &KeySchema,
    indexes: &[IndexDefinition],
) -> Result<(), ApiError> {
    if indexes.is_empty() && definitions.len() != key_schema.attributes().count() {
        return Err(ApiError::invalid_parameter(
            "Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions",
        ));
    }
    check_definitions_used(definitions, key_schema, indexes.iter())
}
