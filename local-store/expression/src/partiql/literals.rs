//! The grammar of literals: strings, numbers, lists, tuples, sets and parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::AttributeValue;
use model::limits::NESTING_LEVELS_MAX;
use model::number::NumberError;

use super::PartiqlError;
use super::keywords::is_keyword;
use super::parser::{PARAMETERS_MISMATCH, Parsed, Parser, TOO_DEEP};
use super::token::Token;

/// The parser's position in a literal, in the format of error messages: `root.name[0]`. Each
/// attribute of an inserted item is a root.
#[derive(Debug, Default)]
pub(super) struct LiteralPlace {
    below: String,
    /// The number of steps in the position.
    levels: usize,
    /// Whether the parser is in a list, a tuple or a set.
    is_inside: bool,
    /// Whether the next tuple is the item of an `INSERT`.
    is_item_next: bool,
}

impl LiteralPlace {
    /// Marks the next literal as the item of an `INSERT`.
    pub(super) fn begin_item(&mut self) {
        self.is_item_next = true;
    }

    /// Enters a tuple. Returns whether the tuple is an item.
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
            Token::Parameter if self.literal_place.levels > 0 => {
                Ok(self.refuse_type("Parameter", self.position - 1))
            }
            Token::Parameter => {
                let next = self.parameters.next();
                let next = next.ok_or_else(|| PartiqlError::new(PARAMETERS_MISMATCH));
                self.or_refuse(next, AttributeValue::Null)
            }
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
            Token::Symbol("<<") => self.descend(Self::set),
            Token::Symbol("{") => self.descend(|parser| parser.members().map(AttributeValue::M)),
            Token::Word(name)
                if self.is_symbol(0, "(")
                    || self.is_in_literal()
                        && (!is_keyword(&name) || name.eq_ignore_ascii_case("MISSING")) =>
            {
                let refused = self.refuse_type(&name, self.position - 1);
                if self.is_symbol(0, "(") {
                    self.skip_brackets()?;
                }
                Ok(refused)
            }
            Token::Quoted(name) if self.is_in_literal() => {
                Ok(self.refuse_type(&name, self.position - 1))
            }
            _ => {
                self.position -= 1;
                Err(self.unexpected())
            }
        }
    }

    /// Returns whether the current value is nested in a literal.
    fn is_in_literal(&self) -> bool {
        self.literal_place.is_inside
    }

    /// Records an error for the token at `at`, which is not a value. Returns a placeholder value,
    /// so that parsing can continue.
    fn refuse_type(&mut self, what: &str, at: usize) -> AttributeValue {
        self.refuse(PartiqlError::new(format!(
            "Unsupported data type: {what} under key {} at {}",
            self.literal_place,
            self.place_at(at)
        )));
        AttributeValue::Null
    }

    /// Parses a number after one or more signs.
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

    fn number(&mut self, text: &str) -> Parsed<AttributeValue> {
        let number = text.parse().map(AttributeValue::N);
        let number = number.map_err(|error: NumberError| match error.as_before(text) {
            NumberError::NotNumeric(_) => PartiqlError::malformed(""),
            error => PartiqlError::new(format!("{error} under {}", self.literal_place)),
        });
        self.or_refuse(number, AttributeValue::Null)
    }

    /// Parses a literal within another literal. `place` is its attribute name or index in the outer
    /// literal.
    fn literal_below(&mut self, place: &str) -> Parsed<AttributeValue> {
        let (above, level) = (self.literal_place.below.len(), usize::from(!place.is_empty()));
        self.literal_place.below.push_str(place);
        self.literal_place.levels += level;
        let was_inside = std::mem::replace(&mut self.literal_place.is_inside, true);
        let literal = self.literal_on_level();
        self.literal_place.below.truncate(above);
        self.literal_place.levels -= level;
        self.literal_place.is_inside = was_inside;
        literal
    }

    /// Parses a literal without arithmetic. The caller has checked the nesting level.
    fn literal_on_level(&mut self) -> Parsed<AttributeValue> {
        let is_too_deep = self.literal_place.levels >= NESTING_LEVELS_MAX;
        if is_too_deep {
            let text = format!("{TOO_DEEP} under {}", self.literal_place);
            self.refuse(PartiqlError::new(text));
        }
        // A value that is nested too deeply is skipped, so that a long statement cannot overflow
        // the stack.
        let literal = if is_too_deep && self.is_opening() {
            self.skip_brackets()?;
            AttributeValue::Null
        } else {
            self.literal()?
        };
        while let Some(operator) =
            ["+", "-", "*", "/", "%"].iter().find(|symbol| self.is_symbol(0, symbol))
        {
            self.refuse_type(operator, self.position);
            self.position += 1;
            self.literal()?;
        }
        Ok(literal)
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

    /// Parses a set after `<<`.
    fn set(&mut self) -> Parsed<AttributeValue> {
        let from = self.position;
        let elements = self.elements(">>")?;
        if elements.is_empty() {
            self.refuse(PartiqlError::new("Empty bags are not supported"));
            return Ok(AttributeValue::Null);
        }
        let count = elements.len();
        let (set, distinct) = self.or_refuse(set_of(elements), (AttributeValue::Null, count))?;
        if distinct == count {
            return Ok(set);
        }
        let texts = self.texts_of_elements(from).join(", ");
        let duplicates = format!(
            "One or more parameter values were invalid: Input collection [{texts}] contains duplicates"
        );
        // DynamoDB appends the position only to a message that does not end with a full stop.
        self.refuse(PartiqlError::new(if matches!(set, AttributeValue::Ns(_)) {
            format!("{duplicates}! under {}", self.literal_place)
        } else {
            format!("{duplicates}.")
        }));
        Ok(set)
    }

    /// Returns the elements of a set as they are written in the statement. Binaries are omitted.
    fn texts_of_elements(&self, from: usize) -> Vec<String> {
        let mut texts = vec![String::new()];
        for placed in self.tokens_from(from).iter().take(self.position.saturating_sub(from + 1)) {
            let Some(last) = texts.last_mut() else { continue };
            match &placed.token {
                Token::Symbol(",") => texts.push(String::new()),
                Token::Symbol("-") => last.push('-'),
                Token::Text(text) | Token::Number(text) => last.push_str(text),
                _ => {}
            }
        }
        texts
    }

    fn members(&mut self) -> Parsed<BTreeMap<String, AttributeValue>> {
        let mut members = BTreeMap::new();
        let is_item = self.literal_place.enter_tuple();
        if self.take_symbol("}") {
            return Ok(members);
        }
        loop {
            let at = self.position;
            let name = self.member_name()?;
            self.expect_symbol(":")?;
            let place = if is_item { String::new() } else { format!(".{name}") };
            let value = self.literal_below(&place)?;
            if members.insert(name.clone(), value).is_some() {
                self.refuse(PartiqlError::new(format!(
                    "Duplicate keys in tuple. Key: {name} under {} at {}",
                    self.literal_place,
                    self.place_at(at)
                )));
            }
            if self.take_symbol("}") {
                return Ok(members);
            }
            self.expect_symbol(",")?;
        }
    }

    /// Parses the name of a member, which is a string.
    fn member_name(&mut self) -> Parsed<String> {
        let kind = match self.peek() {
            Some(Token::Text(name)) => {
                let name = name.clone();
                self.position += 1;
                if name.is_empty() {
                    self.refuse(PartiqlError::new("Empty attribute name"));
                }
                return Ok(name);
            }
            Some(Token::Quoted(_)) => "VariableReference",
            Some(Token::Word(word)) if !is_keyword(word) => "VariableReference",
            Some(Token::Number(digits)) if digits.bytes().all(|b| b.is_ascii_digit()) => "INT",
            Some(Token::Number(_)) => "DECIMAL",
            Some(Token::Parameter) => "Parameter",
            Some(Token::Word(_) | Token::Symbol(_)) | None => return Err(self.unexpected()),
        };
        self.refuse(PartiqlError::new(format!(
            "Tuple keys must be of type String. Actual type: {kind} under {} at {}",
            self.literal_place,
            self.place_at(self.position)
        )));
        self.position += 1;
        Ok(String::new())
    }
}

/// Returns a set of strings, numbers or binaries, all of one type, and the number of its distinct
/// elements. Binaries can only be parameters.
fn set_of(elements: Vec<AttributeValue>) -> Parsed<(AttributeValue, usize)> {
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
    match (strings.len(), numbers.len(), binaries.len()) {
        (distinct, 0, 0) => Ok((AttributeValue::Ss(strings), distinct)),
        (0, distinct, 0) => Ok((AttributeValue::Ns(numbers), distinct)),
        (0, 0, distinct) => Ok((AttributeValue::Bs(binaries), distinct)),
        _ => Err(mixed_set()),
    }
}

fn mixed_set() -> PartiqlError {
    PartiqlError::new(
        "Unsupported data type in Bag. DynamoDB only supports either numbers or strings in bags",
    )
}
