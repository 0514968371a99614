//! jq programs over JSON values, without I/O and with bounded work.
//!
//! A program yields the same values as in jq 1.8, and fails if jq fails. Anything whose result
//! could differ from jq's is refused. If the program itself shows the difference, the parser
//! refuses the program. Otherwise, the evaluation refuses the value ([`Stop::Refused`]), and `try`
//! does not catch the refusal. `docs/transforms.md` lists the refusals. `testdata/jq/` contains
//! recorded results of jq itself, and `differential_tests` compares this module's results with
//! them.
//!
//! A program is parsed (`lexer`, `parser`) into a tree (`syntax`), which `evaluation` evaluates.
//! Named filters are in `filters` and in the modules that its documentation lists.
//! `migration::view` converts DynamoDB's types.

mod arithmetic;
mod arrays;
mod builtin;
mod construct;
mod evaluation;
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
mod regex;
mod simple;
mod stop;
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

use machine::Machine;
use stop::Stop;
use thiserror::Error;

/// The reason why a program is not accepted, and the position of the error in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramError {
    /// The position of the error in bytes, from 0.
    pub at: usize,
    /// The error.
    pub reason: String,
}

/// A parsed and checked program.
#[derive(Debug)]
pub(crate) struct Program {
    term: Term,
    tokens: usize,
}

/// The maximum number of tokens of a program that is evaluated on the caller's stack. A token needs
/// less than [`STACK_OF_TOKEN`], and a caller has a stack of 2 MB.
const TOKENS_OF_CALLER: usize = 60;
/// The maximum stack size that one token of a program needs in a build without optimisation, in
/// bytes.
const STACK_OF_TOKEN: usize = 32 * 1024;
/// The stack size in bytes that an evaluation needs in addition to the stack for the program's
/// tokens.
const STACK_OF_ALL: usize = 1024 * 1024;

impl Program {
    /// Parses a program.
    ///
    /// # Errors
    /// When the program is not valid jq, or uses a feature that is not available in transforms.
    pub(crate) fn parse(program: &str) -> Result<Self, ProgramError> {
        parser::parse(program).map(|(term, tokens)| Self { term, tokens })
    }

    /// Returns the syntax tree.
    pub(crate) fn term(&self) -> &Term {
        &self.term
    }

    /// Runs work that recurses as deep as the syntax tree, on a stack of sufficient size. Returns
    /// `None` if the stack cannot be allocated.
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

    /// Returns the first values of the program, at most `most` of them.
    ///
    /// # Errors
    /// When the program fails or is refused for this value.
    pub(crate) fn run(&self, input: &Val, most: usize) -> Result<Vec<Val>, Fault> {
        let outcome = self.with_stack(|| self.evaluate(input, most));
        outcome.unwrap_or_else(|| {
            Err(Fault::Refused("there is not enough memory to run the program".to_owned()))
        })
    }

    fn evaluate(&self, input: &Val, most: usize) -> Result<Vec<Val>, Fault> {
        let mut values = Vec::new();
        let ended = Machine::default().values(&self.term, input, &mut |value| {
            values.push(value);
            if values.len() < most { Ok(()) } else { Err(Stop::NoMoreValues) }
        });
        match ended {
            Ok(()) | Err(Stop::NoMoreValues) => Ok(values),
            Err(Stop::Error(Val::Str(text))) => Err(Fault::Failed(text.to_string())),
            Err(Stop::Error(value)) => Err(Fault::Failed(json::write(&value))),
            Err(Stop::Refused(reason)) => Err(Fault::Refused(reason)),
            // This cannot happen: the parser resolves each label, and `try` returns the reason that
            // it stored.
            Err(Stop::Break(_) | Stop::ReceiverStopped) => {
                Err(Fault::Refused("`break` without its label".to_owned()))
            }
        }
    }
}

/// The reason why a program yields no values for an input.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// jq fails for this input too.
    #[error("{0}")]
    Failed(String),
    /// The result is refused: it may differ from jq's.
    #[error("{0}")]
    Refused(String),
}

#[cfg(test)]
mod differential_tests;
