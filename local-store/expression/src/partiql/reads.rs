//! The reads into which DynamoDB decomposes a `SELECT`: one read for each value of the partition
//! key and each range of the sort key in its conditions. DynamoDB rejects some statements because
//! of their reads.
//!
//! This store reads each item collection once, and rejects the same statements. Sources: AWS,
//! "PartiQL select statements for DynamoDB" (50 values of a partition key), and DynamoDB's
//! responses, as public conformance suites recorded them in September and October 2026.

use std::cmp::Ordering;
use std::ops::Bound;

use model::{AttributeValue, Number};

use super::{PartiqlError, Where, is_whole};
use crate::comparator::Comparator;
use crate::condition_tree::{Operand, Test};
use crate::key_condition::{Clause, KeyExpression, Range};
use crate::path::Path;
use crate::set_order::in_set_order;

/// The maximum number of reads of one statement, inclusive.
const READS_MAX: usize = 50;
/// The maximum number of reads that are computed, to limit the work. A statement with more reads is
/// rejected immediately.
const READS_LOOKED_AT_MAX: usize = 1000;

const TOO_MANY: &str = "Too many decomposed read operations for a given query.";
const OVERLAP: &str = "Overlapping conditions with range keys are not supported in where clause";

/// A position in the order of sort keys.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
enum SortPosition {
    Number(Number),
    Bytes(Vec<u8>),
}

/// The range of sort keys of a read.
type Keys = (Bound<SortPosition>, Bound<SortPosition>);

/// One read, with the conditions on its partition key and its sort key.
#[derive(Clone, Debug)]
struct Read<'w> {
    partition: Option<&'w AttributeValue>,
    keys: Keys,
    /// The first condition on the sort key.
    range: Option<Range>,
    /// Whether a condition excludes values of the sort key, such as `<>`. DynamoDB allows such a
    /// read to overlap with the statement's other reads.
    is_negated: bool,
    /// Whether the conditions require two different values of the partition key.
    is_contradictory: bool,
    /// The paths that the other conditions use, which filter the items that are read.
    filtered: Vec<&'w Path>,
}

impl Default for Read<'_> {
    fn default() -> Self {
        let keys = (Bound::Unbounded, Bound::Unbounded);
        let filtered = Vec::new();
        Self {
            partition: None,
            keys,
            range: None,
            is_negated: false,
            is_contradictory: false,
            filtered,
        }
    }
}

/// The names of the key attributes.
#[derive(Clone, Copy, Debug)]
struct Names<'n> {
    partition: &'n str,
    sort: Option<&'n str>,
}

impl<'n> Names<'n> {
    /// Returns the name of the key attribute if the operand is a key attribute; otherwise `None`.
    fn of(self, operand: &Operand) -> Option<&'n str> {
        let names = std::iter::once(self.partition).chain(self.sort);
        names.into_iter().find(|name| is_whole(operand, name))
    }

    fn is_sort(self, operand: &Operand) -> bool {
        self.sort.is_some_and(|sort| is_whole(operand, sort))
    }
}

/// The reads of a `SELECT` that DynamoDB accepts.
#[derive(Debug)]
pub struct SelectReads<'w> {
    /// The reads in the order of the partition keys. `None` if one of the reads has no partition
    /// key, so that the entire table or index must be read.
    of_collections: Option<Vec<Read<'w>>>,
    names: Names<'w>,
}

