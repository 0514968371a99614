//! The grammar of literals: strings, numbers, lists, tuples, sets, and parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::AttributeValue;
use model::limits::NESTING_LEVELS_MAX;
use model::number::NumberError;

use super::PartiqlError;
use super::parser::{Parsed, Parser, TOO_DEEP};
use super::token::Token;

/// Where in a literal the parser is, as error texts have it: `root.name[0]`. The attributes of an
/// inserted item are each a root.
#[derive(Debug, Default)]
pub(super) struct LiteralPlace {
    below: String,
    /// How many steps that are.
    levels: usize,
    /// Whether the next tuple is an item.
    is_item_next: bool,
}

impl LiteralPlace {
    /// The next literal is the item of an `INSERT`.
    pub(super) fn begin_item(&mut self) {
        self.is_item_next = true;
    }

    /// Enters a tuple; gives whether it is an item.
    fn enter_tuple(&mut self) -> bool {
        std::mem::take(&mut self.is_item_next)
    }
}

impl fmt::Display for LiteralPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "root{}", self.below)
    }
}

impl Parser<'_> {
    pub(super) fn is_literal(&self) -> bool {
        match self.peek() {
            Some(Token::Text(_) | Token::Number(_) | Token::Parameter) => true,
            Some(Token::Symbol(symbol)) => matches!(*symbol, "[" | "{" | "<<" | "-" | "+"),
            Some(Token::Word(word)) => {
                ["TRUE", "FALSE", "NULL"].iter().any(|name| name.eq_ignore_ascii_case(word))
            }
            Some(Token::Quoted(_)) | None => false,
        }
    }

    pub(super) fn literal(&mut self) -> Parsed<AttributeValue> {
        let Some(token) = self.peek().cloned() else {
            return Err(self.unexpected());
        };
        self.position += 1;
        match token {
            Token::Text(text) => Ok(AttributeValue::S(text)),
            Token::Number(text) => self.number(&text),
            Token::Parameter if self.literal_place.levels > 0 => Err(PartiqlError::new(format!(
                "Unsupported data type: Parameter under key {} at {}",
                self.literal_place,
                self.place_at(self.position - 1)
            ))),
            Token::Parameter => self.parameters.next().ok_or_else(|| {
                PartiqlError::new("Number of parameters in request and statement don't match.")
            }),
            Token::Word(word) if word.eq_ignore_ascii_case("TRUE") => {
                Ok(AttributeValue::Bool(true))
            }
            Token::Word(word) if word.eq_ignore_ascii_case("FALSE") => {
                Ok(AttributeValue::Bool(false))
            }
            Token::Word(word) if word.eq_ignore_ascii_case("NULL") => Ok(AttributeValue::Null),
            Token::Symbol(sign @ ("-" | "+")) => self.signed_number(sign == "-"),
            Token::Symbol("[") => {
                self.descend(|parser| parser.elements("]").map(AttributeValue::L))
            }
            Token::Symbol("<<") => self.descend(|parser| set(parser.elements(">>")?)),
            Token::Symbol("{") => self.descend(|parser| parser.members().map(AttributeValue::M)),
            Token::Word(name) if self.is_symbol(0, "(") => Err(PartiqlError::new(format!(
                "Unsupported data type: {name} under key {} at {}",
                self.literal_place,
                self.place_at(self.position - 1)
            ))),
            _ => {
                self.position -= 1;
                Err(self.unexpected())
            }
        }
    }

    /// Behind one sign or several.
    fn signed_number(&mut self, mut is_negative: bool) -> Parsed<AttributeValue> {
        loop {
            if self.take_symbol("-") {
                is_negative = !is_negative;
            } else if !self.take_symbol("+") {
                break;
            }
        }
        let Some(Token::Number(text)) = self.peek().cloned() else {
            return Err(self.unexpected());
        };
        self.position += 1;
        self.number(&if is_negative { format!("-{text}") } else { text })
    }

    fn number(&self, text: &str) -> Parsed<AttributeValue> {
        text.parse().map(AttributeValue::N).map_err(|error: NumberError| {
            match error.as_before(text) {
                NumberError::NotNumeric(_) => PartiqlError::malformed(""),
                error => PartiqlError::new(format!("{error} under {}", self.literal_place)),
            }
        })
    }

    /// A literal that stands in another one, at this place of it.
    fn literal_below(&mut self, place: &str) -> Parsed<AttributeValue> {
        let (above, level) = (self.literal_place.below.len(), usize::from(!place.is_empty()));
        self.literal_place.below.push_str(place);
        self.literal_place.levels += level;
        let literal = if self.literal_place.levels < NESTING_LEVELS_MAX {
            self.literal()
        } else {
            Err(PartiqlError::new(format!("{TOO_DEEP} under {}", self.literal_place)))
        };
        self.literal_place.below.truncate(above);
        self.literal_place.levels -= level;
        literal
    }

    fn elements(&mut self, end: &str) -> Parsed<Vec<AttributeValue>> {
        let mut elements = Vec::new();
        if self.take_symbol(end) {
            return Ok(elements);
        }
        loop {
            elements.push(self.literal_below(&format!("[{}]", elements.len()))?);
            if self.take_symbol(end) {
                return Ok(elements);
            }
            self.expect_symbol(",")?;
        }
    }

    fn members(&mut self) -> Parsed<BTreeMap<String, AttributeValue>> {
        let mut members = BTreeMap::new();
        let is_item = self.literal_place.enter_tuple();
        if self.take_symbol("}") {
            return Ok(members);
        }
        loop {
            let name = match self.peek().cloned() {
                Some(Token::Text(name)) => {
                    self.position += 1;
                    name
                }
                _ => self.name()?,
            };
            if name.is_empty() {
                return Err(PartiqlError::new("Empty attribute name"));
            }
            self.expect_symbol(":")?;
            let place = if is_item { String::new() } else { format!(".{name}") };
            let value = self.literal_below(&place)?;
            if members.insert(name.clone(), value).is_some() {
                return Err(PartiqlError::malformed(&format!("Duplicate attribute name: {name}")));
            }
            if self.take_symbol("}") {
                return Ok(members);
            }
            self.expect_symbol(",")?;
        }
    }
}

