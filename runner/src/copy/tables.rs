//! The tables of a copy: what the source has, what the target has already, and the last settings.
//!
//! A tag at a target's table says which table of the source it is a copy of, and whether it is complete.
//! `weir copy` creates the table with the tag, and writes and deletes items only in a table with the tag
//! of an incomplete copy. So it never changes a table that it did not create, or that clients use already.
//! `definition` compares and creates tables.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    StreamSpecification, StreamViewType, TableDescription, TableStatus, Tag,
    TimeToLiveSpecification,
};
use model::KeySchema;
use tokio::time::{Duration, Instant, sleep};

use super::definition::{create, difference};
use client::failure::{Context, Result, fatal, refused};
use client::sdk_error::is_not_found;
use client::table_description::{schema_of, ttl_attribute};

/// The key of the tag at a target's table. Its value is the identity of the source's table, and the view
/// type of its stream or [`COMPLETE`]. The stream of the target begins when the copy is complete.
const TAG: &str = "weir:copy-of";
/// The view type in the tag of a table without a stream.
const NO_STREAM: &str = "none";
/// The end of the tag of a complete copy.
const COMPLETE: &str = "complete";
/// Timeout for a table to become active. On AWS, a table with several indexes takes minutes.
const ACTIVE_MAX: Duration = Duration::from_secs(600);
const ACTIVE_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of pages of tags: a table has at most 50 tags, and a page at least one.
const TAG_PAGES_MAX: usize = 50;

/// What the target has of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Missing,
    /// A copy that an earlier run has begun.
    Begun,
    /// A complete copy, which clients may use.
    Complete,
}

/// A table of the source.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) schema: KeySchema,
    pub(super) description: TableDescription,
    pub(super) state: State,
}

impl Table {
    /// Returns the identity of the source's table. The creation time distinguishes tables of two local
    /// stores, which number their tables in the same way.
    fn identity(&self) -> String {
        let id = self.description.table_id().unwrap_or_default();
        let created = self.description.creation_date_time();
        let created = created.map(|time| format!("{}.{}", time.secs(), time.subsec_nanos()));
        format!("{id}/{}", created.unwrap_or_default())
    }

    /// Returns the view type of the source's stream.
    fn view(&self) -> Option<&StreamViewType> {
        let stream = self.description.stream_specification();
        stream.filter(|stream| stream.stream_enabled())?.stream_view_type()
    }
}

/// Finds the tables of the source, and what the target has of them. `is_handed_over` is true if the source
/// was handed over to the target: only then may a copy be complete, because its source has not changed since.
///
/// # Errors
/// When the target has a table of the same name that is no copy of the source's table, or that differs, or
/// that is complete although the source may have changed.
pub(super) async fn find(from: &Client, to: &Client, is_handed_over: bool) -> Result<Vec<Table>> {
    let names = from.list_tables().into_paginator().items().send().collect::<Result<Vec<_>, _>>();
    let mut tables = Vec::new();
    for name in names.await.context(|| "cannot list the tables of the source")? {
        let Some(description) = describe(from, &name).await? else { continue };
        let schema = schema_of(&description);
        let schema =
            schema.ok_or_else(|| fatal!("table `{name}` has an incomplete description"))?;
        let mut table = Table { name, schema, description, state: State::Missing };
        if let Some(found) = describe(to, &table.name).await? {
            table.state = state_of(to, &table, &found, is_handed_over).await?;
        }
        tables.push(table);
    }
    Ok(tables)
}

async fn state_of(
    to: &Client,
    table: &Table,
    found: &TableDescription,
    is_handed_over: bool,
) -> Result<State> {
    let name = &table.name;
    let Some(tag) = tag(to, found).await? else {
        return Err(refused!(
            "the target has a table `{name}` that `weir copy` did not create: delete it there, or choose another target"
        ));
    };
    match tag.rsplit_once('/') {
        Some((identity, COMPLETE)) if identity == table.identity() && is_handed_over => {
            return Ok(State::Complete);
        }
        Some((identity, state)) if identity == table.identity() && state != COMPLETE => {}
        _ => {
            return Err(refused!(
                "table `{name}` of the target is a complete copy, or the copy of another table: to copy it again, delete it there"
            ));
        }
    }
    match difference(&table.description, found) {
        None => Ok(State::Begun),
        Some(part) => Err(refused!(
            "table `{name}` differs, only one endpoint has `{part}`: change the table of the target or delete it, and run the command again"
        )),
    }
}

/// Returns the value of the tag at a target's table.
async fn tag(to: &Client, table: &TableDescription) -> Result<Option<String>> {
    let tags = tags_of(to, table).await?;
    let own = tags.into_iter().find(|tag| tag.key() == TAG);
    Ok(own.map(|tag| tag.value))
}

