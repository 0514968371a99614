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
    tokens: usize,
}

/// Tokens of a program that is evaluated on the stack of its caller. An evaluation needs less than
/// [`STACK_OF_TOKEN`] for each, and callers have 2 MB.
const TOKENS_OF_CALLER: usize = 60;
/// Bytes of stack that each token of a program may need, without optimisation.
const STACK_OF_TOKEN: usize = 32 * 1024;
/// Bytes of stack for all else.
const STACK_OF_ALL: usize = 1024 * 1024;

impl Program {
    /// Reads a program.
    ///
    /// # Errors
    /// When it is not jq, or uses what is not available here.
    pub(crate) fn parse(program: &str) -> Result<Self, ProgramError> {
        parser::parse(program).map(|(term, tokens)| Self { term, tokens })
    }

    /// Its syntax tree.
    pub(crate) fn term(&self) -> &Term {
        &self.term
    }

    /// Does something that goes as deep as the syntax tree, on a stack that is large enough; none if
    /// there is no such stack to be had.
    pub(crate) fn with_stack<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Option<T> {
        if self.tokens <= TOKENS_OF_CALLER {
            return Some(work());
        }
        let stack = STACK_OF_ALL + self.tokens * STACK_OF_TOKEN;
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, work);
            thread.ok()?.join().ok()
        })
    }

    /// The first values that the program gives, `most` of them at most.
    ///
    /// # Errors
    /// Why the program fails for this value, or refuses it.
    pub(crate) fn run(&self, input: &Val, most: usize) -> Result<Vec<Val>, Fault> {
        let outcome = self.with_stack(|| self.evaluate(input, most));
        outcome.unwrap_or_else(|| Err(Fault::Refused("there is no memory to run it".to_owned())))
    }

    fn evaluate(&self, input: &Val, most: usize) -> Result<Vec<Val>, Fault> {
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
