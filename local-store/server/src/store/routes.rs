//! Routes commands to their arcs, in a store with several arcs.
//!
//! A command on an item is sent to the item's arc. A change of a table is first committed in the first arc.
//! The process that received the request then updates the other arcs. If the process dies, or an arc is
//! unavailable, the next tick of the first arc's leader completes the update.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use partition::mutation::{self, Mutation};
use partition::{Catalogue, Command, Destination, Reply, Table, TableId, can_follow, destination};

use super::group::Group;
use super::{Store, Unavailable, transactions};
use node::ring::ArcId;

/// The maximum number of tables in one log entry. So many tables fit into an entry even if they have the
/// largest policies and tags, some hundred kilobytes each.
const TABLES_PER_ENTRY: usize = 50;

/// Commands that have not been sent yet, by arc, each with its position in the request.
type CommandsByArc = BTreeMap<ArcId, Vec<(usize, Command)>>;

/// Executes commands and returns one reply for each command, in the same order.
pub(super) async fn submit(
    store: &Store,
    commands: Vec<Command>,
) -> Result<Vec<Reply>, Unavailable> {
    let several = commands.len() > 1;
    submit_in_order(store, commands).await.map_err(|error| match error {
        // Some arcs may have executed their commands, so the outcome of the request is unknown.
        Unavailable::NotDone(reason) if several => Unavailable::Unknown(reason),
        other => other,
    })
}

async fn submit_in_order(store: &Store, commands: Vec<Command>) -> Result<Vec<Reply>, Unavailable> {
    let mut replies: BTreeMap<usize, Reply> = BTreeMap::new();
    let mut waiting = CommandsByArc::new();
    for (place, command) in commands.into_iter().enumerate() {
        // The earlier commands may create the table of this command. The earlier commands must be
        // applied first, because the arc of this command depends on the table.
        let catalogue = match &command {
            Command::Write(write) => for_items(store, &[write.table]).await?,
            _ => Some(store.catalogue()),
        };
        let Some(catalogue) = catalogue else {
            replies.insert(place, Reply::TableNotFound);
            continue;
        };
        let to = destination(&catalogue, &command);
        if let Destination::To(arc) = to {
            waiting.entry(arc).or_default().push((place, command));
            continue;
        }
        replies.extend(send(store, std::mem::take(&mut waiting)).await?);
        let reply = match (to, command) {
            (Destination::Items, Command::Transaction(transaction)) => {
                transactions::write(store, *transaction).await?
            }
            (Destination::Definition, command) => define(store, command).await?,
            (Destination::Everyone, command) => ask_everyone(store, &command).await?,
            (Destination::To(_) | Destination::Items | Destination::Addressed, _) => {
                let reason = "a command does not name the arc that it is for".to_owned();
                return Err(Unavailable::NotDone(reason));
            }
        };
        replies.insert(place, reply);
    }
    replies.extend(send(store, waiting).await?);
    Ok(replies.into_values().collect())
}

/// Returns a catalogue in which all given tables accept items; `None` if a table does not accept items.
/// If a table is missing in this node's catalogue, first waits for the latest state of the arcs.
pub(super) async fn for_items(
    store: &Store,
    tables: &[TableId],
) -> Result<Option<Arc<Catalogue>>, Unavailable> {
    let all_do = |catalogue: &Arc<Catalogue>| {
        tables.iter().all(|table| catalogue.get_for_items(*table).is_some())
    };
    let known = store.catalogue();
    if all_do(&known) {
        return Ok(Some(known));
    }
    Ok(Some(store.up_to_date().await?.catalogue()).filter(all_do))
}