/// A set of strings, numbers or binaries, all of one type. Binaries come as parameters.
fn set(elements: Vec<AttributeValue>) -> Parsed<AttributeValue> {
    if elements.is_empty() {
        return Err(PartiqlError::new("Empty bags are not supported"));
    }
    let count = elements.len();
    let texts: Vec<String> = elements.iter().map(element_text).collect();
    let mut strings = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    let mut binaries = BTreeSet::new();
    for element in elements {
        match element {
            AttributeValue::S(text) => strings.insert(text),
            AttributeValue::N(number) => numbers.insert(number),
            AttributeValue::B(bytes) => binaries.insert(bytes),
            _ => return Err(mixed_set()),
        };
    }
    let (value, distinct) = match (strings.len(), numbers.len(), binaries.len()) {
        (distinct, 0, 0) => (AttributeValue::Ss(strings), distinct),
        (0, distinct, 0) => (AttributeValue::Ns(numbers), distinct),
        (0, 0, distinct) => (AttributeValue::Bs(binaries), distinct),
        _ => return Err(mixed_set()),
    };
    if distinct < count {
        return Err(PartiqlError::new(format!(
            "One or more parameter values were invalid: Input collection [{}] contains duplicates.",
            texts.join(", ")
        )));
    }
    Ok(value)
}

/// A member of a set as error texts have it; bytes are not told.
fn element_text(element: &AttributeValue) -> String {
    match element {
        AttributeValue::S(text) => text.clone(),
        AttributeValue::N(number) => number.to_string(),
        _ => String::new(),
    }
}

fn mixed_set() -> PartiqlError {
    PartiqlError::new(
        "Unsupported data type in Bag. DynamoDB only supports either numbers or strings in bags",
    )
}
