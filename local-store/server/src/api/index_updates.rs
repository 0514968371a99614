//! `GlobalSecondaryIndexUpdates` of `UpdateTable`: parses the updates, and checks them against the
//! existing indexes.
//!
//! The periodic work of the module `ticks` builds new indexes and removes deleted indexes.

use std::collections::BTreeSet;

use model::index_key::IndexKeySchema;
use model::key::KeyAttribute;
use model::limits::GLOBAL_INDEXES_MAX;
use partition::{
    Billing, IndexChange, IndexDefinition, IndexKind, IndexStatus, OptionChange, SecondaryIndex,
    Table,
};

use super::constraints::Constraints;
use super::error::ApiError;
use super::index_parameters::{
    IndexParameters, ThroughputParameters, check_counts, throughput_missing,
};
use super::key_elements::{self, Element};
use super::parameters::Parameters;
use super::table_options::{Subject, ThroughputOptions};

/// One update, as it was sent.
enum IndexUpdate<'j> {
    Create(Box<IndexParameters<'j>>),
    Delete(Option<&'j str>),
    Update(IndexThroughput<'j>),
    /// An update without an action.
    Nothing,
    /// Several actions in one update. Such an update is refused, but only after each action was
    /// checked.
    Several(Vec<Self>),
}

/// `Update`, as it was sent.
struct IndexThroughput<'j> {
    name: Option<&'j str>,
    provisioned: Option<ThroughputParameters>,
    options: ThroughputOptions,
}

/// The updates of indexes and the attribute definitions, as they were sent.
pub(crate) struct IndexUpdates<'j> {
    definitions: Option<Vec<Element<'j>>>,
    updates: Option<Vec<IndexUpdate<'j>>>,
}

/// The validated index changes.
#[derive(Default)]
pub(crate) struct IndexChanges {
    pub(crate) changes: Vec<IndexChange>,
    pub(crate) options: Vec<OptionChange>,
}

impl<'j> IndexUpdate<'j> {
    fn throughput(&self) -> Option<&IndexThroughput<'j>> {
        match self {
            IndexUpdate::Update(update) => Some(update),
            _ => None,
        }
    }

    /// Adds the failures of an update. `at` is the path of the update in the request.
    fn constrain(&self, constraints: &mut Constraints, at: &str) {
        match self {
            IndexUpdate::Create(index) => index.constrain(constraints, &format!("{at}.create")),
            IndexUpdate::Delete(name) => {
                constrain_name(constraints, &format!("{at}.delete"), *name);
            }
            IndexUpdate::Update(update) => {
                let at = format!("{at}.update");
                constrain_name(constraints, &at, update.name);
                if let Some(throughput) = update.provisioned {
                    throughput.constrain(constraints, &at);
                }
            }
            IndexUpdate::Several(updates) => {
                for update in updates {
                    update.constrain(constraints, at);
                }
            }
            IndexUpdate::Nothing => {}
        }
    }

    /// Returns whether the update creates or deletes an index. Such an update runs in the
    /// background while the table is in use.
    fn is_online(&self) -> bool {
        matches!(self, IndexUpdate::Create(_) | IndexUpdate::Delete(_))
    }
}

