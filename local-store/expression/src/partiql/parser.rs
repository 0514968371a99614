//! The grammar of statements, without conditions and literals. [`DEPTH_MAX`] limits the recursion.

use std::collections::BTreeMap;
use std::vec::IntoIter;

use model::limits::{EXPRESSION_OPERATORS_MAX, NESTING_LEVELS_MAX};
use model::{AttributeType, AttributeValue, Item};

use super::keywords::{is_keyword, is_operator, is_type};
use super::literals::LiteralPlace;
use super::token::{PositionedToken, Token, place};
use super::{PartiqlError, Returning, Select, Statement, Where};
use crate::path::{Path, PathElement};
use crate::update::{Action, SetOperand, SetValue, Update};
use crate::value_table::ValueIndex;

/// The maximum nesting of parentheses, literals and functions, inclusive. The maximum exceeds the
/// 32 levels of a value, and is small enough for a small stack.
const DEPTH_MAX: usize = 40;
/// The maximum number of values in one statement, inclusive. Values are indexed with 16 bits.
const VALUES_MAX: usize = 60_000;

/// The maximum list index in a statement, inclusive.
const LIST_INDEX_MAX: u32 = i32::MAX.unsigned_abs();

/// The error for a value or path with too many levels.
pub(super) const TOO_DEEP: &str = "Nesting Levels have exceeded supported limits";

/// The error for too few or too many parameters.
pub(super) const PARAMETERS_MISMATCH: &str =
    "Number of parameters in request and statement don't match.";

pub(super) type Parsed<T> = Result<T, PartiqlError>;

/// A parsed statement, and the parameters whose values did not influence parsing: each parameter's
/// position, and the index of its value in the conditions. The parsed statement can be reused with
/// other values of these parameters.
pub(super) type WithEqual = (Statement, Vec<(usize, ValueIndex)>);

pub(super) fn parse(
    text: &str,
    tokens: &[PositionedToken],
    parameters: Vec<AttributeValue>,
) -> Parsed<WithEqual> {
    let mut parser = Parser {
        text,
        tokens,
        position: 0,
        given: parameters.len(),
        equal: Vec::new(),
        parameters: parameters.into_iter(),
        values: Vec::new(),
        depth: 0,
        operators: 0,
        literal_place: LiteralPlace::default(),
        refused: None,
    };
    let statement = match parser.statement() {
        Ok(statement) => statement,
        Err(last) if !last.is_malformed() => return Err(parser.refused.unwrap_or(last)),
        Err(malformed) => return Err(malformed),
    };
    let ends = parser.take_symbol(";");
    if parser.peek().is_some() {
        return Err(PartiqlError::malformed(if ends {
            "Unexpected token after semicolon. (Only one query is allowed.)"
        } else {
            "Unexpected token after expression"
        }));
    }
    if parser.parameters.len() > 0 {
        parser.refuse(PartiqlError::new(PARAMETERS_MISMATCH));
    }
    match parser.refused {
        Some(refusal) => Err(refusal),
        None => Ok((statement, parser.equal)),
    }
}

pub(super) struct Parser<'p> {
    text: &'p str,
    tokens: &'p [PositionedToken],
    pub(super) position: usize,
    /// The number of parameters in the request.
    pub(super) given: usize,
    /// The reusable parameters: see [`WithEqual`].
    pub(super) equal: Vec<(usize, ValueIndex)>,
    /// The parameters that are not assigned to a `?` yet.
    pub(super) parameters: IntoIter<AttributeValue>,
    pub(super) values: Vec<AttributeValue>,
    depth: usize,
    /// The number of operators and functions in the conditions that were parsed.
    pub(super) operators: usize,
    pub(super) literal_place: LiteralPlace,
    /// The first refusal of the statement. It is reported only if the rest of the statement can be
    /// parsed.
    pub(super) refused: Option<PartiqlError>,
}

