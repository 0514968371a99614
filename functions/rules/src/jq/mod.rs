//! jq programs over JSON values, without I/O and with a bound on what they do.
//!
//! Where jq 1.8 gives a value, a program gives the same value; where jq fails, it fails. What cannot
//! be the same is refused: when the program is read, if its text says so, and otherwise for the value
//! at hand ([`Stop::Refused`]), which no `try` catches. `docs/transforms.md` lists what is refused.
//! `testdata/jq/` holds answers of the jq program, and `differential_tests` compares them.
//!
//! A program is read (`lexer`, `parser`) into a tree (`syntax`), which `machine` evaluates. Filters
//! with a name are in `filters` and the modules that it names. What a value is in DynamoDB is not
//! known here.

mod arithmetic;
mod arrays;
mod builtin;
mod construct;
mod filters;
mod formats;
mod iterations;
mod json;
mod lexer;
mod machine;
mod number;
mod operator;
mod parser;
mod paths;
mod patterns;
mod simple;
mod syntax;
mod texts;
mod times;
mod value;

pub(crate) use builtin::Builtin;
#[cfg(test)]
pub(crate) use json::read;
pub(crate) use number::Num;
pub(crate) use syntax::{Binding, Change, Math, Pattern, Piece, Term};
pub(crate) use value::{Object, Val};

use machine::{Machine, Stop};
use thiserror::Error;

/// Why a program is not one that runs here: what is wrong, and at which byte of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramError {
    /// Byte of the program from which on it is wrong, from 0.
    pub at: usize,
    /// What is wrong.
    pub reason: String,
}

/// A program that was checked.
#[derive(Debug)]
pub(crate) struct Program {
    term: Term,
}

impl Program {
    /// Reads a program.
    ///
    /// # Errors
    /// When it is not jq, or uses what is not available here.
    pub(crate) fn parse(program: &str) -> Result<Self, ProgramError> {
        parser::parse(program).map(|term| Self { term })
    }

    /// Its syntax tree.
    pub(crate) fn term(&self) -> &Term {
        &self.term
    }

    /// The first values that the program gives, `most` of them at most.
    ///
    /// # Errors
    /// Why the program fails for this value, or refuses it.
    pub(crate) fn run(&self, input: &Val, most: usize) -> Result<Vec<Val>, Fault> {
        let mut values = Vec::new();
        let ended = Machine::default().values(&self.term, input, &mut |value| {
            values.push(value);
            if values.len() < most { Ok(()) } else { Err(Stop::Enough) }
        });
        match ended {
            Ok(()) | Err(Stop::Enough) => Ok(values),
            Err(Stop::Error(Val::Str(text))) => Err(Fault::Failed(text.to_string())),
            Err(Stop::Error(value)) => Err(Fault::Failed(json::write(&value))),
            Err(Stop::Refused(reason)) => Err(Fault::Refused(reason)),
            // The parser resolves each label, and `try` passes on what it kept.
            Err(Stop::Break(_) | Stop::Passed) => {
                Err(Fault::Refused("`break` without its label".to_owned()))
            }
        }
    }
}

/// Why a program gives no values for an input.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Fault {
    /// jq fails, too.
    #[error("{0}")]
    Failed(String),
    /// jq may give a value.
    #[error("{0}")]
    Refused(String),
}

#[cfg(test)]
mod differential_tests;