impl<'j> IndexUpdates<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        let updates =
            parameters.structures("GlobalSecondaryIndexUpdates", "GlobalSecondaryIndexUpdate")?;
        let read = |updates: Vec<_>| updates.into_iter().map(read_update).collect();
        Ok(Self {
            definitions: key_elements::read_elements(
                parameters,
                "AttributeDefinitions",
                "AttributeType",
            )?,
            updates: updates.map(read).transpose()?,
        })
    }

    /// Returns whether the request has any index updates.
    pub(crate) fn is_given(&self) -> bool {
        !self.updates().is_empty()
    }

    fn updates(&self) -> &[IndexUpdate<'j>] {
        self.updates.as_deref().unwrap_or_default()
    }

    /// Returns whether any update creates an index.
    pub(crate) fn creates(&self) -> bool {
        self.updates().iter().any(|update| matches!(update, IndexUpdate::Create(_)))
    }

    /// Returns whether any update creates or deletes an index.
    pub(crate) fn creates_or_deletes(&self) -> bool {
        self.updates().iter().any(IndexUpdate::is_online)
    }

    pub(crate) fn constrain(&self, constraints: &mut Constraints) {
        key_elements::constrain_definitions(constraints, self.definitions.as_deref(), false);
        for (number, update) in (1..).zip(self.updates()) {
            update.constrain(constraints, &format!("globalSecondaryIndexUpdates.{number}.member"));
        }
    }

    /// Refuses an update that has a `WarmThroughput` without any units.
    pub(crate) fn check_warm(&self) -> Result<(), ApiError> {
        let is_empty = |update: &&IndexThroughput<'_>| update.options.has_empty_warm();
        match self.updates().iter().filter_map(IndexUpdate::throughput).find(is_empty) {
            None => Ok(()),
            Some(update) => Err(ApiError::invalid_parameter(format!(
                "WarmThroughput must have at least one of ReadUnitsPerSecond or WriteUnitsPerSecond specified for index: {}",
                update.name.unwrap_or_default()
            ))),
        }
    }

    /// Does the checks that do not depend on the table.
    pub(crate) fn check_shape(&self) -> Result<(), ApiError> {
        let mut names = BTreeSet::new();
        if self.updates.as_ref().is_some_and(Vec::is_empty) {
            return Err(ApiError::invalid_parameter(
                "List of GlobalSecondaryIndexUpdates is empty",
            ));
        }
        for update in self.updates() {
            let name = match update {
                IndexUpdate::Create(index) => index.name(),
                IndexUpdate::Delete(name) => *name,
                IndexUpdate::Update(update) => update.name,
                IndexUpdate::Several(_) => {
                    return Err(ApiError::invalid_parameter(
                        "Only one global secondary index action is allowed per GlobalSecondaryIndexUpdate object",
                    ));
                }
                IndexUpdate::Nothing => {
                    return Err(ApiError::invalid_parameter(
                        "One of GlobalSecondaryIndexUpdate.Update, GlobalSecondaryIndexUpdate.Create, GlobalSecondaryIndexUpdate.Delete must not be null",
                    ));
                }
            };
            if let Some(name) = name
                && !names.insert(name)
            {
                return Err(ApiError::invalid_parameter(format!(
                    "Only one global secondary index update per index is allowed simultaneously. Index: {name}"
                )));
            }
            if let IndexUpdate::Create(index) = update {
                index.check_projection()?;
            }
        }
        Ok(())
    }

    /// Checks the changes against the table. `billing` is the billing mode after the update.
    pub(crate) fn check(&self, table: &Table, billing: Billing) -> Result<IndexChanges, ApiError> {
        let definitions = self.definitions.as_deref().unwrap_or_default();
        if self.updates().iter().filter(|update| update.is_online()).count() > 1 {
            return Err(one_at_a_time());
        }
        if !self.creates() {
            return self.check_changes(table, billing);
        }
        let mut created: Vec<IndexDefinition> = Vec::new();
        let mut checked = self.check_changes(table, billing)?;
        for update in self.updates() {
            let IndexUpdate::Create(parameters) = update else { continue };
            if self.definitions.is_none() {
                return Err(ApiError::invalid_parameter(format!(
                    "AttributeDefinitions is not specified for index: {}",
                    parameters.name().unwrap_or_default()
                )));
            }
            if parameters.lacks_throughput(billing) {
                return Err(units_missing(parameters.name().unwrap_or_default()));
            }
            let index = parameters.check(definitions, &table.key_schema, billing)?;
            check_types(&index, table)?;
            check_create(table, &index.name)?;
            checked.options.extend(parameters.check_options(&index, billing)?);
            checked.changes.push(IndexChange::Create(index.clone()));
            created.push(index);
        }
        if table.indexes_of(IndexKind::Global).count() + created.len() > GLOBAL_INDEXES_MAX {
            return Err(ApiError::limit_exceeded(&format!(
                "Subscriber limit exceeded: Number of global secondary indexes exceeds per-table limit of {GLOBAL_INDEXES_MAX}"
            )));
        }
        let all: Vec<&IndexDefinition> =
            table.indexes.iter().map(|index| &index.definition).chain(&created).collect();
        // Unlike `CreateTable`, `UpdateTable` ignores attribute definitions that no key uses.
        check_counts(&all)?;
        Ok(checked)
    }

    /// Checks all actions except `Create`.
    fn check_changes(&self, table: &Table, billing: Billing) -> Result<IndexChanges, ApiError> {
        let mut checked = IndexChanges::default();
        for update in self.updates() {
            match update {
                IndexUpdate::Delete(name) => {
                    let index = find(table, name.unwrap_or_default(), "delete")?;
                    checked.changes.push(IndexChange::Delete(index.definition.name.clone()));
                }
                IndexUpdate::Update(update) => {
                    let index = find(table, update.name.unwrap_or_default(), "update")?;
                    update.check(table, index, billing, &mut checked)?;
                }
                IndexUpdate::Create(_) | IndexUpdate::Nothing | IndexUpdate::Several(_) => {}
            }
        }
        check_all_provisioned(table, billing, &checked.changes)?;
        Ok(checked)
    }
}