async fn tags_of(client: &Client, table: &TableDescription) -> Result<Vec<Tag>> {
    let arn = table.table_arn().unwrap_or_default();
    let (mut tags, mut next) = (Vec::new(), None);
    for _ in 0..TAG_PAGES_MAX {
        let page = client.list_tags_of_resource().resource_arn(arn).set_next_token(next);
        let page = page.send().await.context(|| format!("cannot read the tags of `{arn}`"))?;
        tags.extend(page.tags.unwrap_or_default());
        next = page.next_token;
        if next.is_none() {
            break;
        }
    }
    Ok(tags)
}

/// Creates a missing table at the target, with the tags of the source's table. Streams and TTL are set by
/// [`complete`]: no function consumes the copied items, and the target deletes none of them.
pub(super) async fn begin(from: &Client, to: &Client, table: &Table) -> Result<()> {
    if table.state == State::Missing {
        let own = own_tag(table, table.view().map_or(NO_STREAM, StreamViewType::as_str))?;
        // A source that does not support tags has none to copy.
        let mut tags = tags_of(from, &table.description).await.unwrap_or_default();
        // AWS's own tags cannot be set. The other one is of the copy that the source itself is.
        tags.retain(|tag| !tag.key().starts_with("aws:") && tag.key() != TAG);
        tags.push(own);
        create(to, &table.description, tags).await?;
    }
    active(to, &table.name).await.map(drop)
}

/// Returns the ARN of the source's stream. Enables a stream if the table has none.
pub(super) async fn stream_of(from: &Client, table: &Table) -> Result<String> {
    let description = match table.view() {
        Some(_) => table.description.clone(),
        None => {
            enable_stream(from, &table.name, StreamViewType::KeysOnly).await?;
            active(from, &table.name).await?
        }
    };
    let arn = description.latest_stream_arn();
    Ok(arn.ok_or_else(|| fatal!("table `{}` has no stream", table.name))?.to_owned())
}

async fn enable_stream(client: &Client, table: &str, view: StreamViewType) -> Result<()> {
    let stream = StreamSpecification::builder().stream_enabled(true).stream_view_type(view);
    let request = client.update_table().table_name(table).stream_specification(stream.build()?);
    let enabled = request.send().await;
    enabled.context(|| format!("cannot enable a stream of table `{table}`"))?;
    Ok(())
}

fn own_tag(table: &Table, state: &str) -> Result<Tag> {
    Ok(Tag::builder().key(TAG).value(format!("{}/{state}", table.identity())).build()?)
}

/// Gives a verified table of the target its stream and its TTL, and tags it as complete. Idempotent.
pub(super) async fn complete(from: &Client, to: &Client, table: &Table) -> Result<()> {
    let name = &table.name;
    let found = active(to, name).await?;
    let tag = tag(to, &found).await?.unwrap_or_default();
    let state = tag.rsplit('/').next().unwrap_or(COMPLETE);
    if state != COMPLETE {
        let is_enabled = found.stream_specification().is_some_and(|it| it.stream_enabled());
        if state != NO_STREAM && !is_enabled {
            enable_stream(to, name, StreamViewType::from(state)).await?;
            active(to, name).await?;
        }
        let arn = found.table_arn().unwrap_or_default();
        let own = own_tag(table, COMPLETE)?;
        let tagged = to.tag_resource().resource_arn(arn).tags(own).send().await;
        tagged.context(|| format!("cannot tag table `{name}`"))?;
    }
    // TTL is the last setting, because the target then deletes what has expired.
    let wanted = ttl_attribute(from, name).await?;
    if let Some(attribute) = wanted
        && ttl_attribute(to, name).await?.is_none()
    {
        let ttl = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(true);
        let request = to.update_time_to_live().table_name(name);
        let enabled = request.time_to_live_specification(ttl.build()?).send().await;
        enabled.context(|| format!("cannot enable TTL of table `{name}`"))?;
    }
    Ok(())
}

/// Describes a table; `None` if it does not exist.
async fn describe(client: &Client, name: &str) -> Result<Option<TableDescription>> {
    match client.describe_table().table_name(name).send().await {
        Ok(answer) => Ok(answer.table),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error).context(|| format!("cannot describe table `{name}`")),
    }
}

/// Waits until a table is active, and describes it.
async fn active(client: &Client, name: &str) -> Result<TableDescription> {
    let begun = Instant::now();
    loop {
        match describe(client, name).await? {
            Some(found) if found.table_status() == Some(&TableStatus::Active) => return Ok(found),
            _ if begun.elapsed() > ACTIVE_MAX => {
                let seconds = ACTIVE_MAX.as_secs();
                return Err(fatal!("table `{name}` is not active after {seconds} s"));
            }
            _ => sleep(ACTIVE_PAUSE).await,
        }
    }
}
