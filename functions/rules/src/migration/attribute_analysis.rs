//! Static analysis: the attributes of an item that a jq program can read.
//!
//! A write in place must replace exactly the version of the item to which the program was applied.
//! The condition of the write lists attributes by name. All names that can affect the result must
//! therefore be known, including names that the item lacks. The analysis walks the program's syntax
//! tree with the possible results of each part: the item, a value that contains the item, or
//! another value. A program that reads the item other than by a literal name (`keys`, `.[]`,
//! `.[$name]`, a comparison of entire items) can read every attribute. A construct that the
//! analysis does not support counts as reading every attribute.
//!
//! If the program cannot read an attribute, the attribute's presence does not affect the rest of
//! the result. The program also either keeps the attribute in every item or removes it from every
//! item.

use std::collections::{BTreeMap, BTreeSet};

use crate::jq::{Binding, Builtin, Change, Math, Pattern, Piece, Term};

/// The possible values of variables.
type Vars = BTreeMap<Binding, PossibleResults>;

/// The maximum number of parts of a program that are visited. Parts of nested loops are visited several
/// times each.
const STEPS_MAX: u32 = 100_000;
/// The number of visits of a loop after which its result is stable: the result has three flags, and
/// a visit only adds flags.
const ROUNDS: usize = 4;

/// The possible results of a part of a program, as a set of three flags. The set is empty if the
/// part yields no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PossibleResults(u8);

impl PossibleResults {
    const NOTHING: Self = Self(0);
    /// A value that depends only on attributes whose names are recorded.
    const OTHER: Self = Self(1);
    /// The item, possibly with changed attributes. The names of these attributes are literals of
    /// the program or come from a value of the kind `OTHER`.
    const ITEM: Self = Self(2);
    /// A value that may contain the item.
    const INSIDE: Self = Self(4);

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, part: Self) -> bool {
        self.0 & part.0 != 0
    }

    /// Returns whether the value may contain all attributes of the item.
    fn is_whole(self) -> bool {
        self.has(Self::ITEM) || self.has(Self::INSIDE)
    }
}

/// The attributes that a program can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadableAttributes {
    names: BTreeSet<String>,
    is_any: bool,
    gives: PossibleResults,
}

impl ReadableAttributes {
    /// Analyses a program.
    pub(super) fn of(term: &Term) -> Self {
        let mut walk = ProgramAnalysis { names: BTreeSet::new(), is_any: false, steps: 0 };
        let gives = walk.term(term, PossibleResults::ITEM, &Vars::new());
        Self { names: walk.names, is_any: walk.is_any, gives }
    }

    /// Returns the attributes that a condition can read; `None` if it can read every attribute.
    pub(super) fn of_condition(&self) -> Option<&BTreeSet<String>> {
        (!self.is_any).then_some(&self.names)
    }

    /// Returns the attributes that a change can read; `None` if it can read every attribute. A
    /// program that keeps the other attributes of some items and removes those of other items
    /// counts as reading every attribute. The reason is that it must have processed every attribute
    /// that it removes.
    pub(super) fn of_change(&self) -> Option<&BTreeSet<String>> {
        let is_one = matches!(
            self.gives,
            PossibleResults::NOTHING | PossibleResults::OTHER | PossibleResults::ITEM
        );
        (!self.is_any && is_one).then_some(&self.names)
    }
}

struct ProgramAnalysis {
    names: BTreeSet<String>,
    is_any: bool,
    steps: u32,
}

impl ProgramAnalysis {
    /// Records that the program can read every attribute.
    fn any(&mut self) -> PossibleResults {
        self.is_any = true;
        PossibleResults::INSIDE
    }

    /// Records that every part of a value is read.
    fn whole(&mut self, value: PossibleResults) {
        self.is_any |= value.is_whole();
    }

