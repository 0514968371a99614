//! `GlobalSecondaryIndexUpdates` of `UpdateTable`: reading them, and what the indexes that are
//! there allow.
//!
//! Building a new index and removing a deleted one is the work of the ticks.

use std::collections::BTreeSet;

use model::KeySchema;
use model::key::KeyAttribute;
use partition::{
    Billing, IndexChange, IndexDefinition, IndexKind, IndexStatus, SecondaryIndex, Table,
};

use super::constraints::Constraints;
use super::error::ApiError;
use super::index_parameters::{
    IndexParameters, ThroughputParameters, check_counts, check_definitions_used,
    throughput_missing, throughput_not_allowed,
};
use super::key_elements::{self, Element};
use super::parameters::Parameters;

/// One update, as it was sent.
enum IndexUpdate<'j> {
    Create(Box<IndexParameters<'j>>),
    Delete(Option<&'j str>),
    Throughput(Option<&'j str>, Option<ThroughputParameters>),
    /// None of them, or several.
    Unclear,
}

/// The updates and the definitions that belong to them, as they were sent.
pub(crate) struct IndexUpdates<'j> {
    definitions: Option<Vec<Element<'j>>>,
    updates: Vec<IndexUpdate<'j>>,
}

impl<'j> IndexUpdates<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        let updates = parameters.structures("GlobalSecondaryIndexUpdates")?.unwrap_or_default();
        Ok(Self {
            definitions: key_elements::read_elements(
                parameters,
                "AttributeDefinitions",
                "AttributeType",
            )?,
            updates: updates.into_iter().map(read_update).collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    pub(crate) fn constrain(&self, constraints: &mut Constraints) {
        key_elements::constrain_definitions(constraints, self.definitions.as_deref(), false);
        for (number, update) in (1..).zip(&self.updates) {
            let at = format!("globalSecondaryIndexUpdates.{number}.member");
            match update {
                IndexUpdate::Create(index) => index.constrain(constraints, &format!("{at}.create")),
                IndexUpdate::Delete(name) => {
                    constrain_name(constraints, &format!("{at}.delete"), *name);
                }
                IndexUpdate::Throughput(name, throughput) => {
                    let at = format!("{at}.update");
                    constrain_name(constraints, &at, *name);
                    if let Some(throughput) = throughput {
                        throughput.constrain(constraints, &at);
                    }
                }
                IndexUpdate::Unclear => {}
            }
        }
    }

    /// What can be said without the table.
    pub(crate) fn check_shape(&self) -> Result<(), ApiError> {
        let mut names = BTreeSet::new();
        for update in &self.updates {
            let name = match update {
                IndexUpdate::Create(index) => index.name(),
                IndexUpdate::Delete(name) | IndexUpdate::Throughput(name, _) => *name,
                IndexUpdate::Unclear => {
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
        }
        Ok(())
    }

    /// The changes that are asked for, of a table that will have this billing mode.
    pub(crate) fn check(
        &self,
        table: &Table,
        billing: Billing,
    ) -> Result<Vec<IndexChange>, ApiError> {
        let definitions = self.definitions.as_deref().unwrap_or_default();
        check_types(definitions, table)?;
        let mut created: Vec<IndexDefinition> = Vec::new();
        let mut changes = Vec::new();
        for update in &self.updates {
            match update {
                IndexUpdate::Create(index) => {
                    let index = index.check(definitions, &table.key_schema, billing)?;
                    check_create(table, &index.name, created.is_empty())?;
                    created.push(index.clone());
                    changes.push(IndexChange::Create(index));
                }
                IndexUpdate::Delete(name) => {
                    let index = find(table, name.unwrap_or_default())?;
                    changes.push(IndexChange::Delete(index.definition.name.clone()));
                }
                IndexUpdate::Throughput(name, throughput) => {
                    let index = find(table, name.unwrap_or_default())?;
                    let name = index.definition.name.clone();
                    let throughput = throughput.ok_or_else(|| throughput_missing(&name))?;
                    if billing == Billing::OnDemand {
                        return Err(throughput_not_allowed(&name));
                    }
                    changes.push(IndexChange::Throughput(name, throughput.units()));
                }
                IndexUpdate::Unclear => {}
            }
        }
        let all: Vec<&IndexDefinition> =
            table.indexes.iter().map(|index| &index.definition).chain(&created).collect();
        check_counts(&all)?;
        check_definitions_used(definitions, &table.key_schema, all.into_iter())?;
        check_all_provisioned(table, billing, &changes)?;
        Ok(changes)
    }
}

fn read_update(parameters: Parameters<'_>) -> Result<IndexUpdate<'_>, ApiError> {
    let create = parameters.structure("Create")?;
    let delete = parameters.structure("Delete")?;
    let update = parameters.structure("Update")?;
    Ok(match (create, delete, update) {
        (Some(create), None, None) => {
            IndexUpdate::Create(Box::new(IndexParameters::read(create, IndexKind::Global)?))
        }
        (None, Some(delete), None) => IndexUpdate::Delete(delete.string("IndexName")?),
        (None, None, Some(update)) => IndexUpdate::Throughput(
            update.string("IndexName")?,
            ThroughputParameters::read(update)?,
        ),
        _ => IndexUpdate::Unclear,
    })
}

fn constrain_name(constraints: &mut Constraints, at: &str, name: Option<&str>) {
    let at = format!("{at}.indexName");
    match name {
        Some(name) => constraints.name(&at, name),
        None => constraints.required(&at, false),
    }
}

/// An attribute has one type in all keys of a table.
fn check_types(definitions: &[Element<'_>], table: &Table) -> Result<(), ApiError> {
    let of_indexes = table.indexes.iter().map(|index| &index.definition.key_schema);
    let schemas = std::iter::once(&table.key_schema).chain(of_indexes);
    let known: Vec<&KeyAttribute> = schemas.flat_map(KeySchema::attributes).collect();
    for element in definitions {
        let found = known.iter().find(|known| Some(known.name.as_str()) == element.name);
        if let Some(found) = found
            && Some(found.attribute_type.descriptor()) != element.kind
        {
            return Err(ApiError::invalid_parameter(format!(
                "Attribute {} is a key attribute of type {} already",
                found.name,
                found.attribute_type.descriptor()
            )));
        }
    }
    Ok(())
}

fn check_create(table: &Table, name: &str, is_first: bool) -> Result<(), ApiError> {
    if table.index(name).is_some() {
        return Err(ApiError::validation("Attempting to create an index which already exists"));
    }
    let is_building = |index: &SecondaryIndex| matches!(index.status, IndexStatus::Creating { .. });
    if !is_first || table.indexes.iter().any(is_building) {
        return Err(ApiError::limit_exceeded(
            "Subscriber limit exceeded: Only 1 online index can be created simultaneously per table",
        ));
    }
    Ok(())
}

fn find<'t>(table: &'t Table, name: &str) -> Result<&'t SecondaryIndex, ApiError> {
    let is_global = |index: &&SecondaryIndex| index.definition.kind == IndexKind::Global;
    let index = table.index(name).filter(is_global).ok_or_else(ApiError::resource_not_found)?;
    if !index.is_maintained() {
        return Err(ApiError::resource_in_use(format!(
            "Attempt to change a resource which is still in use: Index is being deleted: {name}"
        )));
    }
    Ok(index)
}

/// A table that becomes provisioned needs throughput for each of its global indexes.
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