impl SelectReads<'_> {
    /// Returns the item collections to read, in the order of the partition keys, each with its
    /// partition key and the part to read; `None` if the entire table or index must be read. Every
    /// item that is read must still be tested against all conditions.
    #[must_use]
    pub fn collections(&self) -> Option<Vec<(AttributeValue, KeyExpression)>> {
        let mut found: Vec<(&AttributeValue, Option<&Range>)> = Vec::new();
        for read in self.of_collections.as_ref()? {
            let value = read.partition?;
            match found.last_mut() {
                // If the conditions select several ranges of one collection, the entire collection
                // is read once.
                Some((last, range)) if *last == value => *range = None,
                _ => found.push((value, read.range.as_ref())),
            }
        }
        let Names { partition, sort } = self.names;
        let collection = |(value, range): (&AttributeValue, Option<&Range>)| {
            let is_value = Range::Compare(Comparator::Equal, value.clone());
            let mut clauses = vec![Clause { attribute: partition.to_owned(), range: is_value }];
            if let (Some(range), Some(sort)) = (range, sort) {
                clauses.push(Clause { attribute: sort.to_owned(), range: range.clone() });
            }
            (value.clone(), KeyExpression::new(clauses))
        };
        Some(found.into_iter().map(collection).collect())
    }

    /// Returns attributes that the conditions use and that the index does not project. DynamoDB
    /// rejects the statement if there are any. It reports the missing attributes of the last read,
    /// in the order of the partition keys. The result is empty if the entire index is read, or if
    /// one of the reads uses only projected attributes.
    #[must_use]
    pub fn missing(&self, holds: impl Fn(&str) -> bool) -> Vec<&str> {
        let mut last = Vec::new();
        for read in self.of_collections.iter().flatten() {
            let roots = read.filtered.iter().map(|path| path.root());
            last = in_set_order(roots.filter(|root| !holds(root)));
            if last.is_empty() {
                return last;
            }
        }
        last
    }
}

