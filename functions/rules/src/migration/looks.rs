//! Which attributes of an item a jq program can look at.
//!
//! A change of an item is only made if the item that stands there was judged, and a condition can
//! only speak of attributes by their names. So it must be known which names can make a difference,
//! also those that the judged item does not have. Here the program's syntax tree is walked with what
//! each part may give: the item, something that has the item in it, or something else. Where a
//! program looks at the item other than by a name that stands in it (`keys`, `.[]`, `.[$name]`, a
//! comparison of whole items), it can look at any attribute. What is unknown counts as that.
//!
//! Of an attribute that the program cannot look at, this holds: whether the item has it or not, the
//! program gives the same, and passes the attribute on or leaves it out.

use std::collections::{BTreeMap, BTreeSet};

use crate::jq::{Binding, Builtin, Change, Math, Pattern, Piece, Term};

/// What the variables may be.
type Vars = BTreeMap<Binding, Gives>;

/// Parts of a program that are walked at most. Loops are walked several times, each in the other.
const STEPS_MAX: u32 = 100_000;
/// Walks through a loop until what it gives stays the same: it only grows, and has three parts.
const ROUNDS: usize = 4;

/// What a part of a program may give; nothing, if it has none of the three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Gives(u8);

impl Gives {
    const NOTHING: Self = Self(0);
    /// What depends on no attribute but those whose names were noted.
    const OTHER: Self = Self(1);
    /// The item, perhaps with other attributes under names that stand in the program or that the
    /// outcome has too.
    const ITEM: Self = Self(2);
    /// Something that may have the item in it.
    const INSIDE: Self = Self(4);

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, part: Self) -> bool {
        self.0 & part.0 != 0
    }

    /// Whether all attributes can be seen in it.
    fn is_whole(self) -> bool {
        self.has(Self::ITEM) || self.has(Self::INSIDE)
    }
}

/// Which attributes a program can look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Looks {
    names: BTreeSet<String>,
    is_any: bool,
    gives: Gives,
}

impl Looks {
    /// What a program looks at.
    pub(super) fn of(term: &Term) -> Self {
        let mut walk = Walk { names: BTreeSet::new(), is_any: false, steps: 0 };
        let gives = walk.term(term, Gives::ITEM, &Vars::new());
        Self { names: walk.names, is_any: walk.is_any, gives }
    }

    /// The attributes that a condition can look at; none if that may be any.
    pub(super) fn of_condition(&self) -> Option<&BTreeSet<String>> {
        (!self.is_any).then_some(&self.names)
    }

    /// The attributes that a change can look at; none if that may be any. One that passes others on
    /// for some items and leaves them out for others looks at all of them, as it were: what it leaves
    /// out must have been seen.
    pub(super) fn of_change(&self) -> Option<&BTreeSet<String>> {
        let is_one = matches!(self.gives, Gives::NOTHING | Gives::OTHER | Gives::ITEM);
        (!self.is_any && is_one).then_some(&self.names)
    }
}

struct Walk {
    names: BTreeSet<String>,
    is_any: bool,
    steps: u32,
}

impl Walk {
    /// The program can look at any attribute here.
    fn any(&mut self) -> Gives {
        self.is_any = true;
        Gives::INSIDE
    }

    /// Of what is looked at as a whole.
    fn whole(&mut self, looked_at: Gives) {
        self.is_any |= looked_at.is_whole();
    }

