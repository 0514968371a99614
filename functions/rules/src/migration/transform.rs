//! Transforms: jq programs from one item to any number of items, without I/O.
//!
//! What could run without end or ask the outside is not part of the language here: definitions of
//! one's own, and the filters of [`NOT_AVAILABLE`]. What is left ends, because every loop runs over
//! something finite. The view of items is in `view`.

use std::fmt;

use jaq_core::load::lex::{Lexer, StrPart, Tok, Token};
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::Val;
use model::Item;

use super::looks::Looks;
use super::view;

/// Items that a transform may make of one item: as many as one transaction could hold.
pub const OUTPUTS_MAX: usize = 100;

/// Filters of jq that are left out: they may never end, or look outside.
pub const NOT_AVAILABLE: [&str; 19] = [
    "def",
    "import",
    "include",
    "repeat",
    "recurse",
    "while",
    "until",
    "range",
    "combinations",
    "input",
    "inputs",
    "env",
    "now",
    "debug",
    "stderr",
    "halt",
    "halt_error",
    "localtime",
    "strflocaltime",
];

type Data = data::JustLut<Val>;

/// A transform that was checked.
pub struct Transform {
    program: String,
    filter: jaq_core::Filter<Data>,
    looks: Looks,
}

/// Why a program is no transform: what is wrong, and at which byte of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramError {
    /// Byte of the program from which on it is wrong, from 0.
    pub at: usize,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transform").field(&self.program).finish()
    }
}

impl Transform {
    /// Checks and compiles a program.
    ///
    /// # Errors
    /// When it is not jq, or uses what is not available here.
    pub fn compile(program: &str) -> Result<Self, ProgramError> {
        let tokens = Lexer::new(program).lex().map_err(|errors| {
            let first = errors.first();
            let at = first.map_or(0, |(_, rest)| offset(program, rest));
            let expected = first.map_or("something else", |(expected, _)| expected.as_str());
            ProgramError { at, reason: format!("expected {expected} here") }
        })?;
        refuse_endless(program, &tokens)?;
        let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let natives = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let arena = Arena::default();
        let modules = Loader::new(definitions)
            .load(&arena, File { code: program, path: () })
            .map_err(|errors| load_error(program, &errors))?;
        let filter = Compiler::default().with_funs(natives).compile(modules).map_err(|errors| {
            let undefined = errors.iter().flat_map(|(_, undefined)| undefined).next();
            undefined.map_or_else(
                || ProgramError { at: 0, reason: "the program cannot be compiled".to_owned() },
                |(name, what)| ProgramError {
                    at: offset(program, name),
                    reason: format!("there is no {} `{name}`", what.as_str()),
                },
            )
        })?;
        Ok(Self { program: program.to_owned(), filter, looks: Looks::of(program) })
    }

