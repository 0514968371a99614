//! Documents of a split in the reverse direction: finds documents that cannot be assembled from
//! their parts, and shows a single document.
//!
//! The crate `rules` assembles documents; this module reads their parts.

use control::{Problem, ProblemKind};
use model::Item;
use model::json::{item_from_str, item_to_string};
use rules::migration::plan::{Direction, Kind};
use rules::migration::{Document, Keys, Migration, visible};

use crate::migrate::context::Context;
use crate::migrate::failure::{Failure, Result, fatal, refused};
use crate::migrate::plan::compile::compile;
use crate::migrate::plan::tables;
use client::exit::Exit;
use client::item_key;
use client::output::show;

/// Returns why a document is not equal to its assembled parts; `None` if it is equal.
pub(crate) async fn unassembled(
    client: &aws_sdk_dynamodb::Client,
    migration: &Migration,
    document: &Document,
    keys: &Keys,
) -> Result<Option<String>> {
    let items = parts(client, migration, document).await?;
    let assembled = migration.assembled(document, &items, keys).map_err(Failure::fatal)?;
    if let Some(reason) = assembled.refused {
        return Ok(Some(format!("cannot be assembled: {reason}")));
    }
    for (target, expected) in assembled.targets {
        let schema = migration.schema(&target.table);
        let schema = schema.ok_or_else(|| format!("the plan has no table `{}`", target.table))?;
        let stands = tables::get(client, &target.table, &target.key.to_item(schema)).await?;
        if stands.as_ref().and_then(|item| visible(item, schema)) != expected {
            return Ok(Some("is not yet assembled".to_owned()));
        }
    }
    Ok(None)
}

/// Returns messages, at most `most`, about documents that the function `migration` could not
/// assemble and that still cannot be assembled.
pub(crate) async fn refused(
    context: &Context,
    name: &str,
    migration: &Migration,
    most: usize,
) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let prefix = Problem::prefix_of(ProblemKind::Unassembled);
    for Problem { table, key, .. } in context.control.list(name, &prefix).await? {
        if lines.len() >= most {
            break;
        }
        let key = item_from_str(&key).map_err(|error| {
            format!("a problem in the control table has an invalid key: {error}")
        })?;
        let schema =
            migration.schema(&table).ok_or_else(|| format!("the plan has no table `{table}`"))?;
        let partition =
            key.get(&schema.partition.name).and_then(model::KeyValue::from_attribute_value);
        let Some(partition) = partition else { continue };
        let document = Document { migration: name.to_owned(), parts: table.clone(), partition };
        let items = parts(&context.control.client, migration, &document).await?;
        let assembled = migration.assembled(&document, &items, &Keys::default());
        if let Some(reason) = assembled.map_err(Failure::fatal)?.refused {
            lines.push(format!("{table} {}: {reason}", item_to_string(&key)));
        }
    }
    Ok(lines)
}

/// Shows a document of any size, assembled from its current parts.
pub(crate) async fn document(context: &Context, name: &str, key: &str) -> Result<Exit> {
    let (plan, _) = context.plan(name).await?;
    if plan.kind != Kind::Split {
        return Err(refused!("`{name}` is not a split; only a split has documents"));
    }
    let key = item_key::parse(key)?;
    let migration = compile(context, &plan, Direction::Reverse).await?;
    for source in &plan.from {
        let Some(output) = source.items.first() else { continue };
        let Ok(partition) = migration.partition_of(&output.to, &key) else { continue };
        let document = Document { migration: name.to_owned(), parts: output.to.clone(), partition };
        let items = parts(&context.control.client, &migration, &document).await?;
        let document = migration.document(&output.to, &items).map_err(Failure::fatal)?;
        if let Some(document) = document {
            show(&format!("{}\n", item_to_string(&document)));
            return Ok(Exit::Done);
        }
    }
    Err(fatal!("no document with the key {}", item_to_string(&key)))
}

async fn parts(
    client: &aws_sdk_dynamodb::Client,
    migration: &Migration,
    document: &Document,
) -> Result<Vec<Item>> {
    let schema = migration.schema(&document.parts);
    let schema = schema.ok_or_else(|| format!("the plan has no table `{}`", document.parts))?;
    let partition = document.partition.to_attribute_value();
    tables::partition(client, &document.parts, &schema.partition.name, &partition).await
}