impl IndexThroughput<'_> {
    fn check(
        &self,
        table: &Table,
        index: &SecondaryIndex,
        billing: Billing,
        checked: &mut IndexChanges,
    ) -> Result<(), ApiError> {
        let name = &index.definition.name;
        let has_options = self.options.has_on_demand() || self.options.has_warm();
        match (self.provisioned, billing) {
            (provisioned, Billing::OnDemand) if provisioned.is_some() || !has_options => {
                return Err(ApiError::invalid_parameter(format!(
                    "The only Updates for index: {name} when TableThroughputMode is PAY_PER_REQUEST can be to OnDemandThroughput, WarmThroughput"
                )));
            }
            (None, Billing::Provisioned { .. }) if !has_options => {
                return Err(units_missing(name));
            }
            (Some(throughput), _) => {
                let units = throughput.check(name)?;
                if table.billing != Billing::OnDemand && index.definition.throughput == Some(units)
                {
                    let index = format!("index {name}");
                    return Err(will_not_change(&index, &index, units));
                }
                checked.changes.push(IndexChange::Throughput(name.clone(), units));
            }
            (None, _) => {}
        }
        let units = index.definition.throughput;
        let current = table.options.warm_of_index(name, billing, units);
        checked.options.extend(self.options.check_change(
            Subject::Index(name),
            billing,
            current,
        )?);
        Ok(())
    }
}

/// Returns the error for an update whose throughput equals the index's current throughput.
pub(crate) fn will_not_change(what: &str, of: &str, (read, write): (u64, u64)) -> ApiError {
    ApiError::validation(format!(
        "The provisioned throughput for the {what} will not change. The requested value equals the current value. Current ReadCapacityUnits provisioned for {of}: {read}. Requested ReadCapacityUnits: {read}. Current WriteCapacityUnits provisioned for {of}: {write}. Requested WriteCapacityUnits: {write}. Refer to the Amazon DynamoDB Developer Guide for current limits and how to request higher limits."
    ))
}

/// Returns the error for an index without throughput in a provisioned table.
fn units_missing(index: &str) -> ApiError {
    ApiError::invalid_parameter(format!(
        "Both ReadCapacityUnits and WriteCapacityUnits must be specified for index: {index}"
    ))
}