/// Sends the commands of each arc as one entry.
async fn send(store: &Store, waiting: CommandsByArc) -> Result<Vec<(usize, Reply)>, Unavailable> {
    let sends = waiting.into_iter().map(|(arc, commands)| async move {
        let (places, commands): (Vec<usize>, Vec<Command>) = commands.into_iter().unzip();
        let is_write = matches!(commands.first(), Some(Command::Write(_)));
        let group = match store.group(arc) {
            Group::Elsewhere(_) if is_write && mutation::is_active(Mutation::SendToOtherArc) => {
                store.group(ArcId((arc.0 + 1) % store.arc_count()))
            }
            group => group,
        };
        let replies = group.submit(commands).await?;
        Ok::<_, Unavailable>(places.into_iter().zip(replies))
    });
    Ok(try_join_all(sends).await?.into_iter().flatten().collect())
}

/// Executes a command in every arc.
async fn ask_everyone(store: &Store, command: &Command) -> Result<Reply, Unavailable> {
    let ask = |arc| async move { store.group(arc).submit(vec![command.clone()]).await };
    let asks = store.arcs().map(ask);
    let replies: Vec<Reply> = try_join_all(asks).await?.into_iter().flatten().collect();
    let more = replies.contains(&Reply::Done { more: true });
    let is_done = replies.iter().any(|reply| matches!(reply, Reply::Done { .. }));
    let first = replies.into_iter().next();
    match first {
        Some(reply) if !is_done => Ok(reply),
        _ => Ok(Reply::Done { more }),
    }
}

/// Changes the definition of a table in the first arc, and then in all other arcs.
async fn define(store: &Store, command: Command) -> Result<Reply, Unavailable> {
    let replies = store.group(ArcId::FIRST).submit(vec![command]).await?;
    let reply = replies.into_iter().next();
    let Some(Reply::Table(table)) = reply else {
        let unanswered = || Unavailable::Unknown("a command had no reply".to_owned());
        return reply.ok_or_else(unanswered);
    };
    // The change is committed in the first arc, so an error is only logged. The next tick updates the
    // remaining arcs.
    if let Err(error) = bring_along(store).await {
        tracing::debug!(%error, "a table change has not reached every arc yet");
    }
    let whole = store.catalogue().get(table.id).map(|whole| Box::new(Table::clone(whole)));
    Ok(Reply::Table(whole.unwrap_or(table)))
}

/// Updates the tables of every arc to the definitions of the first arc that this node has applied.
pub(crate) async fn bring_along(store: &Store) -> Result<(), Unavailable> {
    let first = store.group(ArcId::FIRST);
    first.follow().await?;
    let known = first.catalogue();
    let mut commands: BTreeMap<ArcId, Vec<Command>> = BTreeMap::new();
    let mut partial_tables: Vec<(ArcId, TableId)> = Vec::new();
    for arc in store.arcs().filter(|arc| *arc != ArcId::FIRST) {
        let there = store.group(arc).catalogue();
        for table in known.tables().filter(|table| table.placement.version > 0) {
            if there.get(table.id).is_none_or(|own| can_follow(own, table)) {
                let placement = table.placement.clone();
                let table = Box::new(table.definition());
                let adopt = Command::AdoptTable { table, placement };
                commands.entry(arc).or_default().push(adopt);
            }
        }
        let gone = there.tables().filter(|table| known.get(table.id).is_none());
        partial_tables.extend(gone.map(|table| (arc, table.id)));
    }
    if !partial_tables.is_empty() {
        // Every table of another arc was first created in the first arc. If the first arc does not have
        // the table, it was deleted. This check needs an up-to-date replica, because a replica that
        // lags behind may lack a new table.
        let first = store.group(ArcId::FIRST);
        first.read_index().await?;
        let known = first.catalogue();
        for (arc, table) in partial_tables {
            if known.get(table).is_none() {
                commands.entry(arc).or_default().push(Command::DropTable { table });
            }
        }
    }
    let sends = commands.into_iter().map(|(arc, commands)| async move {
        let group = store.group(arc);
        for some in commands.chunks(TABLES_PER_ENTRY) {
            group.submit(some.to_vec()).await?;
        }
        Ok::<_, Unavailable>(group.follow().await?)
    });
    // `join_all` sends to all arcs concurrently, so an unavailable arc does not block the others.
    for sent in join_all(sends).await {
        sent?;
    }
    Ok(())
}
