//! The grammar of `SELECT`: the columns, the table or index, and the order.
//!
//! A PartiQL statement that DynamoDB does not support is parsed to its end and then rejected, in
//! DynamoDB's order: clauses, then the table, then the columns.

use super::conditions::is_comparison;
use super::keywords::is_keyword;
use super::parser::{Parsed, Parser};
use super::token::Token;
use super::{PartiqlError, Select};
use crate::path::{Path, PathElement};
use crate::projection::Projection;

/// The keywords that introduce a joined table, without or before `JOIN`.
const JOINS: [&str; 6] = ["JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS"];

/// The keywords that end an expression, because they begin a clause.
const CLAUSES: [&str; 6] = ["FROM", "WHERE", "ORDER", "GROUP", "HAVING", "LIMIT"];

/// The refusals that were found in a statement. The statement is parsed to its end before a refusal
/// is reported. Only the first refusal of each kind is stored.
#[derive(Default)]
struct Refusals {
    clause: Option<PartiqlError>,
    source: Option<PartiqlError>,
    column: Option<PartiqlError>,
}

impl Refusals {
    fn into_result(self) -> Parsed<()> {
        match self.clause.or(self.source).or(self.column) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }
}

impl Parser<'_> {
    /// Parses a statement after the word `SELECT`.
    pub(super) fn select(&mut self) -> Parsed<Select> {
        let mut refusals = Refusals::default();
        let is_distinct = self.take_word("DISTINCT");
        if !is_distinct {
            self.take_word("ALL");
        }
        let columns = self.columns(&mut refusals)?;
        self.expect_word("FROM")?;
        let (table, index) = match self.table_and_index() {
            Ok(source) => source,
            Err(refusal) => {
                let refusal = self.skip_source(refusal)?;
                refusals.source = Some(refusal);
                (String::new(), None)
            }
        };
        if self.is_symbol(0, ",") || JOINS.iter().any(|word| self.is_word(0, word)) {
            self.skip_to_clause();
            refusals.source.get_or_insert_with(|| {
                PartiqlError::new("Only select from a single table or index is supported.")
            });
        }
        let condition = self.optional_where()?;
        let order = if self.take_word("ORDER") { self.order()? } else { Vec::new() };
        self.clauses_behind(&mut refusals)?;
        if is_distinct {
            refusals.clause.get_or_insert_with(|| {
                PartiqlError::new("Unsupported token in expression: DISTINCT")
            });
        }
        self.or_refuse(refusals.into_result(), ())?;
        let projection = columns.map(Projection::of_columns);
        Ok(Select { table, index, projection, condition, order })
    }

    /// Skips a source in `FROM` that DynamoDB does not support. A malformed source is an error.
    fn skip_source(&mut self, refusal: PartiqlError) -> Parsed<PartiqlError> {
        if refusal.is_malformed() {
            return Err(refusal);
        }
        self.skip_to_clause();
        Ok(refusal)
    }

    /// Parses `GROUP BY`, `HAVING` and `LIMIT`, which DynamoDB rejects in this order.
    fn clauses_behind(&mut self, refusals: &mut Refusals) -> Parsed<()> {
        if self.take_word("GROUP") {
            self.expect_word("BY")?;
            self.refuse_clause(refusals, "GROUP BY", None)?;
        }
        for clause in ["HAVING", "LIMIT"] {
            if self.take_word(clause) {
                let at = self.expression_place();
                self.refuse_clause(refusals, clause, Some(at))?;
            }
        }
        Ok(())
    }

    fn refuse_clause(
        &mut self,
        refusals: &mut Refusals,
        clause: &str,
        at: Option<usize>,
    ) -> Parsed<()> {
        if self.peek().is_none() {
            return Err(self.unexpected());
        }
        let place = at.map_or_else(String::new, |at| format!(" at {}", self.place_at(at)));
        self.skip_to_clause();
        refusals.clause.get_or_insert_with(|| {
            PartiqlError::new(format!("Unsupported clause: {clause}{place}"))
        });
        Ok(())
    }

    /// Returns the position that error messages report for an expression: its first operator, or
    /// its beginning.
    fn expression_place(&self) -> usize {
        let rest = self.tokens_from(self.position);
        let end = rest.iter().position(|placed| is_clause(&placed.token)).unwrap_or(rest.len());
        let mut inner = rest.iter().take(end);
        let operator = inner.position(|placed| is_comparison(&placed.token));
        self.position + operator.unwrap_or(0)
    }

    /// Skips everything up to the next clause, or to the end of the statement.
    fn skip_to_clause(&mut self) {
        let rest = self.tokens_from(self.position);
        let is_end = |token: &Token| is_clause(token) || matches!(token, Token::Symbol(";"));
        let length = rest.iter().position(|placed| is_end(&placed.token)).unwrap_or(rest.len());
        self.position += length;
    }

    /// Parses the list after `SELECT`; `None` for `*`.
    fn columns(&mut self, refusals: &mut Refusals) -> Parsed<Option<Vec<(String, Path)>>> {
        if self.take_word("VALUE") {
            self.skip_to_clause();
            refusals.column = Some(PartiqlError::new(
                "Select projection doesn't support value or pivot keywords",
            ));
            return Ok(Some(Vec::new()));
        }
        let mut columns: Vec<(String, Path)> = Vec::new();
        let (mut count, mut has_star) = (0_usize, false);
        loop {
            count += 1;
            if self.take_symbol("*") {
                has_star = true;
            } else if let Some(column) = self.column(refusals)? {
                columns.push(column);
            }
            if !self.take_symbol(",") {
                break;
            }
        }
        if has_star && count > 1 {
            return Err(PartiqlError::malformed(
                "Other expressions may not be present in the select list when '*' is used without dot notation.",
            ));
        }
        if let Some(label) = first_repeated(&columns) {
            refusals.column.get_or_insert_with(|| {
                PartiqlError::new(format!("Duplicate identifiers in select clause: {label}"))
            });
        }
        Ok((!has_star).then_some(columns))
    }

    /// Parses a column, and returns its name in the result and its path. The name is the path's
    /// last name and the list indexes after it. Returns `None` if the column is not a path; such a
    /// column is rejected later.
    fn column(&mut self, refusals: &mut Refusals) -> Parsed<Option<(String, Path)>> {
        let at = self.position;
        if self.is_literal() {
            let at = self.column_place();
            return self.refuse_column(refusals, &format!("Unexpected path component at {at}"));
        }
        if matches!(self.peek(), Some(Token::Word(_))) && self.is_symbol(1, "(") {
            let text = format!("Unexpected path component at {}", self.place_at(at));
            return self.refuse_column(refusals, &text);
        }
        let path = match self.path() {
            Ok(path) => path,
            Err(_) if self.is_symbol(0, "*") => {
                let text = "Changing item's hierarchy while reading isn't supported";
                return self.refuse_column(refusals, text);
            }
            Err(error) => return Err(error),
        };
        if self.is_column_operator() {
            self.position = at;
            let at = self.column_place();
            return self.refuse_column(refusals, &format!("Unexpected path component at {at}"));
        }
        if self.is_alias() {
            return self.refuse_column(refusals, "Aliasing is not supported");
        }
        let mut label = path.root().to_owned();
        for element in path.below() {
            match element {
                PathElement::Member(name) => label.clone_from(name),
                PathElement::Index(index) => label.push_str(&format!("[{index}]")),
            }
        }
        Ok(Some((label, path)))
    }

    fn is_column_operator(&self) -> bool {
        let arithmetic = ["+", "-", "*", "/", "%"].iter().any(|symbol| self.is_symbol(0, symbol));
        arithmetic || self.peek().is_some_and(is_comparison)
    }

    /// Returns the position that error messages report for a column that is not a path: its first
    /// operator, or its beginning.
    fn column_place(&self) -> String {
        let mut at = self.position;
        for (ahead, placed) in self.tokens_from(self.position).iter().enumerate() {
            let token = &placed.token;
            if is_clause(token) || matches!(token, Token::Symbol(",")) {
                break;
            }
            let is_arithmetic = matches!(token, Token::Symbol("+" | "-" | "*" | "/" | "%"));
            if ahead > 0 && (is_arithmetic || is_comparison(token)) {
                at += ahead;
                break;
            }
        }
        self.place_at(at)
    }

    /// Remembers the reason why a column is rejected, and skips the column up to the next comma or
    /// `FROM`.
    fn refuse_column(
        &mut self,
        refusals: &mut Refusals,
        text: &str,
    ) -> Parsed<Option<(String, Path)>> {
        refusals.column.get_or_insert_with(|| PartiqlError::new(text));
        let mut depth = 0_usize;
        while let Some(token) = self.peek() {
            match token {
                Token::Symbol("(" | "[" | "{" | "<<") => depth += 1,
                Token::Symbol(")" | "]" | "}" | ">>") => depth = depth.saturating_sub(1),
                Token::Symbol(",") if depth == 0 => break,
                token if is_clause(token) => break,
                _ => {}
            }
            self.position += 1;
        }
        Ok(None)
    }

    /// Parses the attributes after `ORDER`, each with true for ascending order.
    fn order(&mut self) -> Parsed<Vec<(String, bool)>> {
        self.expect_word("BY")?;
        let mut terms = Vec::new();
        loop {
            let attribute = self.name()?;
            let forward = !self.take_word("DESC");
            if forward {
                self.take_word("ASC");
            }
            terms.push((attribute, forward));
            if !self.take_symbol(",") {
                return Ok(terms);
            }
        }
    }

    /// Returns whether an alias follows.
    pub(super) fn is_alias(&self) -> bool {
        match self.peek() {
            Some(Token::Quoted(_)) => true,
            Some(Token::Word(word)) => word.eq_ignore_ascii_case("AS") || !is_keyword(word),
            _ => false,
        }
    }
}

fn is_clause(token: &Token) -> bool {
    matches!(token, Token::Word(word) if CLAUSES.iter().any(|clause| clause.eq_ignore_ascii_case(word)))
}

/// Returns the first name that two columns share.
fn first_repeated(columns: &[(String, Path)]) -> Option<&str> {
    let mut seen = std::collections::BTreeSet::new();
    columns.iter().map(|(label, _)| label.as_str()).find(|label| !seen.insert(*label))
}