fn read_update(parameters: Parameters<'_>) -> Result<IndexUpdate<'_>, ApiError> {
    let create = parameters.structure_of("Create", "CreateGlobalSecondaryIndexAction")?;
    let delete = parameters.structure_of("Delete", "DeleteGlobalSecondaryIndexAction")?;
    let update = parameters.structure_of("Update", "UpdateGlobalSecondaryIndexAction")?;
    let mut updates = Vec::new();
    if let Some(update) = update {
        updates.push(IndexUpdate::Update(IndexThroughput {
            name: update.string("IndexName")?,
            provisioned: ThroughputParameters::read(update)?,
            options: ThroughputOptions::read(update)?,
        }));
    }
    if let Some(create) = create {
        let index = IndexParameters::read(create, IndexKind::Global)?;
        updates.push(IndexUpdate::Create(Box::new(index)));
    }
    if let Some(delete) = delete {
        updates.push(IndexUpdate::Delete(delete.string("IndexName")?));
    }
    Ok(match updates.len() {
        0 | 1 => updates.pop().unwrap_or(IndexUpdate::Nothing),
        _ => IndexUpdate::Several(updates),
    })
}

fn constrain_name(constraints: &mut Constraints, at: &str, name: Option<&str>) {
    let at = format!("{at}.indexName");
    match name {
        Some(name) => constraints.own_name(&at, name),
        None => constraints.required(&at, false),
    }
}

/// Checks that an attribute has one type in all keys of a table.
fn check_types(created: &IndexDefinition, table: &Table) -> Result<(), ApiError> {
    let of_indexes = table.indexes.iter().map(|index| &index.definition.key_schema);
    let of_table = IndexKeySchema::from(table.key_schema.clone());
    for known in [&of_table].into_iter().chain(of_indexes) {
        let is_redefined = |attribute: &KeyAttribute| {
            let other = known.attributes().find(|other| other.name == attribute.name);
            other.is_some_and(|other| other.attribute_type != attribute.attribute_type)
        };
        if created.key_schema.attributes().any(is_redefined) {
            return Err(ApiError::invalid_parameter(format!(
                "Attributes cannot be redefined. Please check that your attribute has the same type as previously defined. Existing schema: {} New schema: {}",
                schema_text(known),
                schema_text(&created.key_schema)
            )));
        }
    }
    Ok(())
}

/// Returns a key schema in the form in which DynamoDB's error messages quote it.
fn schema_text(schema: &IndexKeySchema) -> String {
    let element = |attribute: &KeyAttribute, kind: &str| {
        format!("{}:{}:{kind}", attribute.name, attribute.attribute_type.descriptor())
    };
    let partition = schema.partition.iter().map(|attribute| element(attribute, "HASH"));
    let sort = schema.sort.iter().map(|attribute| element(attribute, "RANGE"));
    let elements: Vec<_> = partition.chain(sort).collect();
    format!("Schema:[SchemaElement: key{{{}}}]", elements.join(", "))
}

fn check_create(table: &Table, name: &str) -> Result<(), ApiError> {
    match table.index(name) {
        Some(index) if !index.is_maintained() => return Err(being_deleted(table, name)),
        Some(_) => {
            return Err(ApiError::validation("Attempting to create an index which already exists"));
        }
        None => {}
    }
    let is_building = |index: &SecondaryIndex| index.status != IndexStatus::Active;
    if table.indexes.iter().any(is_building) {
        return Err(one_at_a_time());
    }
    Ok(())
}

fn one_at_a_time() -> ApiError {
    ApiError::limit_exceeded(
        "Subscriber limit exceeded: Only 1 online index can be created or deleted simultaneously per table",
    )
}

fn find<'t>(table: &'t Table, name: &str, verb: &str) -> Result<&'t SecondaryIndex, ApiError> {
    let index = table.index(name).ok_or_else(|| {
        ApiError::resource_missing(format!(
            "Requested resource not found: Index {name} for table {}",
            table.name
        ))
    })?;
    if index.definition.kind != IndexKind::Global {
        return Err(ApiError::validation(format!(
            "Cannot {verb} an index that is not a GlobalSecondaryIndex: {name}"
        )));
    }
    if !index.is_maintained() {
        return Err(being_deleted(table, name));
    }
    Ok(index)
}

fn being_deleted(table: &Table, index: &str) -> ApiError {
    ApiError::resource_in_use(format!(
        "Attempt to change a resource which is still in use: Index is being deleted. Table: {} Index: {index}",
        table.name
    ))
}

/// Checks that the update sets the throughput of every remaining global index if the table becomes
/// provisioned.
fn check_all_provisioned(
    table: &Table,
    billing: Billing,
    changes: &[IndexChange],
) -> Result<(), ApiError> {
    if table.billing != Billing::OnDemand || billing == Billing::OnDemand {
        return Ok(());
    }
    let is_given = |index: &SecondaryIndex| {
        changes.iter().any(|change| match change {
            IndexChange::Throughput(name, _) | IndexChange::Delete(name) => {
                *name == index.definition.name
            }
            IndexChange::Create(_) => false,
        })
    };
    match table
        .indexes_of(IndexKind::Global)
        .find(|index| index.is_maintained() && !is_given(index))
    {
        Some(index) => Err(throughput_missing(&index.definition.name)),
        None => Ok(()),
    }
}