impl Where {
    /// Returns the reads into which the conditions decompose, for the attributes of the key.
    ///
    /// # Errors
    /// When there are too many reads, or reads overlap.
    pub fn reads<'w>(
        &'w self,
        partition: &'w str,
        sort: Option<&'w str>,
    ) -> Result<SelectReads<'w>, PartiqlError> {
        let names = Names { partition, sort };
        let pins = self.tests().iter().any(|test| self.pins(test, names));
        let reads = self.product(self.tests(), names);
        if pins && reads.as_ref().is_none_or(|reads| reads.len() > READS_MAX) {
            return Err(PartiqlError::new(TOO_MANY));
        }
        let says_its_key = |read: &Read<'_>| read.partition.is_some() && !read.is_contradictory;
        let mut of_collections = reads.filter(|reads| reads.iter().all(says_its_key));
        if let Some(reads) = &mut of_collections {
            check_apart(reads)?;
            let place = |read: &Read<'_>| read.partition.and_then(point);
            reads.sort_by(|one, other| {
                place(one).partial_cmp(&place(other)).unwrap_or(Ordering::Equal)
            });
        }
        Ok(SelectReads { of_collections, names })
    }

    /// Returns the key attributes, with the values that the conditions compare them with, in the
    /// order of the statement. A negated condition contributes no value.
    #[must_use]
    pub fn key_values<'n>(
        &self,
        partition: &'n str,
        sort: Option<&'n str>,
    ) -> Vec<(&'n str, AttributeValue)> {
        let mut found = Vec::new();
        for test in self.tests() {
            self.find_key_values(test, Names { partition, sort }, &mut found);
        }
        found
    }

    fn find_key_values<'n>(
        &self,
        test: &Test,
        names: Names<'n>,
        found: &mut Vec<(&'n str, AttributeValue)>,
    ) {
        match test {
            Test::Or(_) if !self.names_key(test, names) => {}
            Test::And(members) | Test::Or(members) => {
                for member in members {
                    self.find_key_values(member, names, found);
                }
            }
            Test::In { operand, candidates } => {
                let Some(name) = names.of(operand) else { return };
                let values = candidates.iter().filter_map(|candidate| match candidate {
                    Operand::Value(index) => Some((name, index.of(&self.values).clone())),
                    Operand::Path(_) | Operand::SizeOf(_) => None,
                });
                found.extend(values);
            }
            _ => {
                if let Some((name, value)) = super::equality(test, &self.values)
                    && name == names.partition
                {
                    found.push((names.partition, value.clone()));
                } else if let Some(sort) = names.sort {
                    let range = self.range(test, sort);
                    let values = range.iter().flat_map(Range::values).flatten();
                    found.extend(values.map(|value| (sort, value.clone())));
                }
            }
        }
    }

    /// Returns whether every branch of a test restricts the partition key to given values.
    fn pins(&self, test: &Test, names: Names<'_>) -> bool {
        match test {
            Test::And(members) => members.iter().any(|member| self.pins(member, names)),
            Test::Or(members) => members.iter().all(|member| self.pins(member, names)),
            Test::In { operand, .. } => is_whole(operand, names.partition),
            _ => matches!(
                self.range(test, names.partition),
                Some(Range::Compare(Comparator::Equal, _))
            ),
        }
    }

    /// Returns whether a test has a condition on a key attribute. DynamoDB decomposes an `OR` with
    /// such a test into reads.
    fn names_key(&self, test: &Test, names: Names<'_>) -> bool {
        match test {
            Test::And(members) | Test::Or(members) => {
                members.iter().any(|member| self.names_key(member, names))
            }
            Test::In { operand, .. } if names.is_sort(operand) => true,
            Test::Not(_) => false,
            _ => {
                self.pins(test, names)
                    || names.sort.is_some_and(|sort| self.range(test, sort).is_some())
            }
        }
    }

    /// Returns the reads of a conjunction; `None` if there are more than [`READS_LOOKED_AT_MAX`].
    fn product<'w>(&'w self, tests: &'w [Test], names: Names<'_>) -> Option<Vec<Read<'w>>> {
        let mut reads = vec![Read::default()];
        for test in tests {
            let parts = self.reads_of(test, names)?;
            if reads.len().saturating_mul(parts.len()) > READS_LOOKED_AT_MAX {
                return None;
            }
            let mut together = Vec::with_capacity(reads.len() * parts.len());
            for read in &reads {
                together.extend(parts.iter().map(|part| both(read, part)));
            }
            reads = together;
        }
        Some(reads)
    }

    fn reads_of<'w>(&'w self, test: &'w Test, names: Names<'_>) -> Option<Vec<Read<'w>>> {
        match test {
            Test::And(members) => self.product(members, names),
            Test::Or(members) if self.names_key(test, names) => {
                let mut reads = Vec::new();
                for member in members {
                    reads.extend(self.reads_of(member, names)?);
                    if reads.len() > READS_LOOKED_AT_MAX {
                        return None;
                    }
                }
                Some(reads)
            }
            Test::In { operand, candidates }
                if is_whole(operand, names.partition) || names.is_sort(operand) =>
            {
                let is_partition = is_whole(operand, names.partition);
                let one = |candidate: &Operand| match candidate {
                    Operand::Value(index) => equal_to(index.of(&self.values), is_partition),
                    Operand::Path(_) | Operand::SizeOf(_) => Read::default(),
                };
                Some(candidates.iter().map(one).collect())
            }
            _ => Some(vec![self.read_of(test, names)]),
        }
    }

    /// Returns the read for a single condition.
    fn read_of<'w>(&'w self, test: &'w Test, names: Names<'_>) -> Read<'w> {
        if let Some((name, value)) = super::equality(test, &self.values)
            && name == names.partition
        {
            return equal_to(value, true);
        }
        let is_negated = match test {
            Test::Not(inner) => names.sort.is_some_and(|sort| mentions(inner, sort)),
            Test::Compare { comparator: Comparator::NotEqual, left, right } => {
                names.is_sort(left) || names.is_sort(right)
            }
            _ => false,
        };
        let range = names.sort.and_then(|sort| self.range(test, sort));
        match range.as_ref().and_then(keys_of) {
            Some(keys) => Read { keys, range, is_negated, ..Read::default() },
            None => {
                let mut filtered = Vec::new();
                test.collect_paths(&mut filtered);
                Read { is_negated, filtered, ..Read::default() }
            }
        }
    }
}

