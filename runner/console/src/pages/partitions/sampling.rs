//! Samples the load of the tables whose pages were shown recently.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::context::Context;
use crate::load_history::{Partition, Sample};

/// Samples the watched tables until the console ends.
pub(crate) async fn sample(context: Arc<Context>, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        for table in context.loads().due() {
            // After an error, such as a deleted table or a stopped store, sampling resumes when the
            // page is shown again.
            match partitions(&context, &table).await {
                Some(partitions) => {
                    let at = Timestamp::now().as_second();
                    context.loads().add(&table, Sample::of(at, &partitions));
                }
                None => context.loads().forget(&table),
            }
        }
    }
}

async fn partitions(context: &Context, table: &str) -> Option<Vec<Partition>> {
    let described = client::partitions::describe(context.endpoint(), table).await.ok()?;
    serde_json::from_value(described.get("partitions")?.clone()).ok()
}