impl Parser<'_> {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.ahead(0)
    }

    pub(super) fn tokens_from(&self, position: usize) -> &[PositionedToken] {
        self.tokens.get(position..).unwrap_or_default()
    }

    fn ahead(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.position + ahead).map(|placed| &placed.token)
    }

    /// Returns the position of a token for error messages.
    pub(super) fn place_at(&self, position: usize) -> String {
        self.tokens.get(position).map_or_else(String::new, |placed| place(self.text, placed))
    }

    /// Counts operators of a condition. The maximum is 300.
    pub(super) fn count_operators(&mut self, operators: usize) -> Parsed<()> {
        self.operators += operators;
        if self.operators > EXPRESSION_OPERATORS_MAX {
            return Err(PartiqlError::new(format!(
                "The expression contains too many operators; operator count: {}",
                EXPRESSION_OPERATORS_MAX + 1
            )));
        }
        Ok(())
    }

    pub(super) fn is_word(&self, ahead: usize, word: &str) -> bool {
        matches!(self.ahead(ahead), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(0, word);
        self.position += usize::from(found);
        found
    }

    pub(super) fn is_symbol(&self, ahead: usize, symbol: &str) -> bool {
        matches!(self.ahead(ahead), Some(Token::Symbol(found)) if *found == symbol)
    }

    pub(super) fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(0, symbol);
        self.position += usize::from(found);
        found
    }

    pub(super) fn expect_symbol(&mut self, symbol: &str) -> Parsed<()> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.take_word(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Returns the syntax error for the next token.
    pub(super) fn unexpected(&self) -> PartiqlError {
        PartiqlError::malformed(match self.peek() {
            Some(Token::Word(word)) if is_operator(word) => "Unexpected operator",
            Some(Token::Word(word)) if is_keyword(word) => "Unexpected keyword",
            Some(Token::Symbol(symbol)) if is_operator_symbol(symbol) => "Unexpected operator",
            _ => "Unexpected term",
        })
    }

    pub(super) fn descend<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(PartiqlError::malformed("The statement is nested too deeply"));
        }
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn statement(&mut self) -> Parsed<Statement> {
        if self.take_word("SELECT") {
            let select = self.select()?;
            let condition = select.condition.with_single_candidates_as_equalities();
            return Ok(Statement::Select(Select { condition, ..select }));
        }
        if self.take_word("EXISTS") {
            self.expect_symbol("(")?;
            self.expect_word("SELECT")?;
            let select = self.select()?;
            self.expect_symbol(")")?;
            return Ok(Statement::Exists(select));
        }
        if self.take_word("INSERT") {
            return self.insert();
        }
        if self.take_word("UPDATE") {
            return self.update();
        }
        if self.take_word("FROM") {
            return self.update_behind_from();
        }
        if self.take_word("DELETE") {
            if !self.take_word("FROM") {
                return Err(PartiqlError::malformed("Expected FROM after DELETE"));
            }
            let table = self.table()?;
            let condition = self.optional_where()?;
            let returning = self.returning()?;
            return Ok(Statement::Delete { table, condition, returning });
        }
        if self.is_type_test() {
            return Err(PartiqlError::new("Unsupported operation: IsType"));
        }
        Err(PartiqlError::malformed("Expected data manipulation"))
    }

    /// Returns whether the next tokens are a name, `IS` and a type.
    fn is_type_test(&self) -> bool {
        let is_name = matches!(self.peek(), Some(Token::Quoted(_) | Token::Word(_)));
        let is_type = matches!(self.ahead(2), Some(Token::Word(word)) if is_type(word));
        is_name && self.is_word(1, "IS") && is_type
    }

    fn insert(&mut self) -> Parsed<Statement> {
        self.expect_word("INTO")?;
        let table = self.inserted_table()?;
        if self.is_word(0, "VALUES") || self.is_literal() || self.is_symbol(0, "(") {
            return Err(PartiqlError::new(
                "Unsupported operation: Inserting multiple items in a single statement is not supported, use \
                 \"INSERT INTO tableName VALUE item\" instead",
            ));
        }
        if !self.take_word("VALUE") {
            return Err(PartiqlError::malformed("Unexpected token after expression"));
        }
        let at = self.position;
        if self.is_literal() && !self.is_symbol(0, "{") {
            self.refuse(PartiqlError::new(format!(
                "Unsupported format in item expression. Please use struct format {{...}} to express item \
                 values for insert statement. at {}",
                self.place_at(at)
            )));
        }
        self.literal_place.begin_item();
        let members = match self.literal()? {
            AttributeValue::M(members) => members,
            _ if self.refused.is_some() => BTreeMap::new(),
            _ => return Err(self.unexpected()),
        };
        if members.values().any(|value| value.nesting_levels() > NESTING_LEVELS_MAX) {
            self.refuse(PartiqlError::new(TOO_DEEP));
        }
        if self.is_word(0, "ON") && self.is_word(1, "CONFLICT") {
            return Err(PartiqlError::new("Unsupported clause: ON CONFLICT"));
        }
        if self.returning()?.is_some() {
            self.refuse(PartiqlError::new("RETURNING is not supported in INSERT"));
        }
        Ok(Statement::Insert { table, item: Item(members) })
    }

    fn update(&mut self) -> Parsed<Statement> {
        let table = self.table()?;
        let update = self.update_clauses()?;
        let condition = self.optional_where()?;
        let returning = self.returning()?;
        Ok(Statement::Update { table, update, condition, returning })
    }

    /// Parses an update that begins with `FROM`, in which the table and the conditions precede the
    /// clauses.
    fn update_behind_from(&mut self) -> Parsed<Statement> {
        let table = self.table()?;
        let condition: Where = self.optional_where()?;
        let update = self.update_clauses()?;
        let returning = self.returning()?;
        Ok(Statement::Update { table, update, condition, returning })
    }

    /// Parses any number of `SET` and `REMOVE` clauses.
    fn update_clauses(&mut self) -> Parsed<Update> {
        let mut actions = Vec::new();
        loop {
            if self.take_word("SET") {
                actions.push(self.set_action()?);
                while self.take_symbol(",") {
                    actions.push(self.set_action()?);
                }
            } else if self.take_word("REMOVE") {
                actions.push(Action::Remove { path: self.target()? });
                while self.take_symbol(",") {
                    actions.push(Action::Remove { path: self.target()? });
                }
            } else {
                break;
            }
        }
        if actions.is_empty() {
            return Err(self.unexpected());
        }
        self.or_refuse(check_distinct(&actions), ())?;
        Ok(Update::new(actions, std::mem::take(&mut self.values), false))
    }

    fn set_action(&mut self) -> Parsed<Action> {
        let path = self.target()?;
        self.expect_symbol("=")?;
        for (function, adds) in [("SET_ADD", true), ("SET_DELETE", false)] {
            if self.is_word(0, function) && self.is_symbol(1, "(") {
                let at = self.position;
                let read = self.set_function(function, &path);
                let is_refused = read.as_ref().is_err_and(|refusal| !refusal.is_malformed());
                let value = self.or_refuse(read, ValueIndex::at(0))?;
                if is_refused {
                    self.position = at + 1;
                    self.skip_brackets()?;
                }
                let add = Action::Add { path: path.clone(), value };
                return Ok(if adds { add } else { Action::Delete { path, value } });
            }
        }
        let left = self.set_term()?;
        let value = if self.take_symbol("+") {
            let right = self.set_term()?;
            self.or_refuse(self.check_numbers("+", [&left, &right]), ())?;
            SetValue::Sum(left, right)
        } else if self.take_symbol("-") {
            let right = self.set_term()?;
            self.or_refuse(self.check_numbers("-", [&left, &right]), ())?;
            SetValue::Difference(left, right)
        } else {
            SetValue::Operand(left)
        };
        Ok(Action::Set { path, value })
    }

    /// Parses a term of a sum: an operand without multiplication.
    fn set_term(&mut self) -> Parsed<SetOperand> {
        let operand = self.set_operand()?;
        while let Some(operator) = ["*", "/", "%"].iter().find(|symbol| self.is_symbol(0, symbol)) {
            self.refuse(PartiqlError::new(format!(
                "Unsupported operator in Update Expression. Operator: {operator}"
            )));
            self.position += 1;
            self.set_operand()?;
        }
        Ok(operand)
    }

    /// Checks that the operands of an addition are numbers.
    fn check_numbers(&self, operator: &str, operands: [&SetOperand; 2]) -> Parsed<()> {
        for operand in operands {
            let SetOperand::Value(index) = operand else { continue };
            let kind = index.of(&self.values).attribute_type();
            if kind != AttributeType::N {
                return Err(incorrect_operand(operator, kind));
            }
        }
        Ok(())
    }

    /// Parses `set_add(path, set)` or `set_delete(path, set)`, where the path is the target of the
    /// assignment.
    fn set_function(&mut self, function: &str, target: &Path) -> Parsed<ValueIndex> {
        let at = self.position;
        self.position += 2;
        let argument = self.position;
        if self.is_literal() || self.path()? != *target {
            return Err(PartiqlError::new(format!(
                "The first argument to {function} must equal the assignment value at {}",
                self.place_at(at)
            )));
        }
        let wrong_count = |parser: &Self| {
            PartiqlError::new(format!(
                "{function} must have exactly two arguments at {}",
                parser.place_at(at)
            ))
        };
        if !self.take_symbol(",") {
            return Err(wrong_count(self));
        }
        let is_set =
            |kind| matches!(kind, AttributeType::Ss | AttributeType::Ns | AttributeType::Bs);
        let value = if self.is_literal() { Some(self.literal()?) } else { None };
        let Some(value) = value.filter(|value| is_set(value.attribute_type())) else {
            return Err(PartiqlError::new(format!(
                "The second argument to {function} must be a value with type SET at {}",
                self.place_at(argument)
            )));
        };
        let value = self.keep(value)?;
        if !self.take_symbol(")") {
            return Err(wrong_count(self));
        }
        Ok(value)
    }

    fn set_operand(&mut self) -> Parsed<SetOperand> {
        if self.is_word(0, "list_append") && self.is_symbol(1, "(") {
            self.position += 2;
            return self.descend(|parser| {
                let first = Box::new(parser.set_operand()?);
                parser.expect_symbol(",")?;
                let second = Box::new(parser.set_operand()?);
                parser.expect_symbol(")")?;
                Ok(SetOperand::ListAppend { first, second })
            });
        }
        if self.is_word(0, "if_not_exists") && self.is_symbol(1, "(") {
            self.position += 2;
            return self.descend(|parser| {
                let path = parser.path()?;
                parser.expect_symbol(",")?;
                let default = Box::new(parser.set_operand()?);
                parser.expect_symbol(")")?;
                Ok(SetOperand::IfNotExists { path, default })
            });
        }
        if self.is_literal() {
            let value = self.literal()?;
            return Ok(SetOperand::Value(self.keep(value)?));
        }
        Ok(SetOperand::Path(self.path()?))
    }

    fn returning(&mut self) -> Parsed<Option<Returning>> {
        if !self.take_word("RETURNING") {
            return Ok(None);
        }
        let mut first = None;
        let (mut count, mut is_whole) = (0, true);
        loop {
            let all = self.take_word("ALL");
            if !all {
                self.expect_word("MODIFIED")?;
            }
            let new = self.take_word("NEW");
            if !new {
                self.expect_word("OLD")?;
            }
            if !self.take_symbol("*") {
                self.path()?;
                is_whole = false;
            }
            first.get_or_insert(Returning { all, new });
            count += 1;
            if !self.take_symbol(",") {
                break;
            }
        }
        if count > 1 {
            self.refuse(PartiqlError::new(
                "Invalid syntax with multiple returning elements in RETURNING clause",
            ));
        }
        if !is_whole {
            self.refuse(PartiqlError::new(
                "Expected '*' after ( MODIFIED | ALL ) ( NEW | OLD ) in RETURNING clause",
            ));
        }
        Ok(first)
    }

    pub(super) fn keep(&mut self, value: AttributeValue) -> Parsed<ValueIndex> {
        if self.values.len() >= VALUES_MAX {
            return Err(PartiqlError::malformed("The statement has too many values"));
        }
        let index = ValueIndex::at(self.values.len());
        self.values.push(value);
        Ok(index)
    }

    pub(super) fn is_name(&self) -> bool {
        match self.peek() {
            Some(Token::Quoted(_)) => true,
            Some(Token::Word(word)) => !is_keyword(word),
            _ => false,
        }
    }

    /// Parses a bare name that is not a keyword, or a name in double quotes.
    pub(super) fn name(&mut self) -> Parsed<String> {
        let name = match self.peek() {
            Some(Token::Quoted(name)) => name.clone(),
            Some(Token::Word(word)) if !is_keyword(word) => word.clone(),
            _ => return Err(self.unexpected()),
        };
        self.position += 1;
        Ok(name)
    }

    pub(super) fn path(&mut self) -> Parsed<Path> {
        let root = self.name()?;
        let mut below = Vec::new();
        loop {
            if self.take_symbol(".") {
                let name = self
                    .name()
                    .map_err(|_| PartiqlError::malformed("Invalid path dot component"))?;
                below.push(PathElement::Member(name));
            } else if self.is_symbol(0, "[") {
                self.position += 1;
                below.push(self.path_step()?);
                self.expect_symbol("]")?;
            } else {
                return Ok(Path::new(root, below));
            }
            if below.len() >= NESTING_LEVELS_MAX {
                self.refuse(PartiqlError::new(TOO_DEEP));
            }
        }
    }

    /// Parses the contents of brackets: the index of a list, or the name of a member.
    fn path_step(&mut self) -> Parsed<PathElement> {
        let sign = if self.take_symbol("-") { "-" } else { "" };
        let step = match self.peek() {
            Some(Token::Number(digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let index = digits.parse().ok().filter(|index| *index <= LIST_INDEX_MAX);
                match index.filter(|index| sign.is_empty() || *index == 0) {
                    Some(index) => PathElement::Index(index),
                    None => {
                        let refusal = PartiqlError::new(format!(
                            "List index is not within the allowable range; index: [{sign}{digits}] at {}",
                            self.place_at(self.position)
                        ));
                        self.refuse(refusal);
                        PathElement::Index(0)
                    }
                }
            }
            Some(Token::Text(name)) if sign.is_empty() => PathElement::Member(name.clone()),
            _ => return Err(self.unexpected()),
        };
        self.position += 1;
        Ok(step)
    }

    /// Checks that the target of a write begins with a name.
    pub(super) fn expect_name(&self) -> Parsed<()> {
        if self.is_name() {
            return Ok(());
        }
        Err(PartiqlError::malformed("Expected identifier for simple path"))
    }

    /// Parses the path that a write changes.
    fn target(&mut self) -> Parsed<Path> {
        self.expect_name()?;
        self.path()
    }
}

/// Returns the error for an operand whose type an operator or function does not accept.
pub(super) fn incorrect_operand(operator: &str, kind: AttributeType) -> PartiqlError {
    PartiqlError::new(format!(
        "Incorrect operand type for operator or function; operator or function: {operator}, operand type: {}",
        kind.descriptor()
    ))
}

fn is_operator_symbol(symbol: &str) -> bool {
    matches!(symbol, "=" | "<>" | "!=" | "<" | "<=" | ">" | ">=" | "+" | "*" | "/" | "%")
}

fn check_distinct(actions: &[Action]) -> Parsed<()> {
    let paths: Vec<&Path> = actions.iter().map(Action::path).collect();
    crate::path::check_distinct(crate::error::ExpressionKind::Update, &paths)
        .map_err(|error| PartiqlError::new(error.to_string()))
}
