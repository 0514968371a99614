//! The last pass: replaces placeholders with names and values, and checks operands whose type is
//! known without an item.
//!
//! Each value is stored only once per expression, even if the expression uses it often, so that a
//! short text cannot become a large tree.

use std::collections::BTreeMap;

use model::limits::SUBSTITUTIONS_BYTES_MAX;
use model::{AttributeType, AttributeValue, Number};

use crate::check::{check_operand_count, list_index};
use crate::comparator::Comparator;
use crate::condition_tree::{Operand, Test, size_of};
use crate::error::{ExpressionError, ExpressionKind};
use crate::path::{Path, PathElement};
use crate::placeholders::Placeholders;
use crate::syntax::{Call, Node, Step, Steps};
use crate::value_table::ValueIndex;

/// The maximum number of elements of a path including the top-level attribute, inclusive. Source: AWS,
/// "Quotas: item attributes and expression parameters".
const PATH_ELEMENTS_MAX: usize = 32;
/// The maximum number of candidates of one `IN`, inclusive.
const IN_CANDIDATES_MAX: usize = model::limits::IN_OPERANDS_MAX;

type Resolved<T> = Result<T, ExpressionError>;

/// A resolver of one expression.
pub(crate) struct Resolver<'p, 'text> {
    kind: ExpressionKind,
    placeholders: &'p mut Placeholders,
    indexes: BTreeMap<&'text str, ValueIndex>,
    values: Vec<AttributeValue>,
    name_bytes: usize,
}

impl<'p, 'text> Resolver<'p, 'text> {
    pub(crate) fn new(kind: ExpressionKind, placeholders: &'p mut Placeholders) -> Self {
        placeholders.note_expression();
        Self { kind, placeholders, indexes: BTreeMap::new(), values: Vec::new(), name_bytes: 0 }
    }

    /// Returns the values that the expression uses, indexed by [`ValueIndex`].
    pub(crate) fn into_values(self) -> Vec<AttributeValue> {
        self.values
    }

    pub(crate) fn value_of(&self, index: ValueIndex) -> &AttributeValue {
        index.of(&self.values)
    }

    fn keep(&mut self, value: AttributeValue) -> ValueIndex {
        let index = ValueIndex::at(self.values.len());
        self.values.push(value);
        index
    }

    pub(crate) fn value(&mut self, placeholder: &'text str) -> Resolved<ValueIndex> {
        if let Some(index) = self.indexes.get(placeholder) {
            return Ok(*index);
        }
        let Some(value) = self.placeholders.value(placeholder).cloned() else {
            return Err(self.kind.invalid(format_args!(
                "An expression attribute value used in expression is not defined; attribute value: {placeholder}"
            )));
        };
        let index = self.keep(value);
        self.indexes.insert(placeholder, index);
        Ok(index)
    }

    fn substitution(&mut self, placeholder: &str) -> Resolved<&str> {
        self.placeholders.name(placeholder).ok_or_else(|| {
            self.kind.invalid(format_args!(
                "An expression attribute name used in the document path is not defined; attribute name: {placeholder}"
            ))
        })
    }

    fn name(&mut self, step: &Step<'text>) -> Resolved<String> {
        let name = match step {
            Step::Word(word) | Step::Index(word) => (*word).to_owned(),
            Step::Placeholder(placeholder) => self.substitution(placeholder)?.to_owned(),
        };
        self.name_bytes += name.len();
        if self.name_bytes > SUBSTITUTIONS_BYTES_MAX {
            return Err(self.kind.too_large(self.name_bytes));
        }
        Ok(name)
    }

    /// Checks that every `#name` of a path is defined.
    pub(crate) fn check_names(&mut self, steps: &Steps<'text>) -> Resolved<()> {
        for step in &steps.0 {
            if let Step::Placeholder(placeholder) = step {
                self.substitution(placeholder)?;
            }
        }
        Ok(())
    }

    pub(crate) fn path(&mut self, steps: &Steps<'text>) -> Resolved<Path> {
        let mut root = String::new();
        let mut below = Vec::with_capacity(steps.0.len().saturating_sub(1));
        for (position, step) in steps.0.iter().enumerate() {
            match step {
                Step::Index(digits) => {
                    below.push(PathElement::Index(list_index(digits).unwrap_or(u32::MAX)));
                }
                _ if position == 0 => root = self.name(step)?,
                _ => below.push(PathElement::Member(self.name(step)?)),
            }
        }
        if steps.0.len() > PATH_ELEMENTS_MAX {
            return Err(self.kind.invalid(format_args!(
                "The document path has too many nesting levels; nesting levels: {}",
                steps.0.len()
            )));
        }
        Ok(Path::new(root, below))
    }

