//! The grammar of literals: strings, numbers, lists, tuples, sets, and parameters.

use std::collections::{BTreeMap, BTreeSet};

use model::{AttributeValue, Number};

use super::PartiqlError;
use super::parser::{Parsed, Parser};
use super::token::Token;

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
            Token::Number(text) => number(&text),
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
            Token::Symbol(sign @ ("-" | "+")) => match self.peek().cloned() {
                Some(Token::Number(text)) => {
                    self.position += 1;
                    number(&if sign == "-" { format!("-{text}") } else { text })
                }
                _ => Err(self.unexpected()),
            },
            Token::Symbol("[") => {
                self.descend(|parser| parser.elements("]").map(AttributeValue::L))
            }
            Token::Symbol("<<") => self.descend(|parser| set(parser.elements(">>")?)),
            Token::Symbol("{") => self.descend(|parser| parser.members().map(AttributeValue::M)),
            _ => {
                self.position -= 1;
                Err(self.unexpected())
            }
        }
    }

    fn elements(&mut self, end: &str) -> Parsed<Vec<AttributeValue>> {
        let mut elements = Vec::new();
        if self.take_symbol(end) {
            return Ok(elements);
        }
        loop {
            elements.push(self.literal()?);
            if self.take_symbol(end) {
                return Ok(elements);
            }
            self.expect_symbol(",")?;
        }
    }

    fn members(&mut self) -> Parsed<BTreeMap<String, AttributeValue>> {
        let mut members = BTreeMap::new();
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
            let value = self.literal()?;
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

fn number(text: &str) -> Parsed<AttributeValue> {
    text.parse::<Number>()
        .map(AttributeValue::N)
        .map_err(|error| PartiqlError::new(format!("{error} under root")))
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