    /// Returns the possible results of a term for an input.
    fn term(&mut self, term: &Term, input: PossibleResults, vars: &Vars) -> PossibleResults {
        self.steps += 1;
        if self.is_any || self.steps > STEPS_MAX {
            return self.any();
        }
        match term {
            Term::Identity => input,
            Term::Literal(_) | Term::Array(None) => PossibleResults::OTHER,
            Term::Break(_) => PossibleResults::NOTHING,
            Term::Variable(name) => vars.get(name).copied().unwrap_or(PossibleResults::OTHER),
            Term::Text(_, pieces) => {
                for piece in pieces {
                    if let Piece::Term(term) = piece {
                        self.whole_term(term, input, vars);
                    }
                }
                PossibleResults::OTHER
            }
            Term::Array(Some(members)) => match self.term(members, input, vars).is_whole() {
                true => PossibleResults::INSIDE,
                false => PossibleResults::OTHER,
            },
            Term::Object(members) => self.object(members, input, vars),
            Term::Negative(term) => self.whole_term(term, input, vars),
            Term::Label(_, term) => self.term(term, input, vars),
            Term::Try(term, catch) => {
                let gives = self.term(term, input, vars);
                let Some(catch) = catch else { return gives };
                // The message of an error may contain the value that caused it.
                let is_whole = input.is_whole() || vars.values().any(|var| var.is_whole());
                let message =
                    if is_whole { PossibleResults::INSIDE } else { PossibleResults::OTHER };
                gives.or(self.term(catch, message, vars))
            }
            Term::If(condition, then, otherwise) => {
                // A condition is only tested for truth, so the value's contents are not read.
                self.term(condition, input, vars);
                let gives = self.term(then, input, vars);
                gives.or(self.term(otherwise, input, vars))
            }
            Term::Index(of, key, _) => {
                let gives = self.term(of, input, vars);
                self.whole_term(key, input, vars);
                self.member(key.literal(), gives)
            }
            Term::Slice(of, from, to, _) => {
                for bound in [from, to].into_iter().flatten() {
                    self.whole_term(bound, input, vars);
                }
                let gives = self.term(of, input, vars);
                self.whole(gives);
                gives
            }
            Term::Each(of, _) => {
                let gives = self.term(of, input, vars);
                self.whole(gives);
                gives
            }
            Term::Call(builtin, arguments) => self.call(*builtin, arguments, input, vars),
            _ => self.operation(term, input, vars),
        }
    }

    /// Analyses a term whose entire result is read.
    fn whole_term(&mut self, term: &Term, input: PossibleResults, vars: &Vars) -> PossibleResults {
        let gives = self.term(term, input, vars);
        self.whole(gives);
        PossibleResults::OTHER
    }

    /// Returns the possible values of a member of a value. `name` is the member's name, if it is a
    /// literal.
    fn member(&mut self, name: Option<&str>, of: PossibleResults) -> PossibleResults {
        if !of.is_whole() {
            return of;
        }
        match name {
            Some(name) => self.names.insert(name.to_owned()),
            None => return self.any(),
        };
        let inside = if of.has(PossibleResults::INSIDE) {
            PossibleResults::INSIDE
        } else {
            PossibleResults::NOTHING
        };
        PossibleResults::OTHER.or(inside)
    }

    fn object(
        &mut self,
        members: &[(Term, Term)],
        input: PossibleResults,
        vars: &Vars,
    ) -> PossibleResults {
        let mut is_whole = false;
        for (key, value) in members {
            self.whole_term(key, input, vars);
            is_whole |= self.term(value, input, vars).is_whole();
        }
        if is_whole { PossibleResults::INSIDE } else { PossibleResults::OTHER }
    }

    fn operation(&mut self, term: &Term, input: PossibleResults, vars: &Vars) -> PossibleResults {
        let (left, right) = match term {
            Term::Reduce(over, pattern, begin, update) => {
                let over = self.term(over, input, vars);
                let inner = self.bind(pattern, over, vars);
                return self.fold(begin, update, None, input, vars, &inner);
            }
            Term::Foreach(over, pattern, begin, update, extract) => {
                let over = self.term(over, input, vars);
                let inner = self.bind(pattern, over, vars);
                return self.fold(begin, update, extract.as_deref(), input, vars, &inner);
            }
            Term::Pipe(left, right) => {
                let gives = self.term(left, input, vars);
                return self.term(right, gives, vars);
            }
            Term::Bind(source, pattern, body) => {
                let gives = self.term(source, input, vars);
                let inner = self.bind(pattern, gives, vars);
                return self.term(body, input, &inner);
            }
            Term::Comma(left, right) | Term::Alternative(left, right) => {
                let gives = self.term(left, input, vars);
                return gives.or(self.term(right, input, vars));
            }
            Term::And(left, right) | Term::Or(left, right) => {
                self.term(left, input, vars);
                self.term(right, input, vars);
                return PossibleResults::OTHER;
            }
            Term::Update(left, right) if matches!(**left, Term::Identity) => {
                return self.term(right, input, vars);
            }
            // `. += {a: 1}` is the same as `. + {a: 1}`.
            Term::Change(Change::Math(math), left, right) if matches!(**left, Term::Identity) => {
                return self.math(*math, left, right, input, vars);
            }
            Term::Math(math, left, right) => return self.math(*math, left, right, input, vars),
            Term::Compare(_, left, right) => {
                self.whole_term(left, input, vars);
                return self.whole_term(right, input, vars);
            }
            Term::Update(left, right) | Term::Change(_, left, right) => (left, right),
            _ => return self.any(),
        };
        // If an item becomes part of another value or replaces it, the entire item is read.
        let gives = self.term(left, input, vars);
        self.whole(gives);
        let operand = if let Term::Update(..) = term { gives } else { input };
        self.whole_term(right, operand, vars);
        input
    }