    /// Returns the test of a condition. The earlier passes have rejected nodes that are not
    /// conditions.
    pub(crate) fn test(&mut self, node: &Node<'text>) -> Resolved<Test> {
        match node {
            Node::And(members) => Ok(Test::And(self.tests(members)?)),
            Node::Or(members) => Ok(Test::Or(self.tests(members)?)),
            Node::Not { times, inner } => {
                let test = self.test(inner)?;
                Ok(if times % 2 == 0 { test } else { Test::Not(Box::new(test)) })
            }
            Node::Group(inner) => self.test(inner),
            Node::Compare { comparator, left, right } => self.comparison(*comparator, left, right),
            Node::Between { operand, lower, upper } => self.between(operand, lower, upper),
            Node::In { operand, candidates } => self.membership(operand, candidates),
            Node::Call(call) => self.function(call),
            Node::Path(_) | Node::Value(_) | Node::Arithmetic { .. } => Err(self.misplaced()),
        }
    }

    fn tests(&mut self, members: &[Node<'text>]) -> Resolved<Vec<Test>> {
        members.iter().map(|member| self.test(member)).collect()
    }

    /// Returns the error for a node that the grammar does not allow in its position.
    pub(crate) fn misplaced(&self) -> ExpressionError {
        self.kind.invalid("Syntax error; the expression has an operand in the wrong place")
    }

    fn comparison(
        &mut self,
        comparator: Comparator,
        left: &Node<'text>,
        right: &Node<'text>,
    ) -> Resolved<Test> {
        let (left, right) = (self.operand(left)?, self.operand(right)?);
        self.check_distinct(comparator.text(), &left, [&right])?;
        if comparator.is_ordering() {
            self.check_ordered(comparator.text(), [&left, &right])?;
        }
        Ok(Test::Compare { comparator, left, right })
    }

    fn between(
        &mut self,
        operand: &Node<'text>,
        lower: &Node<'text>,
        upper: &Node<'text>,
    ) -> Resolved<Test> {
        let operand = self.operand(operand)?;
        let (lower, upper) = (self.operand(lower)?, self.operand(upper)?);
        self.check_distinct("BETWEEN", &operand, [&lower, &upper])?;
        self.check_ordered("BETWEEN", [&operand, &lower, &upper])?;
        if let (Operand::Value(lower), Operand::Value(upper)) = (&lower, &upper) {
            self.check_bounds(*lower, *upper)?;
        }
        Ok(Test::Between { operand, lower, upper })
    }

    fn check_bounds(&self, lower: ValueIndex, upper: ValueIndex) -> Resolved<()> {
        let (lower, upper) = (self.value_of(lower), self.value_of(upper));
        let problem = match lower.compare(upper) {
            None => "same data type for lower and upper bounds",
            Some(order) if order.is_gt() => {
                "upper bound to be greater than or equal to lower bound"
            }
            Some(_) => return Ok(()),
        };
        Err(self.kind.invalid(format_args!(
            "The BETWEEN operator requires {problem}; lower bound operand: AttributeValue: {}, upper bound operand: AttributeValue: {}",
            value_text(lower),
            value_text(upper)
        )))
    }

    fn membership(&mut self, operand: &Node<'text>, candidates: &[Node<'text>]) -> Resolved<Test> {
        let operand = self.operand(operand)?;
        let candidates: Vec<Operand> =
            candidates.iter().map(|member| self.operand(member)).collect::<Resolved<_>>()?;
        if candidates.len() > IN_CANDIDATES_MAX {
            return Err(self.kind.invalid(format_args!(
                "The IN operator is provided with too many operands; number of operands: {}",
                candidates.len()
            )));
        }
        self.check_distinct("IN", &operand, &candidates)?;
        Ok(Test::In { operand, candidates })
    }

    fn function(&mut self, call: &Call<'text>) -> Resolved<Test> {
        let operands: Vec<Operand> =
            call.arguments.iter().map(|node| self.operand(node)).collect::<Resolved<_>>()?;
        check_operand_count(self.kind, call)?;
        let mut operands = operands.into_iter();
        let (Some(first), second) = (operands.next(), operands.next()) else {
            return Err(self.misplaced());
        };
        match (call.name, second) {
            ("attribute_exists", None) => Ok(Test::AttributeExists(self.only_path(call, first)?)),
            ("attribute_not_exists", None) => {
                Ok(Test::AttributeNotExists(self.only_path(call, first)?))
            }
            ("attribute_type", Some(second)) => {
                let descriptor = self.type_descriptor(&second)?;
                Ok(Test::AttributeType { operand: first, descriptor })
            }
            ("begins_with", Some(second)) => {
                self.check_distinct(call.name, &first, [&second])?;
                let allowed = [AttributeType::S, AttributeType::B];
                self.check_types(call.name, [&first, &second], &allowed)?;
                Ok(Test::BeginsWith { operand: first, prefix: second })
            }
            ("contains", Some(second)) => {
                self.check_distinct(call.name, &first, [&second])?;
                Ok(Test::Contains { operand: first, part: second })
            }
            _ => Err(self.misplaced()),
        }
    }

    fn only_path(&self, call: &Call<'_>, operand: Operand) -> Resolved<Path> {
        match operand {
            Operand::Path(path) => Ok(path),
            Operand::Value(_) | Operand::SizeOf(_) => Err(self.path_required(call.name)),
        }
    }

    pub(crate) fn path_required(&self, function: &str) -> ExpressionError {
        self.kind.invalid(format_args!(
            "Operator or function requires a document path; operator or function: {function}"
        ))
    }

