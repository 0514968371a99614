//! Takes the route of a plan for its migration.
//!
//! Several migrations may use the same route one after another, so that the application needs no
//! change. Two migrations never use a route at the same time. A route that is set to `target` is
//! never assigned to another migration, because the application would then use the targets of
//! another plan.

use control::{Expect, Route, Side};
use rules::migration::Phase;
use rules::migration::plan::Plan;

use crate::migrate::context::Context;
use crate::migrate::failure::{Failure, Result, refused};

/// Maximum attempts of a start to take a route that other processes change at the same time. Ten
/// attempts suffice, because a route normally changes only a few times during a migration.
const TRIES_MAX: usize = 10;

/// Returns why a plan cannot use its route; `None` if the plan can use the route.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn in_the_way(context: &Context, plan: &Plan) -> Result<Option<String>> {
    let route: Option<Route> = context.control.get(plan.route(), Route::NAME).await?;
    match route {
        Some(route) => refused_by(context, plan, &route).await,
        None => Ok(None),
    }
}

async fn refused_by(context: &Context, plan: &Plan, route: &Route) -> Result<Option<String>> {
    let (name, owner) = (plan.route(), route.owner());
    if owner == plan.migration {
        return Ok(None);
    }
    let phase = context.control.state(owner).await?.phase;
    if phase != Phase::None && !phase.has_ended() {
        return Ok(Some(format!(
            "the route `{name}` is used by `{owner}`, which is {}: end that migration first, or write another name for `route`",
            phase.as_str()
        )));
    }
    if (route.read, route.write) != (Side::Source, Side::Source) {
        return Ok(Some(format!(
            "the route `{name}` has been `{}` since the migration `{owner}`: applications that read the route would use the targets of this plan immediately; write another name for `route`",
            route.read.as_str()
        )));
    }
    Ok(None)
}

/// Takes the route for the migration of a plan, and opens it to the sources.
///
/// # Errors
/// When another migration uses the route or has set it to its targets, the state is not the
/// expected one, or the control table cannot be read or written.
pub(crate) async fn take(context: &Context, plan: &Plan, expect: Expect<'_>) -> Result<()> {
    for _ in 0..TRIES_MAX {
        let seen: Option<Route> = context.control.get(plan.route(), Route::NAME).await?;
        let seen = seen.unwrap_or_else(|| Route::new(plan.route()));
        if let Some(why) = refused_by(context, plan, &seen).await? {
            return Err(refused!("refused: {why}"));
        }
        if context.control.take_route(plan, expect, &seen).await? {
            return Ok(());
        }
    }
    Err(Failure::Unknown(format!("other processes keep changing the route `{}`", plan.route())))
}

#[cfg(test)]
mod tests {
    use control::{Active, State};

    use super::*;
    use crate::migrate::start::begin::begin;
    use crate::migrate::switch::switching_tests::{plan, serve};

    /// Moves a migration to the final phase `phase`, with its route set to `side`.
    async fn end(context: &Context, name: &str, phase: Phase, side: Side) {
        let ended = |state: &mut State| {
            state.phase = phase;
            true
        };
        context.control.change(State::new(name), ended).await.unwrap();
        context.control.change(Active::default(), |active| active.remove(name)).await.unwrap();
        let phases = [phase];
        let expect = Expect::phases(&phases);
        context.control.set_route(name, expect, (side, side)).await.unwrap();
    }

    #[tokio::test]
    async fn a_route_serves_one_run_after_another() {
        let served = serve().await;
        let context = &served.context;
        let of = |name: &str| Plan {
            migration: name.to_owned(),
            route: Some("shop".to_owned()),
            ..plan()
        };
        begin(context, &of("one"), 0).await.unwrap();
        let route = context.control.route("one").await.unwrap().unwrap();
        assert_eq!((route.migration.as_str(), route.owner()), ("shop", "one"));
        assert_eq!(in_the_way(context, &of("one")).await, Ok(None), "a start may be repeated");
        let why = in_the_way(context, &of("two")).await.unwrap().unwrap();
        assert!(why.starts_with("the route `shop` is used by `one`, which is copying"), "{why}");
        let expect = Expect::phases(&[Phase::None]);
        let refused = take(context, &of("two"), expect).await.unwrap_err();
        assert!(matches!(&refused, Failure::Refused(why) if why.contains("`one`")), "{refused:?}");

        end(context, "one", Phase::Aborted, Side::Source).await;
        begin(context, &of("two"), 0).await.unwrap();
        let route = context.control.route("two").await.unwrap().unwrap();
        assert_eq!((route.owner(), route.revision), ("two", 2), "the epoch continues");
        // A repeated abort of the first migration does not redirect the route of the second
        // migration.
        assert_eq!(context.control.route("one").await, Ok(None));
        end(context, "one", Phase::Aborted, Side::Target).await;
        let route = context.control.route("two").await.unwrap().unwrap();
        assert_eq!((route.write, route.revision), (Side::Source, 2));

        end(context, "two", Phase::Completed, Side::Target).await;
        let why = in_the_way(context, &of("three")).await.unwrap().unwrap();
        assert!(
            why.starts_with("the route `shop` has been `target` since the migration `two`"),
            "{why}"
        );
        let own = Plan { route: None, ..of("three") };
        assert_eq!(in_the_way(context, &own).await, Ok(None));
    }

    /// Goal: a later migration may use the name of an earlier migration as its route, so that
    /// applications need no change.
    #[tokio::test]
    async fn the_name_of_an_earlier_run_is_a_route() {
        let served = serve().await;
        let context = &served.context;
        let first = Plan { migration: "shop".to_owned(), ..plan() };
        begin(context, &first, 0).await.unwrap();
        let again =
            Plan { migration: "again".to_owned(), route: Some("shop".to_owned()), ..plan() };
        let why = in_the_way(context, &again).await.unwrap().unwrap();
        assert!(why.contains("used by `shop`"), "{why}");
        end(context, "shop", Phase::Reverted, Side::Source).await;
        begin(context, &again, 0).await.unwrap();
        let route: Route = context.control.get("shop", Route::NAME).await.unwrap().unwrap();
        assert_eq!(route.owner(), "again");
    }
}