    fn math(
        &mut self,
        math: Math,
        left: &Term,
        right: &Term,
        input: PossibleResults,
        vars: &Vars,
    ) -> PossibleResults {
        let gives = self.term(left, input, vars);
        if !matches!(math, Math::Add | Math::Multiply) {
            self.whole(gives);
            return self.whole_term(right, input, vars);
        }
        let other = self.term(right, input, vars);
        // The product of two items reads all attributes, because it merges the attributes that both
        // have.
        self.is_any |= math == Math::Multiply && gives.is_whole() && other.is_whole();
        let both = gives.or(other);
        // If both operands may be other values, the sum may be another value too.
        let is_plain = gives.has(PossibleResults::OTHER) && other.has(PossibleResults::OTHER);
        if both.is_whole() && !is_plain {
            PossibleResults(both.0 & !PossibleResults::OTHER.0)
        } else {
            both
        }
    }

    /// Returns the variables after a pattern has destructured a value.
    fn bind(&mut self, pattern: &Pattern, gives: PossibleResults, vars: &Vars) -> Vars {
        let mut bound = vars.clone();
        let mut open = vec![(pattern, gives)];
        while let Some((pattern, gives)) = open.pop() {
            match pattern {
                Pattern::Variable(name) => {
                    bound.insert(*name, gives);
                }
                Pattern::Array(members) => {
                    self.whole(gives);
                    open.extend(members.iter().map(|member| (member, gives)));
                }
                Pattern::Object(members) => {
                    for (key, name, inner) in members {
                        let member = self.member(Some(key), gives);
                        bound.extend(name.map(|name| (name, member)));
                        open.extend(inner.as_ref().map(|inner| (inner, member)));
                    }
                }
            }
        }
        bound
    }

    /// Analyses `reduce` and `foreach`: the initial value, the update in each round, and the results.
    fn fold(
        &mut self,
        begin: &Term,
        update: &Term,
        extract: Option<&Term>,
        input: PossibleResults,
        vars: &Vars,
        inner: &Vars,
    ) -> PossibleResults {
        // If the update yields no value, the next round begins with null.
        let mut gives = self.term(begin, input, vars).or(PossibleResults::OTHER);
        for _ in 0..ROUNDS {
            gives = gives.or(self.term(update, gives, inner));
        }
        match extract {
            Some(extract) => self.term(extract, gives, inner),
            None => gives,
        }
    }