    /// Returns the type of the second operand of `attribute_type`.
    fn type_descriptor(&self, operand: &Operand) -> Resolved<String> {
        let wrong = match operand {
            Operand::Value(index) => match self.value_of(*index) {
                AttributeValue::S(name) if AttributeType::from_descriptor(name).is_some() => {
                    return Ok(name.clone());
                }
                AttributeValue::S(name) => {
                    return Err(self.kind.invalid(format_args!(
                        "Invalid attribute type name found; type: {name}, valid types: {{S,SS,N,NS,B,BS,BOOL,NULL,L,M}}"
                    )));
                }
                other => other.attribute_type().descriptor(),
            },
            // DynamoDB's message lists all its internal types, including types that are not in its
            // API.
            Operand::Path(_) => {
                "{S,SS,N,NS,B,BS,BOOL,NULL,L,M,HD,DOUBLE,FLOAT,HDS,FS,DOUBLESET,DICT,DECIMAL,INT,DECIMALSET,INTSET}"
            }
            Operand::SizeOf(_) => AttributeType::N.descriptor(),
        };
        Err(self.incorrect_type("attribute_type", wrong))
    }

    fn operand(&mut self, node: &Node<'text>) -> Resolved<Operand> {
        match node.unwrapped() {
            Node::Path(steps) => Ok(Operand::Path(self.path(steps)?)),
            Node::Value(placeholder) => Ok(Operand::Value(self.value(placeholder)?)),
            Node::Call(call) if call.name == "size" => {
                let arguments: Vec<Operand> = call
                    .arguments
                    .iter()
                    .map(|node| self.operand(node))
                    .collect::<Resolved<_>>()?;
                check_operand_count(self.kind, call)?;
                let argument = arguments.into_iter().next().ok_or_else(|| self.misplaced())?;
                self.size(argument)
            }
            _ => Err(self.misplaced()),
        }
    }

    fn size(&mut self, operand: Operand) -> Resolved<Operand> {
        match operand {
            Operand::Path(path) => Ok(Operand::SizeOf(path)),
            Operand::SizeOf(_) => Err(self.incorrect_type("size", AttributeType::N.descriptor())),
            Operand::Value(index) => {
                let value = self.value_of(index);
                let Some(size) = size_of(value) else {
                    let descriptor = value.attribute_type().descriptor();
                    return Err(self.incorrect_type("size", descriptor));
                };
                Ok(Operand::Value(self.keep(AttributeValue::N(Number::from(size)))))
            }
        }
    }

    /// Returns the type that an operand has regardless of the item; `None` if the type depends on
    /// the item.
    fn static_type(&self, operand: &Operand) -> Option<AttributeType> {
        match operand {
            Operand::Path(_) => None,
            Operand::Value(index) => Some(self.value_of(*index).attribute_type()),
            Operand::SizeOf(_) => Some(AttributeType::N),
        }
    }

    fn check_ordered<'a>(
        &self,
        operator: &str,
        operands: impl IntoIterator<Item = &'a Operand>,
    ) -> Resolved<()> {
        let ordered = [AttributeType::S, AttributeType::N, AttributeType::B];
        self.check_types(operator, operands, &ordered)
    }

    fn check_types<'a>(
        &self,
        operator: &str,
        operands: impl IntoIterator<Item = &'a Operand>,
        allowed: &[AttributeType],
    ) -> Resolved<()> {
        let mut types = operands.into_iter().filter_map(|operand| self.static_type(operand));
        match types.find(|found| !allowed.contains(found)) {
            Some(wrong) => Err(self.incorrect_type(operator, wrong.descriptor())),
            None => Ok(()),
        }
    }

    pub(crate) fn incorrect_type(&self, operator: &str, found: &str) -> ExpressionError {
        self.kind.invalid(format_args!(
            "Incorrect operand type for operator or function; operator or function: {operator}, operand type: {found}"
        ))
    }

    /// Checks that no other operand is the same path as the first operand, which DynamoDB rejects.
    fn check_distinct<'a>(
        &self,
        operator: &str,
        first: &Operand,
        others: impl IntoIterator<Item = &'a Operand>,
    ) -> Resolved<()> {
        let Operand::Path(path) = first else { return Ok(()) };
        if others.into_iter().any(|other| other == first) {
            return Err(self.kind.invalid(format_args!(
                "The first operand must be distinct from the remaining operands for this operator or function; operator: {operator}, first operand: {path}"
            )));
        }
        Ok(())
    }
}

/// Returns a value in the format of error messages: `{N:5}`, with binaries in Base64.
pub fn value_text(value: &AttributeValue) -> String {
    let text = match value {
        AttributeValue::S(text) => text.clone(),
        AttributeValue::N(number) => number.to_string(),
        other => {
            let mut json = String::new();
            model::json::write_attribute_value(&mut json, other);
            let content = json.split_once(':').map_or("", |(_, content)| content);
            content.trim_matches(['"', '}']).to_owned()
        }
    };
    format!("{{{}:{text}}}", value.attribute_type().descriptor())
}
