//! The active migrations as one rule. Each migration decides independently.

use std::convert::Infallible;
use std::sync::Arc;

use model::stream_record::{LambdaRecord, RecordView};

use super::{Effect, Migration};
use crate::rule::{Found, LookAhead, Refusal, Rule, stream_of};

/// The migrations that read the same tables.
impl Rule for Vec<Arc<Migration>> {
    type Input = Infallible;
    type Effect = Effect;

    fn look_ahead(&self) -> LookAhead {
        LookAhead::Nothing
    }

    fn decide(
        &self,
        record: &LambdaRecord,
        found: &Found<Infallible>,
    ) -> Result<Vec<Effect>, Refusal> {
        let mut effects = Vec::new();
        for migration in self {
            effects.extend(migration.decide(record, found)?);
        }
        Ok(effects)
    }

    fn decide_view(
        &self,
        record: RecordView<'_>,
        found: &Found<Infallible>,
    ) -> Result<Vec<Effect>, Refusal> {
        let stream = stream_of(&record.event_source_arn)?;
        let (table, made) = (&stream.table.table, record.approximate_creation_seconds);
        // A record that no migration follows is not decoded, to save time. Most of these records
        // are writes by the migrations themselves.
        if !self.iter().any(|migration| migration.follows(table, made)) {
            return Ok(Vec::new());
        }
        self.decide(&record.into_record(), found)
    }

    /// Returns the effects of each migration. If one migration refuses the record, the other
    /// migrations decide nevertheless.
    fn decide_each(
        &self,
        record: RecordView<'_>,
        found: &Found<Infallible>,
    ) -> (Vec<Effect>, Option<Refusal>) {
        let (table, made) = match stream_of(&record.event_source_arn) {
            Ok(stream) => (stream.table.table, record.approximate_creation_seconds),
            Err(refusal) => return (Vec::new(), Some(refusal)),
        };
        let mut following =
            self.iter().filter(|migration| migration.follows(&table, made)).peekable();
        if following.peek().is_none() {
            return (Vec::new(), None);
        }
        let record = record.into_record();
        let (mut effects, mut refused) = (Vec::new(), None);
        for migration in following {
            match migration.decide(&record, found) {
                Ok(said) => effects.extend(said),
                Err(Refusal(reason)) => {
                    refused.get_or_insert(Refusal(format!("`{}`: {reason}", migration.name)));
                }
            }
        }
        (effects, refused)
    }
}
