//! The grammar of conditions after `WHERE`.

use model::{AttributeType, AttributeValue};

use super::keywords::type_name;
use super::parser::{Parsed, Parser, incorrect_operand};
use super::token::Token;
use super::{PartiqlError, Where};
use crate::comparator::Comparator;
use crate::condition_tree::{Operand, Test};
use crate::path::Path;

/// The maximum number of candidates of `IN`, inclusive.
const IN_OPERANDS_MAX: usize = 100;
/// The error message for `IN` without candidates.
const NO_CANDIDATES: &str = "IN operator must have a left hand argument of type Variable Reference and right hand \
    argument of type Seq with at least one member";
/// The functions that can be used as conditions.
const FUNCTIONS: [&str; 5] =
    ["attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains"];
/// The types that may follow `IS`, in addition to `MISSING`.
const TYPE_NAMES: [(&str, AttributeType); 9] = [
    ("NULL", AttributeType::Null),
    ("BOOL", AttributeType::Bool),
    ("BOOLEAN", AttributeType::Bool),
    ("BLOB", AttributeType::B),
    ("STRING", AttributeType::S),
    ("NUMERIC", AttributeType::N),
    ("STRUCT", AttributeType::M),
    ("TUPLE", AttributeType::M),
    ("LIST", AttributeType::L),
];

/// Checks that no other operand is the same path as the first operand, which DynamoDB rejects.
fn check_distinct<'o>(
    operator: &str,
    first: &Operand,
    others: impl IntoIterator<Item = &'o Operand>,
) -> Parsed<()> {
    let Operand::Path(path) = first else { return Ok(()) };
    if others.into_iter().any(|other| other == first) {
        return Err(PartiqlError::new(format!(
            "The first operand must be distinct from the remaining operands for this operator or function; operator: {operator}, first operand: {path}"
        )));
    }
    Ok(())
}

/// Checks that booleans are only compared for equality, because they have no order.
fn check_is_equality(comparator: Comparator) -> Parsed<()> {
    if comparator.is_ordering() {
        return Err(incorrect_operand(comparator.text(), AttributeType::Bool));
    }
    Ok(())
}

fn negated(test: Test) -> Test {
    Test::Not(Box::new(test))
}

fn never() -> Test {
    negated(Test::And(Vec::new()))
}

/// Returns whether a token is a comparator.
pub(super) fn is_comparison(token: &Token) -> bool {
    matches!(token, Token::Symbol("=" | "<>" | "!=" | "<" | "<=" | ">" | ">="))
}

/// Returns the equality test `same`, or its negation if the comparator is `<>`.
fn equality_test(comparator: Comparator, same: Test) -> Test {
    if comparator == Comparator::NotEqual { negated(same) } else { same }
}

/// Returns the number of nodes of a condition, which determines the cost of a copy.
fn nodes(test: &Test) -> usize {
    match test {
        Test::And(members) | Test::Or(members) => 1 + members.iter().map(nodes).sum::<usize>(),
        Test::Not(inner) => 1 + nodes(inner),
        _ => 1,
    }
}

