//! Counters: the total of each counter, and the sum of its slots.

mod html;
mod view;

use client::failure::Failure;
use operations::counters::totals::{self, CounterPlace};

pub(crate) use self::html::html;
use self::view::{Counter, View};
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

/// The number of counters on a page. The page reads all slots of each counter.
const COUNTERS: u16 = 20;

/// Collects the data of the page Counters.
///
/// # Errors
/// The number of slots in the template is not a number.
pub(crate) async fn view(context: &Context, query: &Query) -> Result<View, PageError> {
    let stack = context.stack();
    let place = CounterPlace::of(context.dynamodb(), context.endpoint(), stack.as_deref());
    let place = place?;
    let (slots_table, totals_table) = place.tables();
    let view = View {
        schema: "weir.console.counters/v1",
        slots_table: slots_table.to_owned(),
        totals_table: totals_table.to_owned(),
        slot_count: place.slot_count(),
        counter: query.get("counter").map(str::to_owned),
        ..View::default()
    };
    if let Some(name) = &view.counter {
        let counter = shown(name.clone(), place.counter(name).await);
        return Ok(View { counters: vec![counter], ..view });
    }
    Ok(match place.page(query.get("after"), COUNTERS).await {
        Ok(page) => {
            let counters = page.counters.into_iter();
            let counters = counters.map(|(name, counter)| shown(name, counter)).collect();
            View { counters, next: page.next, ..view }
        }
        // A store without counters has no such tables, so the page shows the error instead of
        // failing.
        Err(problem) => View { problem: Some(problem.to_string()), ..view },
    })
}

fn shown(name: String, counter: Result<totals::Counter, Failure>) -> Counter {
    let counter = match counter {
        Ok(counter) => counter,
        Err(problem) => {
            let problem = Some(problem.to_string());
            return Counter { name, problem, ..Counter::default() };
        }
    };
    let total = counter.total.unwrap_or(model::Number::ZERO);
    let difference = counter.sum.checked_sub(total).ok();
    Counter {
        name,
        total: counter.total.map(|total| total.to_string()),
        sum: Some(counter.sum.to_string()),
        difference: difference.filter(|_| counter.sum != total).map(|number| number.to_string()),
        slots: counter.slots,
        as_of: counter.as_of,
        otherwise: counter.otherwise,
        problem: None,
    }
}
