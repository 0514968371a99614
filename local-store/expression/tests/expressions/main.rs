//! Tests of the public interface of the expression language: recorded responses, properties,
//! hostile texts.

#![expect(clippy::disallowed_methods, reason = "tests read recorded answers and start deep stacks")]

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod partiql;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod recorded;
