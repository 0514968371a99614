//! Versions: changes, deletes and re-creates films while the function is killed, compares every history with
//! the edits, and restores a version.
//!
//! This module records the edits as it makes them, independently of the function.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use futures::{StreamExt, TryStreamExt, stream};
use model::{Item, Number};
use rules::versions::{Version, history_key};

use super::Progress;
use super::generator::{Generator, edit};
use client::attribute::to_sdk_item;
use client::failure::{Context, Result, fatal};
use client::output::counted;
use local::system::System;
use operations::versions::{Place, check, reading};

/// The number of films that are edited. The edits of one film are sequential.
const FILMS: u64 = 40;
/// The maximum time until the histories contain the last edit.
const LAG_MAX: Duration = Duration::from_secs(60);
/// The function that writes the versions.
const FUNCTION: &str = "VersionsFunction";

/// The results of this part of the demonstration.
pub(crate) struct Outcome {
    pub(crate) edits: u64,
    pub(crate) films: u64,
    pub(crate) checked_versions: u64,
    pub(crate) checked_histories: u64,
    pub(crate) kills: u32,
    pub(crate) lag: Duration,
}

/// A film and its state after each edit.
struct Film {
    key: Item,
    states: Vec<Option<Item>>,
}

/// Edits films, kills the function once in the middle, and verifies the histories.
pub(crate) async fn run(system: &System, edits: u64, progress: &Progress) -> Result<Outcome> {
    let place = Place {
        client: system.dynamodb().clone(),
        endpoint: system.dynamodb_url().unwrap_or_default().to_owned(),
        table: system.table_name("MoviesTable")?,
        history: system.table_name("HistoryTable")?,
    };
    let films = films(edits);
    let (mut written, mut kills) = (0u64, 0);
    let (done, mut steps) = tokio::sync::mpsc::unbounded_channel();
    let editing = stream::iter(&films)
        .map(|film| edit_film(&place, film, done.clone()))
        .buffer_unordered(films.len().max(1))
        .try_collect::<Vec<()>>();
    let watching = async {
        while steps.recv().await.is_some() {
            written += 1;
            progress.step("edits", written, edits);
            if kills == 0 && written > edits / 3 {
                kills += u32::from(system.kill_working_instance(FUNCTION));
            }
            if written == edits {
                break;
            }
        }
    };
    tokio::select! {
        edited = async { tokio::join!(editing, watching).0 } => edited?,
        () = tokio::time::sleep(Duration::from_secs(600)) => return Err(fatal!("the edits did not finish within 600 s")),
    };
    let started = Instant::now();
    wait_for_histories(&place, &films, progress).await?;
    let lag = started.elapsed();
    restore(&place, &films).await?;
    system.wait_until_drained(LAG_MAX).await?;
    let report = check::run(&place, 5).await?;
    if let Some((item, what)) = report.wrong.first_key_value() {
        return Err(fatal!(
            "{} wrong, for example {item}: {what}",
            counted(report.wrong.len(), "version history is", "version histories are")
        ));
    }
    Ok(Outcome {
        edits,
        films: FILMS,
        checked_versions: report.versions,
        checked_histories: report.histories,
        kills,
        lag,
    })
}

/// Returns the films with their edits. A delete of a missing item would change nothing, so the edit
/// after a delete creates the film again.
fn films(edits: u64) -> Vec<Film> {
    let mut generator = Generator::new(1888);
    let mut films: Vec<Film> = (0..FILMS)
        .map(|number| Film {
            key: Item::new()
                .with("year", Number::from(2027u64))
                .with("title", format!("Edited {number}")),
            states: Vec::new(),
        })
        .collect();
    for number in 0..edits {
        let film = usize::try_from(number % FILMS).ok().and_then(|index| films.get_mut(index));
        let Some(film) = film else { continue };
        let is_there = film.states.last().is_some_and(Option::is_some);
        let mut state = edit(&mut generator, &film.key, number);
        while state.is_none() && !is_there {
            state = edit(&mut generator, &film.key, number);
        }
        film.states.push(state);
    }
    films
}

async fn edit_film(
    place: &Place,
    film: &Film,
    done: tokio::sync::mpsc::UnboundedSender<()>,
) -> Result<()> {
    for state in &film.states {
        write(&place.client, &place.table, &film.key, state.as_ref()).await?;
        // If the demonstration has already failed, the receiver was dropped.
        let _ = done.send(());
    }
    Ok(())
}

async fn write(client: &Client, table: &str, key: &Item, state: Option<&Item>) -> Result<()> {
    let doing = || "cannot edit a film";
    match state {
        Some(item) => {
            let request = client.put_item().table_name(table).set_item(Some(to_sdk_item(item)));
            request.send().await.map(drop).context(doing)
        }
        None => {
            let request = client.delete_item().table_name(table).set_key(Some(to_sdk_item(key)));
            request.send().await.map(drop).context(doing)
        }
    }
}

/// Waits until each history consists of exactly its film's edits.
async fn wait_for_histories(place: &Place, films: &[Film], progress: &Progress) -> Result<()> {
    let started = Instant::now();
    for (number, film) in films.iter().enumerate() {
        let item = history_key(&film.key);
        loop {
            let versions = reading::versions_of(place, &item).await?;
            if is_history_of(film, &versions) {
                break;
            }
            if versions.len() > film.states.len() || started.elapsed() > LAG_MAX {
                return Err(fatal!(
                    "the history of {item} differs from its edits: {} versions, {} s after {} edits",
                    versions.len(),
                    started.elapsed().as_secs(),
                    film.states.len()
                ));
            }
            progress.note("edits: waiting until every edit has a version");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        progress.step("histories", number as u64, FILMS);
    }
    Ok(())
}

fn is_history_of(film: &Film, versions: &[Version]) -> bool {
    versions.iter().map(|version| &version.image).eq(film.states.iter())
        && versions.iter().map(|version| version.number).eq(1..=film.states.len() as u64)
}

/// Restores version 1 of the first film by a plain write, as `weir versions restore` does.
async fn restore(place: &Place, films: &[Film]) -> Result<()> {
    let Some(film) = films.first() else { return Ok(()) };
    let versions = reading::versions_of(place, &history_key(&film.key)).await?;
    let first = versions.first().and_then(|version| version.image.as_ref());
    write(&place.client, &place.table, &film.key, first).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edit_changes_the_film() {
        let films = films(2_000);
        assert_eq!(films.iter().map(|film| film.states.len()).sum::<usize>(), 2_000);
        for film in films {
            assert!(film.states.first().is_some_and(Option::is_some));
            assert!(film.states.windows(2).all(|pair| pair[0] != pair[1]));
        }
    }
}