    /// What a term gives for what comes in.
    fn term(&mut self, term: &Term, input: Gives, vars: &Vars) -> Gives {
        self.steps += 1;
        if self.is_any || self.steps > STEPS_MAX {
            return self.any();
        }
        match term {
            Term::Identity => input,
            Term::Literal(_) | Term::Array(None) => Gives::OTHER,
            Term::Break(_) => Gives::NOTHING,
            Term::Variable(name) => vars.get(name).copied().unwrap_or(Gives::OTHER),
            Term::Text(_, pieces) => {
                for piece in pieces {
                    if let Piece::Term(term) = piece {
                        self.looked_at(term, input, vars);
                    }
                }
                Gives::OTHER
            }
            Term::Array(Some(members)) => match self.term(members, input, vars).is_whole() {
                true => Gives::INSIDE,
                false => Gives::OTHER,
            },
            Term::Object(members) => self.object(members, input, vars),
            Term::Negative(term) => self.looked_at(term, input, vars),
            Term::Label(_, term) => self.term(term, input, vars),
            Term::Try(term, catch) => {
                let gives = self.term(term, input, vars);
                let Some(catch) = catch else { return gives };
                // The message of an error may have in it what it was about.
                let is_whole = input.is_whole() || vars.values().any(|var| var.is_whole());
                let message = if is_whole { Gives::INSIDE } else { Gives::OTHER };
                gives.or(self.term(catch, message, vars))
            }
            Term::If(condition, then, otherwise) => {
                // Whether something counts as true does not look into it.
                self.term(condition, input, vars);
                let gives = self.term(then, input, vars);
                gives.or(self.term(otherwise, input, vars))
            }
            Term::Index(of, key, _) => {
                let gives = self.term(of, input, vars);
                self.looked_at(key, input, vars);
                self.member(key.literal(), gives)
            }
            Term::Slice(of, from, to, _) => {
                for bound in [from, to].into_iter().flatten() {
                    self.looked_at(bound, input, vars);
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

    /// Of a term whose outcome is looked at as a whole.
    fn looked_at(&mut self, term: &Term, input: Gives, vars: &Vars) -> Gives {
        let gives = self.term(term, input, vars);
        self.whole(gives);
        Gives::OTHER
    }

    /// What stands under a name in what comes in.
    fn member(&mut self, name: Option<&str>, of: Gives) -> Gives {
        if !of.is_whole() {
            return of;
        }
        match name {
            Some(name) => self.names.insert(name.to_owned()),
            None => return self.any(),
        };
        let inside = if of.has(Gives::INSIDE) { Gives::INSIDE } else { Gives::NOTHING };
        Gives::OTHER.or(inside)
    }

    fn object(&mut self, members: &[(Term, Term)], input: Gives, vars: &Vars) -> Gives {
        let mut is_whole = false;
        for (key, value) in members {
            self.looked_at(key, input, vars);
            is_whole |= self.term(value, input, vars).is_whole();
        }
        if is_whole { Gives::INSIDE } else { Gives::OTHER }
    }

    fn operation(&mut self, term: &Term, input: Gives, vars: &Vars) -> Gives {
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
                return Gives::OTHER;
            }
            Term::Update(left, right) if matches!(**left, Term::Identity) => {
                return self.term(right, input, vars);
            }
            // `. += {a: 1}` is `. + {a: 1}`.
            Term::Change(Change::Math(math), left, right) if matches!(**left, Term::Identity) => {
                return self.math(*math, left, right, input, vars);
            }
            Term::Math(math, left, right) => return self.math(*math, left, right, input, vars),
            Term::Compare(_, left, right) => {
                self.looked_at(left, input, vars);
                return self.looked_at(right, input, vars);
            }
            Term::Update(left, right) | Term::Change(_, left, right) => (left, right),
            _ => return self.any(),
        };
        // An item that is put into another one, or in the place of it, is seen as a whole.
        let gives = self.term(left, input, vars);
        self.whole(gives);
        let operand = if let Term::Update(..) = term { gives } else { input };
        self.looked_at(right, operand, vars);
        input
    }

    fn math(&mut self, math: Math, left: &Term, right: &Term, input: Gives, vars: &Vars) -> Gives {
        let gives = self.term(left, input, vars);
        if !matches!(math, Math::Add | Math::Multiply) {
            self.whole(gives);
            return self.looked_at(right, input, vars);
        }
        let other = self.term(right, input, vars);
        // Of two items, what both have is multiplied, whatever its name is.
        self.is_any |= math == Math::Multiply && gives.is_whole() && other.is_whole();
        let both = gives.or(other);
        // An object and something else than an object make no object.
        let is_plain = gives.has(Gives::OTHER) && other.has(Gives::OTHER);
        if both.is_whole() && !is_plain { Gives(both.0 & !Gives::OTHER.0) } else { both }
    }

    /// The variables inside of a pattern that takes apart what `gives` says.
    fn bind(&mut self, pattern: &Pattern, gives: Gives, vars: &Vars) -> Vars {
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

    /// `reduce` and `foreach`: how they begin, what becomes of it in each round, and what they give.
    fn fold(
        &mut self,
        begin: &Term,
        update: &Term,
        extract: Option<&Term>,
        input: Gives,
        vars: &Vars,
        inner: &Vars,
    ) -> Gives {
        // A round whose update gives nothing begins the next one with null.
        let mut gives = self.term(begin, input, vars).or(Gives::OTHER);
        for _ in 0..ROUNDS {
            gives = gives.or(self.term(update, gives, inner));
        }
        match extract {
            Some(extract) => self.term(extract, gives, inner),
            None => gives,
        }
    }

    /// Filters that do not look at all that comes in. All others do.
    fn call(&mut self, name: Builtin, arguments: &[Term], input: Gives, vars: &Vars) -> Gives {
        match (name, arguments) {
            (Builtin::Empty | Builtin::Error, []) => Gives::NOTHING,
            (Builtin::Nan | Builtin::Infinite | Builtin::Not | Builtin::Type, []) => Gives::OTHER,
            (Builtin::Error, [message]) => {
                self.term(message, input, vars);
                Gives::NOTHING
            }
            (Builtin::Select, [condition]) => {
                self.term(condition, input, vars);
                input
            }
            (Builtin::Has, [name]) if name.literal().is_some() => {
                self.member(name.literal(), input);
                Gives::OTHER
            }
            (Builtin::Any | Builtin::All, [of, condition]) => {
                let of = self.term(of, input, vars);
                self.term(condition, of, vars);
                Gives::OTHER
            }
            (Builtin::Isempty, [of]) => {
                self.term(of, input, vars);
                Gives::OTHER
            }
            (Builtin::First | Builtin::Last, [of]) => self.term(of, input, vars),
            (Builtin::Limit | Builtin::Skip | Builtin::Nth, [count, of]) => {
                self.looked_at(count, input, vars);
                self.term(of, input, vars)
            }
            (Builtin::Add, [of]) => self.looked_at(of, input, vars),
            (Builtin::Del, [path]) => {
                self.looked_at(path, input, vars);
                input
            }
            _ => {
                self.whole(input);
                for argument in arguments {
                    self.looked_at(argument, input, vars);
                }
                Gives::OTHER
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

    fn looks_of(program: &str) -> Looks {
        Looks::of(Program::parse(program).unwrap().term())
    }

    /// Programs, and the attributes that they can look at.
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

    /// Programs that can look at any attribute.
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
    fn names_that_stand_in_a_program_are_looked_at() {
        for (program, expected) in NAMED {
            let looks = looks_of(program);
            let found = looks.of_condition().map(|names| names.iter().cloned().collect::<Vec<_>>());
            let found = found.map_or("any".to_owned(), |names| names.join(" "));
            assert_eq!(found, expected, "{program}");
        }
        // Loops in loops have an end.
        let deep = (0..60).fold(".".to_owned(), |deep, _| format!("reduce .a[] as $x (.; {deep})"));
        for program in ANY.into_iter().chain([deep.as_str()]) {
            assert_eq!(looks_of(program).of_condition(), None, "{program}");
        }
        // What a change leaves out only sometimes is looked at. A condition leaves nothing out.
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
        /// Whatever an attribute holds that a program cannot look at and does not make, the program
        /// gives the same, and either always passes it on or always leaves it out.
        #[test]
        fn what_is_not_looked_at_makes_no_difference(item in items(), other in items()) {
            COMPILED.with(|compiled| compiled.iter().for_each(|(program, transform)| {
                same_without(program, transform, &item, &other);
            }));
        }
    }

    fn same_without(program: &str, transform: &Transform, item: &Item, other: &Item) {
        let names = transform.looks().of_condition().unwrap();
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

    /// An object without a member.
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
