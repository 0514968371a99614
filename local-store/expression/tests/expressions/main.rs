//! Tests of the expression language from outside: recorded answers, properties, hostile texts.

#![expect(clippy::disallowed_methods, reason = "tests read recorded answers and start deep stacks")]

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod partiql;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod recorded;