/// Rejects a statement in which two reads of one item collection overlap.
fn check_apart(reads: &[Read<'_>]) -> Result<(), PartiqlError> {
    let ranges: Vec<&Read<'_>> =
        reads.iter().filter(|read| !read.is_negated && !is_empty(&read.keys)).collect();
    for (position, read) in ranges.iter().enumerate() {
        let overlaps = |other: &&Read<'_>| {
            other.partition == read.partition && overlap(&other.keys, &read.keys)
        };
        if ranges.iter().skip(position + 1).any(overlaps) {
            return Err(PartiqlError::new(OVERLAP));
        }
    }
    Ok(())
}

fn equal_to(value: &AttributeValue, is_partition: bool) -> Read<'_> {
    if is_partition {
        return Read { partition: Some(value), ..Read::default() };
    }
    let range = Range::Compare(Comparator::Equal, value.clone());
    match keys_of(&range) {
        Some(keys) => Read { keys, range: Some(range), ..Read::default() },
        None => Read::default(),
    }
}

/// Returns whether a test contains a condition on the attribute itself.
fn mentions(test: &Test, attribute: &str) -> bool {
    let is_it = |operand: &Operand| is_whole(operand, attribute);
    match test {
        Test::And(members) | Test::Or(members) => {
            members.iter().any(|member| mentions(member, attribute))
        }
        Test::Not(inner) => mentions(inner, attribute),
        Test::Compare { left, right, .. } => is_it(left) || is_it(right),
        Test::Between { operand, .. }
        | Test::In { operand, .. }
        | Test::AttributeType { operand, .. }
        | Test::BeginsWith { operand, .. }
        | Test::Contains { operand, .. } => is_it(operand),
        Test::AttributeExists(path) | Test::AttributeNotExists(path) => {
            !path.is_nested() && path.root() == attribute
        }
    }
}

/// Returns the intersection of two reads: the conditions of both.
fn both<'w>(one: &Read<'w>, other: &Read<'w>) -> Read<'w> {
    let contradict = matches!((one.partition, other.partition), (Some(a), Some(b)) if a != b);
    Read {
        partition: one.partition.or(other.partition),
        keys: (
            inner(&one.keys.0, &other.keys.0, |a, b| a > b),
            inner(&one.keys.1, &other.keys.1, |a, b| a < b),
        ),
        range: one.range.clone().or_else(|| other.range.clone()),
        is_negated: one.is_negated || other.is_negated,
        is_contradictory: one.is_contradictory || other.is_contradictory || contradict,
        filtered: [one.filtered.as_slice(), &other.filtered].concat(),
    }
}

/// Returns the stricter of two bounds.
fn inner(
    one: &Bound<SortPosition>,
    other: &Bound<SortPosition>,
    is_tighter: fn(&SortPosition, &SortPosition) -> bool,
) -> Bound<SortPosition> {
    match (one, other) {
        (Bound::Unbounded, bound) | (bound, Bound::Unbounded) => bound.clone(),
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            let takes_other = is_tighter(b, a) || (a == b && matches!(other, Bound::Excluded(_)));
            if takes_other { other.clone() } else { one.clone() }
        }
    }
}

fn point(value: &AttributeValue) -> Option<SortPosition> {
    match value {
        AttributeValue::N(number) => Some(SortPosition::Number(*number)),
        AttributeValue::S(text) => Some(SortPosition::Bytes(text.as_bytes().to_vec())),
        AttributeValue::B(bytes) => Some(SortPosition::Bytes(bytes.clone())),
        _ => None,
    }
}