    /// Analyses the filters that read only a part of their input. Any other filter counts as
    /// reading its entire input.
    fn call(
        &mut self,
        name: Builtin,
        arguments: &[Term],
        input: PossibleResults,
        vars: &Vars,
    ) -> PossibleResults {
        match (name, arguments) {
            (Builtin::Empty | Builtin::Error, []) => PossibleResults::NOTHING,
            (Builtin::Nan | Builtin::Infinite | Builtin::Not | Builtin::Type, []) => {
                PossibleResults::OTHER
            }
            (Builtin::Error, [message]) => {
                self.term(message, input, vars);
                PossibleResults::NOTHING
            }
            (Builtin::Select, [condition]) => {
                self.term(condition, input, vars);
                input
            }
            (Builtin::Has, [name]) if name.literal().is_some() => {
                self.member(name.literal(), input);
                PossibleResults::OTHER
            }
            (Builtin::Any | Builtin::All, [of, condition]) => {
                let of = self.term(of, input, vars);
                self.term(condition, of, vars);
                PossibleResults::OTHER
            }
            (Builtin::Isempty, [of]) => {
                self.term(of, input, vars);
                PossibleResults::OTHER
            }
            (Builtin::First | Builtin::Last, [of]) => self.term(of, input, vars),
            (Builtin::Limit | Builtin::Skip | Builtin::Nth, [count, of]) => {
                self.whole_term(count, input, vars);
                self.term(of, input, vars)
            }
            (Builtin::Add, [of]) => self.whole_term(of, input, vars),
            (Builtin::Del, [path]) => {
                self.whole_term(path, input, vars);
                input
            }
            _ => {
                self.whole(input);
                for argument in arguments {
                    self.whole_term(argument, input, vars);
                }
                PossibleResults::OTHER
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Item;
    use model::json::item_from_str;
    use proptest::prelude::*;

    use super::super::transform::Transform;
    use super::*;
    use crate::jq::{Program, Val};

    fn looks_of(program: &str) -> ReadableAttributes {
        ReadableAttributes::of(Program::parse(program).unwrap().term())
    }

    /// Programs, each with the attributes that it can read.
    const NAMED: [(&str, &str); 35] = [
        (".tenant == \"7\" and (.hold != true)", "hold tenant"),
        (".state //= (if .closed then \"closed\" else \"open\" end)", "closed state"),
        ("if has(\"old\") then .new = (.old | tostring) | del(.old) else . end", "new old"),
        ("any(.tags[]?; . == \"x\")", "tags"),
        ("all(.tags[]?, .a; test(\"x\"))", "a tags"),
        (". + {kind: \"order\", n: (.lines | length)}", "lines"),
        ("{kind: \"order\"} + .", ""),
        ("{(.a | tostring): 1} + . | .b = 1", "a b"),
        (". += {kind: .a}", "a"),
        (". |= (.a = 1)", "a"),
        (". * {a: {b: 1}}", ""),
        ("{id, a: .b, \"c d\", \"e\": .\"f g\"}", "b c d f g id"),
        (".[\"a\"][.b] // .c.d[0:2]", "a b c"),
        (". as $i | .tags | map(. + $i.x)", "tags x"),
        (". as {$a, b: [$b], \"c\": {$d}} | $a + $b + $d", "a b c"),
        (". as $i | $i", ""),
        ("reduce .tags[]? as $t (.; .n += $t)", "n tags"),
        ("foreach .tags[]? as $t (0; . + $t)", "tags"),
        ("try (.a | tonumber) catch null", "a"),
        ("[.a, .b] | add == 2", "a b"),
        ("{x: .} | .x.hold", "hold x"),
        ("{x: .a} | .x == 1", "a"),
        ("select(.a) | .b == 1", "a b"),
        ("first(.a, .b) == null", "a b"),
        ("isempty(.a[]?)", "a"),
        ("\"\\(.a)-\\(.b)\" == \"1-2\"", "a b"),
        ("-.a < 1", "a"),
        ("type == \"object\"", ""),
        (".a.b.c |= (. // 0) + 1", "a"),
        (".a += .b | .c -= 1", "a b c"),
        ("del(.a, .b.c)", "a b"),
        (".a[1:] = []", "a"),
        ("label $f | .a | if . then ., break $f else . end", "a"),
        ("(.a, .b) = 1", "a b"),
        ("add(.a, .b) == 3", "a b"),
    ];

    /// Programs that can read every attribute.
    const ANY: [&str; 29] = [
        "keys",
        "length > 3",
        "to_entries",
        "with_entries(.value |= tostring)",
        ".[] == 1",
        "map_values(1)",
        ".[.name]",
        ". as $i | .names | map($i[.])",
        ". == {id: \"1\"}",
        ".. == 1",
        "[..]",
        "{x: .} == {x: {}}",
        "[.] | .[0]",
        "tojson == \"x\"",
        "tostring",
        "\"\\(.)\"",
        "@json == \"x\"",
        "any",
        "has(.name)",
        "del(.[.name])",
        "del(.)",
        ".copy = .",
        ". as $i | .a |= $i",
        ". * .",
        "contains({a: 1})",
        "getpath([\"a\"])",
        "paths",
        "try error(.) catch (. == 1)",
        ". as [$a] | $a",
    ];

    thread_local! {
        static COMPILED: Vec<(&'static str, Transform)> =
            NAMED.map(|(program, _)| (program, Transform::compile(program).unwrap())).into();
    }

    #[test]
    fn literal_names_of_a_program_are_read() {
        for (program, expected) in NAMED {
            let looks = looks_of(program);
            let found = looks.of_condition().map(|names| names.iter().cloned().collect::<Vec<_>>());
            let found = found.map_or("any".to_owned(), |names| names.join(" "));
            assert_eq!(found, expected, "{program}");
        }
        // The analysis of deeply nested loops ends in bounded time.
        let deep = (0..60).fold(".".to_owned(), |deep, _| format!("reduce .a[] as $x (.; {deep})"));
        for program in ANY.into_iter().chain([deep.as_str()]) {
            assert_eq!(looks_of(program).of_condition(), None, "{program}");
        }
        // A change that removes an attribute only from some items counts as reading it. A condition
        // removes nothing.
        for program in [
            "if .a then . else {id} end",
            "., {id}",
            "[.]",
            "{x: .} | .x.hold",
            "try error catch .",
        ] {
            let looks = looks_of(program);
            assert!(looks.of_condition().is_some(), "{program}");
            assert_eq!(looks.of_change(), None, "{program}");
        }
        assert!(looks_of("{id, a: .b}").of_change().is_some());
    }

    fn items() -> impl Strategy<Value = Item> {
        let value = prop_oneof![
            Just(r#"{"S":"7"}"#.to_owned()),
            Just(r#"{"S":"x"}"#.to_owned()),
            (0..3_u8).prop_map(|n| format!(r#"{{"N":"{n}"}}"#)),
            any::<bool>().prop_map(|flag| format!(r#"{{"BOOL":{flag}}}"#)),
            Just(r#"{"NULL":true}"#.to_owned()),
            Just(r#"{"L":[{"S":"x"},{"N":"1"}]}"#.to_owned()),
            Just(r#"{"M":{"b":{"N":"1"},"c":{"M":{"a":{"N":"1"}}}}}"#.to_owned()),
        ];
        let names = prop::sample::select(vec![
            "a", "b", "c", "d", "e", "f g", "hold", "id", "kind", "lines", "n", "new", "old",
            "state", "tags", "tenant", "x", "7",
        ]);
        prop::collection::btree_map(names, value, 0..8).prop_map(|members| {
            let members = members.iter().map(|(name, value)| format!("{name:?}:{value}"));
            item_from_str(&format!("{{{}}}", members.collect::<Vec<_>>().join(","))).unwrap()
        })
    }

    proptest! {
        /// Goal: if a program cannot read an attribute and does not set it, the value of the
        /// attribute does not affect the rest of the result. The program either always keeps the
        /// attribute or always removes it.
        #[test]
        fn an_attribute_that_is_not_read_does_not_affect_the_result(item in items(), other in items()) {
            COMPILED.with(|compiled| compiled.iter().for_each(|(program, transform)| {
                same_without(program, transform, &item, &other);
            }));
        }
    }

    fn same_without(program: &str, transform: &Transform, item: &Item, other: &Item) {
        let names = transform.readable_attributes().of_condition().unwrap();
        let values = |item: &Item| transform.values(item, 9).map_err(drop);
        let (plain, made) = (values(item), transform.run(item).unwrap_or_default());
        for (name, value) in other.iter() {
            let is_made = made.iter().any(|made| made.contains_key(name));
            if item.contains_key(name) || names.contains(name) || is_made {
                continue;
            }
            let more = values(&item.clone().with(name, value.clone()));
            let more: Result<Vec<_>, ()> =
                more.map(|values| values.into_iter().map(|value| left_out(value, name)).collect());
            assert_eq!(more, plain, "{program} {name}");
        }
    }

    /// Returns an object without one member.
    fn left_out(value: Val, name: &str) -> Val {
        match value {
            Val::Obj(object) => {
                let members = object.members().iter();
                let kept = members.filter(|(key, _)| &***key != name);
                kept.map(|(key, value)| (key.clone(), value.clone())).collect()
            }
            other => other,
        }
    }
}