    /// Which attributes of an item the program can look at.
    pub(super) fn looks(&self) -> &Looks {
        &self.looks
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The items that the transform makes of one item.
    ///
    /// # Errors
    /// When the program fails for this item, gives more than [`OUTPUTS_MAX`] items, or something
    /// that is no item.
    pub fn run(&self, item: &Item) -> Result<Vec<Item>, String> {
        let outputs = self.values(item, OUTPUTS_MAX + 1);
        let outputs = outputs.map_err(|error| format!("the transform failed: {error}"))?;
        if outputs.len() > OUTPUTS_MAX {
            return Err(format!("the transform gives more than {OUTPUTS_MAX} items"));
        }
        outputs.iter().map(view::to_item).collect()
    }

    /// The first values that the program gives for an item, `most` of them at most.
    ///
    /// # Errors
    /// Why the program fails for this item.
    pub(super) fn values(&self, item: &Item, most: usize) -> Result<Vec<Val>, String> {
        let context = Ctx::<Data>::new(&self.filter.lut, Vars::new([]));
        let mut values = Vec::new();
        let outputs = self.filter.id.run((context, view::of_item(item))).map(unwrap_valr);
        for output in outputs.take(most) {
            values.push(output.map_err(|error| error.to_string())?);
        }
        Ok(values)
    }
}

fn load_error(program: &str, errors: &load::Errors<&str, ()>) -> ProgramError {
    let at = match errors.first().map(|(_, error)| error) {
        Some(load::Error::Parse(errors)) => {
            errors.first().map_or(0, |(_, rest)| offset(program, rest))
        }
        Some(load::Error::Lex(errors)) => {
            errors.first().map_or(0, |(_, rest)| offset(program, rest))
        }
        _ => 0,
    };
    ProgramError { at, reason: "this is not jq from here on".to_owned() }
}

/// Where a part of the program begins; its end, if it is no part of it.
fn offset(program: &str, part: &str) -> usize {
    let at = (part.as_ptr() as usize).wrapping_sub(program.as_ptr() as usize);
    if at <= program.len() { at } else { program.len() }
}

fn refuse_endless(program: &str, tokens: &[Token<&str>]) -> Result<(), ProgramError> {
    let mut behind_dot = false;
    for (position, Token(text, kind)) in tokens.iter().enumerate() {
        let is_name = || matches!(tokens.get(position + 1), Some(Token(":", Tok::Sym)));
        match kind {
            // `.now` is an attribute, and so is `{now: 1}`.
            Tok::Word if !behind_dot && NOT_AVAILABLE.contains(text) && !is_name() => {
                return Err(ProgramError {
                    at: offset(program, text),
                    reason: format!(
                        "`{text}` is not available in transforms: it may never end, or look outside of the item"
                    ),
                });
            }
            Tok::Block(inner) => refuse_endless(program, inner)?,
            Tok::Str(parts) => {
                for part in parts {
                    if let StrPart::Term(inner) = part {
                        refuse_endless(program, std::slice::from_ref(inner))?;
                    }
                }
            }
            _ => {}
        }
        behind_dot = matches!(kind, Tok::Sym) && *text == ".";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::json::{item_from_str, item_to_string};

    use super::*;

    fn run(program: &str, item: &str) -> Result<String, String> {
        let transform = Transform::compile(program).map_err(|error| format!("{error:?}"))?;
        let items = transform.run(&item_from_str(item).unwrap())?;
        Ok(items.iter().map(item_to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn items_become_items() {
        let item = r#"{"id":{"S":"7"},"lines":{"L":[{"M":{"n":{"N":"1.10"}}},{"M":{"n":{"N":"2"}}}]},"b":{"B":"AA=="}}"#;
        for (program, expected) in [
            (
                ".",
                r#"{"b":{"B":"AA=="},"id":{"S":"7"},"lines":{"L":[{"M":{"n":{"N":"1.1"}}},{"M":{"n":{"N":"2"}}}]}}"#,
            ),
            ("empty", ""),
            (
                "{id, n: .lines[].n}",
                r#"{"id":{"S":"7"},"n":{"N":"1.1"}} {"id":{"S":"7"},"n":{"N":"2"}}"#,
            ),
            (
                "{sum: ([.lines[].n] | add), has: (.x // \"none\")}",
                r#"{"has":{"S":"none"},"sum":{"N":"3.1"}}"#,
            ),
            ("del(.lines) | .id |= tonumber", r#"{"b":{"B":"AA=="},"id":{"N":"7"}}"#),
            ("{(\"now\"): .id, def: 1}", r#"{"def":{"N":"1"},"now":{"S":"7"}}"#),
        ] {
            assert_eq!(run(program, item).as_deref(), Ok(expected), "{program}");
        }
    }

    #[test]
    fn what_is_wrong_says_where() {
        for (program, at, reason) in [
            ("{a: .b", 6, "expected closing brace here"),
            (".a | | .b", 5, "this is not jq from here on"),
            (".a | nope", 5, "there is no filter `nope`"),
            (
                ". as $x | [repeat(.)]",
                11,
                "`repeat` is not available in transforms: it may never end, or look outside of the item",
            ),
            (
                "\"\\(now)\"",
                3,
                "`now` is not available in transforms: it may never end, or look outside of the item",
            ),
        ] {
            let error = Transform::compile(program).unwrap_err();
            assert_eq!((error.at, error.reason.as_str()), (at, reason), "{program}");
        }
        assert!(run(".now, .def", r#"{"now":{"M":{}},"def":{"M":{}}}"#).is_ok());
        assert!(run("error(\"no\")", "{}").unwrap_err().contains("no"));
        let many = format!(r#"{{"l":{{"L":[{}]}}}}"#, vec![r#"{"M":{}}"#; 101].join(","));
        assert!(run(".l[]", &many).unwrap_err().contains("more than 100"));
    }
}