fn keys_of(range: &Range) -> Option<Keys> {
    Some(match range {
        Range::Compare(comparator, value) => {
            let at = point(value)?;
            match comparator {
                Comparator::Equal => (Bound::Included(at.clone()), Bound::Included(at)),
                Comparator::Less => (Bound::Unbounded, Bound::Excluded(at)),
                Comparator::LessOrEqual => (Bound::Unbounded, Bound::Included(at)),
                Comparator::Greater => (Bound::Excluded(at), Bound::Unbounded),
                Comparator::GreaterOrEqual => (Bound::Included(at), Bound::Unbounded),
                Comparator::NotEqual => return None,
            }
        }
        Range::Between(lower, upper) => {
            (Bound::Included(point(lower)?), Bound::Included(point(upper)?))
        }
        Range::BeginsWith(prefix) => {
            let at = point(prefix)?;
            let end = behind(&at);
            (Bound::Included(at), end)
        }
        Range::NotIndexable => return None,
    })
}

/// Returns the upper bound of all keys with a prefix, which sorts after all these keys.
fn behind(prefix: &SortPosition) -> Bound<SortPosition> {
    let SortPosition::Bytes(bytes) = prefix else { return Bound::Unbounded };
    let Some(last) = bytes.iter().rposition(|byte| *byte != u8::MAX) else {
        return Bound::Unbounded;
    };
    let mut end = bytes.get(..=last).unwrap_or_default().to_vec();
    if let Some(byte) = end.last_mut() {
        *byte = byte.saturating_add(1);
    }
    Bound::Excluded(SortPosition::Bytes(end))
}

fn is_empty(keys: &Keys) -> bool {
    match keys {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
        _ => false,
    }
}

fn overlap(one: &Keys, other: &Keys) -> bool {
    let begin = inner(&one.0, &other.0, |a, b| a > b);
    let end = inner(&one.1, &other.1, |a, b| a < b);
    !is_empty(&(begin, end))
}

#[cfg(test)]
mod tests {
    use crate::partiql::{Statement, Where, parse_statement};