impl Parser<'_> {
    pub(super) fn optional_where(&mut self) -> Parsed<Where> {
        self.values = Vec::new();
        self.operators = 0;
        let tests = if self.take_word("WHERE") {
            match self.disjunction()? {
                Test::And(members) => members,
                other => vec![other],
            }
        } else {
            Vec::new()
        };
        Ok(Where::new(tests, std::mem::take(&mut self.values)))
    }

    fn disjunction(&mut self) -> Parsed<Test> {
        let mut members = vec![self.conjunction()?];
        while self.take_word("OR") {
            self.count_operators(1)?;
            self.check_operand_follows()?;
            members.push(self.conjunction()?);
        }
        Ok(if members.len() == 1 { members.remove(0) } else { Test::Or(members) })
    }

    fn conjunction(&mut self) -> Parsed<Test> {
        let mut members = Vec::new();
        loop {
            // Merges nested conjunctions into one.
            match self.negation()? {
                Test::And(inner) => members.extend(inner),
                member => members.push(member),
            }
            if !self.take_word("AND") {
                return Ok(if members.len() == 1 { members.remove(0) } else { Test::And(members) });
            }
            self.count_operators(1)?;
            self.check_operand_follows()?;
        }
    }

    fn check_operand_follows(&self) -> Parsed<()> {
        match self.peek() {
            None => {
                Err(PartiqlError::malformed("Missing right-hand side expression of infix operator"))
            }
            Some(_) => Ok(()),
        }
    }

    fn negation(&mut self) -> Parsed<Test> {
        if self.take_word("NOT") {
            self.count_operators(1)?;
            return self.descend(|parser| Ok(Test::Not(Box::new(parser.negation()?))));
        }
        if self.take_symbol("(") {
            return self.descend(|parser| {
                let inner = parser.disjunction()?;
                parser.expect_symbol(")")?;
                parser.as_boolean(inner)
            });
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed<Test> {
        if let Some(test) = self.function_test()? {
            return self.as_boolean(test);
        }
        let left = self.operand()?;
        self.count_operators(1)?;
        if self.take_word("IS") {
            return self.is_test(left, self.position - 1);
        }
        let negated = self.is_word(0, "NOT");
        self.position += usize::from(negated);
        self.count_operators(usize::from(negated))?;
        let wrap = |test: Test| if negated { Test::Not(Box::new(test)) } else { test };
        if self.take_word("BETWEEN") {
            let lower = self.operand()?;
            self.expect_word("AND")?;
            let upper = self.operand()?;
            self.or_refuse(self.check_ordered("BETWEEN", [&lower, &upper]), ())?;
            self.or_refuse(check_distinct("BETWEEN", &left, [&lower, &upper]), ())?;
            return Ok(wrap(Test::Between { operand: left, lower, upper }));
        }
        if self.take_word("IN") {
            let candidates = self.candidates()?;
            self.or_refuse(check_distinct("IN", &left, &candidates), ())?;
            return Ok(wrap(Test::In { operand: left, candidates }));
        }
        if negated {
            return Err(self.unexpected());
        }
        let Some(comparator) = self.comparator() else {
            return Err(match self.peek() {
                None => PartiqlError::new(
                    "WHERE clause must contain an expression that resolves to a boolean",
                ),
                Some(_) => self.unexpected(),
            });
        };
        if let Some(test) = self.function_test()? {
            return self.compared(test, comparator, &left);
        }
        let at = self.position;
        let right = self.operand()?;
        if comparator == Comparator::Equal {
            self.note_equal(at, &right);
        }
        if comparator.is_ordering() {
            self.or_refuse(self.check_ordered(comparator.text(), [&left, &right]), ())?;
        }
        self.or_refuse(check_distinct(comparator.text(), &left, [&right]), ())?;
        Ok(Test::Compare { comparator, left, right })
    }

    /// Records that an attribute is compared for equality with the parameter at the token `at`. The
    /// parser does not use the value of such a parameter.
    fn note_equal(&mut self, at: usize, operand: &Operand) {
        let token = self.tokens_from(at).first().map(|placed| &placed.token);
        if let (Some(Token::Parameter), Operand::Value(index)) = (token, operand) {
            let taken = self.given - self.parameters.len();
            self.equal.extend(taken.checked_sub(1).map(|parameter| (parameter, *index)));
        }
    }

    /// Parses the rest of a comparison whose first operand is a condition, used as a boolean.
    fn as_boolean(&mut self, test: Test) -> Parsed<Test> {
        if self.take_word("IN") {
            self.count_operators(1)?;
            let candidates = self.candidates()?;
            let mut any = Vec::with_capacity(candidates.len());
            for candidate in candidates {
                // Each candidate needs a copy of the condition. The copies count towards the
                // operator limit as if they were in the text.
                self.count_operators(nodes(&test))?;
                any.push(self.compared(test.clone(), Comparator::Equal, &candidate)?);
            }
            return Ok(Test::Or(any));
        }
        let Some(comparator) = self.comparator() else { return Ok(test) };
        self.count_operators(1)?;
        match self.function_test()? {
            None => {
                let operand = self.operand()?;
                self.compared(test, comparator, &operand)
            }
            Some(other) => {
                self.or_refuse(check_is_equality(comparator), ())?;
                self.count_operators(nodes(&test) + nodes(&other))?;
                let both = Test::And(vec![test.clone(), other.clone()]);
                let neither = Test::And(vec![negated(test), negated(other)]);
                Ok(equality_test(comparator, Test::Or(vec![both, neither])))
            }
        }
    }

    /// Returns the test that compares a condition's boolean result with an operand.
    fn compared(&mut self, test: Test, comparator: Comparator, operand: &Operand) -> Parsed<Test> {
        self.or_refuse(check_is_equality(comparator), ())?;
        let same = match operand {
            Operand::Value(index) => match index.of(&self.values) {
                AttributeValue::Bool(true) => test,
                AttributeValue::Bool(false) => negated(test),
                _ => never(),
            },
            Operand::SizeOf(_) => never(),
            Operand::Path(_) => {
                self.count_operators(nodes(&test))?;
                let mut is = |flag: bool| {
                    let (left, right) = (operand.clone(), self.keep(AttributeValue::Bool(flag))?);
                    let right = Operand::Value(right);
                    Ok(Test::Compare { comparator: Comparator::Equal, left, right })
                };
                let both = Test::And(vec![test.clone(), is(true)?]);
                Test::Or(vec![both, Test::And(vec![negated(test), is(false)?])])
            }
        };
        Ok(equality_test(comparator, same))
    }

    /// Parses the operands after `IN`: one to a hundred.
    fn candidates(&mut self) -> Parsed<Vec<Operand>> {
        let close = if self.take_symbol("[") {
            "]"
        } else if self.take_symbol("<<") {
            ">>"
        } else if self.take_symbol("(") {
            ")"
        } else {
            self.operand()?;
            self.refuse(PartiqlError::new(NO_CANDIDATES));
            return Ok(Vec::new());
        };
        if close != ")" && self.take_symbol(close) {
            self.refuse(PartiqlError::new(NO_CANDIDATES));
            return Ok(Vec::new());
        }
        let mut candidates = vec![self.operand()?];
        while self.take_symbol(",") {
            candidates.push(self.operand()?);
        }
        self.expect_symbol(close)?;
        if candidates.len() > IN_OPERANDS_MAX {
            self.refuse(PartiqlError::new(format!(
                "The IN operator is provided with too many operands; number of operands: {}",
                candidates.len()
            )));
            candidates.truncate(IN_OPERANDS_MAX);
        }
        Ok(candidates)
    }

    fn comparator(&mut self) -> Option<Comparator> {
        let Some(Token::Symbol(symbol)) = self.peek() else {
            return None;
        };
        let comparator = match *symbol {
            "=" => Comparator::Equal,
            "<>" | "!=" => Comparator::NotEqual,
            "<" => Comparator::Less,
            "<=" => Comparator::LessOrEqual,
            ">" => Comparator::Greater,
            ">=" => Comparator::GreaterOrEqual,
            _ => return None,
        };
        self.position += 1;
        Some(comparator)
    }

    /// Checks that the operands are strings, numbers or binaries, which have an order.
    fn check_ordered<'o>(
        &self,
        operator: &str,
        operands: impl IntoIterator<Item = &'o Operand>,
    ) -> Parsed<()> {
        for operand in operands {
            let Operand::Value(index) = operand else { continue };
            let kind = index.of(&self.values).attribute_type();
            if !matches!(kind, AttributeType::S | AttributeType::N | AttributeType::B) {
                return Err(incorrect_operand(operator, kind));
            }
        }
        Ok(())
    }

    /// Parses `attribute_exists`, `attribute_not_exists`, `attribute_type`, `begins_with` and
    /// `contains`.
    fn function_test(&mut self) -> Parsed<Option<Test>> {
        let name = match self.peek() {
            Some(Token::Word(word)) if self.is_symbol(1, "(") => word.to_ascii_lowercase(),
            _ => return Ok(None),
        };
        if name == "size" {
            return Ok(None);
        }
        if !FUNCTIONS.contains(&name.as_str()) {
            let place = self.place_at(self.position);
            self.refuse(PartiqlError::new(format!("Unrecognized function: {name} at {place}")));
            self.position += 1;
            self.skip_brackets()?;
            return Ok(Some(never()));
        }
        self.count_operators(1)?;
        self.position += 2;
        let operands = self.function_operands()?;
        let test = self.test_of_function(&name, operands);
        self.or_refuse(test, never()).map(Some)
    }

    /// Returns the test for a function of [`FUNCTIONS`].
    fn test_of_function(&self, name: &str, mut operands: Vec<Operand>) -> Parsed<Test> {
        let needed = if name.ends_with("_exists") { 1 } else { 2 };
        if operands.len() != needed {
            return Err(PartiqlError::new(format!(
                "Incorrect number of operands for operator or function; operator or function: {name}, number of operands: {}",
                operands.len()
            )));
        }
        let second = operands.pop_if(|_| needed == 2);
        let Some(operand) = operands.pop() else { return Err(self.unexpected()) };
        let Some(second) = second else {
            let Operand::Path(path) = operand else {
                return Err(PartiqlError::new(format!(
                    "Operator or function requires a document path; operator or function: {name}"
                )));
            };
            return Ok(if name == "attribute_exists" {
                Test::AttributeExists(path)
            } else {
                Test::AttributeNotExists(path)
            });
        };
        check_distinct(name, &operand, [&second])?;
        Ok(match name {
            "begins_with" => {
                self.check_prefix(&second)?;
                Test::BeginsWith { operand, prefix: second }
            }
            "contains" => Test::Contains { operand, part: second },
            _ => Test::AttributeType { operand, descriptor: self.descriptor(&second)? },
        })
    }

    /// Parses the operands between the parentheses of a function.
    fn function_operands(&mut self) -> Parsed<Vec<Operand>> {
        let mut operands = Vec::new();
        if self.take_symbol(")") {
            return Ok(operands);
        }
        loop {
            operands.push(self.operand()?);
            if self.take_symbol(")") {
                return Ok(operands);
            }
            self.expect_symbol(",")?;
        }
    }

    /// Checks that the operand of `begins_with` is a string or binary.
    fn check_prefix(&self, prefix: &Operand) -> Parsed<()> {
        let Operand::Value(index) = prefix else { return Ok(()) };
        let kind = index.of(&self.values).attribute_type();
        if matches!(kind, AttributeType::S | AttributeType::B) {
            return Ok(());
        }
        Err(incorrect_operand("begins_with", kind))
    }

    fn descriptor(&self, operand: &Operand) -> Parsed<String> {
        let text = match operand {
            Operand::Value(index) => {
                let value = index.of(&self.values);
                if value.attribute_type() != AttributeType::S {
                    return Err(incorrect_operand("attribute_type", value.attribute_type()));
                }
                value.as_str()
            }
            Operand::Path(_) | Operand::SizeOf(_) => None,
        };
        match text {
            Some(text) if AttributeType::from_descriptor(text).is_some() => Ok(text.to_owned()),
            Some(text) => Err(PartiqlError::new(format!(
                "Invalid attribute type name found; type: {text}, valid types: {{N,BS,L,B,NULL,M,S,SS,NS,BOOL}}"
            ))),
            None => Err(self.unexpected()),
        }
    }

    /// Parses the type after the token `IS` at `at`: `MISSING` or the name of a type, with or
    /// without `NOT`.
    fn is_test(&mut self, operand: Operand, at: usize) -> Parsed<Test> {
        let negated = self.take_word("NOT");
        if self.take_word("MISSING") {
            let Operand::Path(path) = operand else {
                return Err(self.unexpected());
            };
            return Ok(if negated {
                Test::AttributeExists(path)
            } else {
                Test::AttributeNotExists(path)
            });
        }
        let known = TYPE_NAMES.iter().find(|(name, _)| self.take_word(name));
        let Some((_, kind)) = known else {
            self.refuse_type_test(at)?;
            return Ok(never());
        };
        let test = Test::AttributeType { operand, descriptor: kind.descriptor().to_owned() };
        Ok(if negated { Test::Not(Box::new(test)) } else { test })
    }

    /// Rejects a name that is not an attribute type. `at` is the position of the token `IS`.
    fn refuse_type_test(&mut self, at: usize) -> Parsed<()> {
        let name = match self.peek() {
            Some(Token::Word(word)) => type_name(word),
            _ => None,
        };
        let Some(mut name) = name else {
            return Err(PartiqlError::malformed("Expected type name"));
        };
        self.position += 1;
        if name == "CHARACTER" && self.take_word("VARYING") {
            name.push_str("_VARYING");
        } else if name == "DOUBLE_PRECISION" {
            self.take_word("PRECISION");
        }
        // Skips the length or the precision of the type.
        if self.is_symbol(0, "(") {
            self.skip_brackets()?;
        }
        self.refuse(PartiqlError::new(format!(
            "Unsupported data type for IS operator: {name}. Supported data types are [MISSING, NULL, BOOLEAN, \
             BLOB, STRING, NUMERIC, STRUCT, TUPLE, LIST] at {}",
            self.place_at(at)
        )));
        Ok(())
    }

    fn operand(&mut self) -> Parsed<Operand> {
        if self.is_word(0, "size") && self.is_symbol(1, "(") {
            self.position += 2;
            let path = self.path()?;
            self.expect_symbol(")")?;
            return Ok(Operand::SizeOf(path));
        }
        if self.is_literal() {
            let value = self.literal()?;
            return Ok(Operand::Value(self.keep(value)?));
        }
        if self.take_word("MISSING") {
            self.refuse(PartiqlError::new("MISSING must be compared using IS operator"));
            return Ok(Operand::Path(Path::new("MISSING".to_owned(), Vec::new())));
        }
        Ok(Operand::Path(self.path()?))
    }
}
