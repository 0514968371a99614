//! Tests of the expression language from outside: recorded answers, properties, hostile texts.

mod hostile;
mod properties;
mod recorded;