    fn conditions(text: &str) -> Where {
        match parse_statement(&format!("SELECT * FROM t WHERE {text}"), &[]).unwrap() {
            Statement::Select(select) => select.condition,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(text: &str) -> Option<String> {
        conditions(text).reads("pk", Some("sk")).err().map(|error| error.to_string())
    }

    /// Goal: overlapping reads are rejected exactly if DynamoDB rejects them.
    #[test]
    fn overlapping_reads_are_refused() {
        for condition in [
            "pk='a' AND x='1' OR pk='a' AND sk='2'",
            "pk='a' AND x<>'1' OR pk='a' AND sk='2'",
            "pk='a' OR pk='a'",
            "pk IN ['a','b','a']",
            "pk IN ['a','a'] AND sk='1'",
            "pk='a' AND (sk > '0' OR sk < '5')",
            "pk='a' AND (sk='1' OR flag='two')",
            "(pk='a' AND flag='one') OR (pk='a' AND flag='two')",
            "pk='a' AND (begins_with(sk, 'ab') OR sk BETWEEN 'abc' AND 'b')",
            "pk='a' AND (sk >= 5 OR 5 >= sk)",
            "pk='a' AND sk IN ['1','2','1']",
        ] {
            assert_eq!(refusal(condition).as_deref(), Some(super::OVERLAP), "{condition}");
        }
        for condition in [
            "pk='a' AND NOT sk='1' OR pk='a' AND sk='2'",
            "pk='a' AND sk <> '1' OR pk='a' AND sk='2'",
            "pk='a' AND NOT begins_with(sk, 'x') OR pk='a' AND sk='2'",
            "pk='a' AND NOT sk IN ['1','3'] OR pk='a' AND sk='2'",
            "pk='a' AND NOT (sk='1') OR pk='a' AND sk='2'",
            "pk='a' OR pk='a' AND NOT sk='1'",
            "pk='a' AND (sk < '1' OR sk > '1' OR sk='1')",
            "pk='a' AND (sk='1' OR sk='2')",
            "pk='a' AND sk > '0' AND sk < '5'",
            "pk='a' AND (flag='one' OR flag='two')",
            "pk='a' AND (sk < 5 OR sk > 5)",
            "pk='a' AND (begins_with(sk, 'ab') OR sk >= 'ac')",
            "pk='a' OR sk='1'",
            "pk='a' AND pk='b' OR pk='a'",
            "pk='a' OR pk='b'",
            "pk IN ['a','b'] AND sk IN ['1','2']",
            "pk='a' AND (sk < '1' AND sk > '2' OR sk > '0')",
            "flag='one' OR flag='one'",
        ] {
            assert_eq!(refusal(condition), None, "{condition}");
        }
    }

    /// Goal: the values of a key are found if every branch of the condition restricts the key.
    #[test]
    fn values_of_keys_are_found_in_every_branch() {
        for (condition, expected) in [
            ("pk = 1 OR 'a' = pk", "pk pk"),
            ("pk = 'a' AND sk IN ['1', 2] AND x = 1", "pk sk sk"),
            ("pk IN ['a', 'b'] AND (sk BETWEEN 1 AND 2 OR begins_with(sk, 'x'))", "pk pk sk sk sk"),
            ("pk > 1 AND NOT sk = 1 AND sk <> 2", ""),
            ("x = 1 OR y = 2 AND z = 3", ""),
        ] {
            let found = conditions(condition).key_values("pk", Some("sk"));
            let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.join(" "), expected, "{condition}");
        }
    }

    /// Goal: the reported missing attributes are the missing attributes of the last read, in the
    /// order of Java's sets.
    #[test]
    fn missing_attributes_are_those_of_the_last_read() {
        for (condition, expected) in [
            ("pk='y' AND (zz='1' OR aa='2' OR mm='3')", "zz aa mm"),
            ("pk='y' AND b='1' AND (a='2' OR held='3')", "a b"),
            ("(pk='y' OR pk='z') AND zz='1'", "zz"),
            ("(pk='b' AND u1='1') OR (pk='q' AND u2='1')", "u2"),
            ("(pk='q' AND u1='1') OR (pk='b' AND u2='1')", "u1"),
            ("(pk=9 AND u1='1') OR (pk=10 AND u2='1')", "u2"),
            ("(pk='y' AND held='1') OR (pk='z' AND aa='1')", ""),
            ("pk > 'a' AND zz='1'", ""),
            ("pk='y' AND (pk='z' OR zz='1')", ""),
            ("(pk='y' AND zz='1') OR aa='1'", ""),
            ("zz='1'", ""),
        ] {
            let holds = |name: &str| ["pk", "sk", "held"].contains(&name);
            let conditions = conditions(condition);
            let reads = conditions.reads("pk", Some("sk")).unwrap();
            assert_eq!(reads.missing(holds).join(" "), expected, "{condition}");
        }
    }

    /// Goal: 50 reads are the maximum, for any combination of conditions.
    #[test]
    fn more_than_fifty_reads_are_refused() {
        let values = |count: usize| {
            let values: Vec<String> = (0..count).map(|n| format!("'{n}'")).collect();
            values.join(",")
        };
        for (condition, is_refused) in [
            (format!("pk IN [{}]", values(50)), false),
            (format!("pk IN [{}]", values(51)), true),
            (format!("pk='a' AND sk IN [{}]", values(51)), true),
            (format!("pk IN [{}] AND sk IN ['1','2']", values(25)), false),
            (format!("pk IN [{}] AND sk IN ['1','2']", values(26)), true),
            (format!("pk IN [{0}] AND sk IN [{0}]", values(100)), true),
            (format!("pk IN [{}] AND flag IN [{}]", values(50), values(100)), false),
            (format!("pk IN [{}] OR flag='one'", values(51)), false),
            (format!("sk IN [{}]", values(51)), false),
        ] {
            let expected = is_refused.then(|| super::TOO_MANY.to_owned());
            assert_eq!(refusal(&condition), expected, "{condition}");
        }
    }
}
