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

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{self, BinaryOp, Pattern};
use jaq_core::ops::Math;
use jaq_core::path::{Part, Path};

type Term<'p> = parse::Term<&'p str>;
/// What the variables may be.
type Vars<'p> = BTreeMap<&'p str, Gives>;

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
    pub(super) fn of(program: &str) -> Self {
        let mut walk = Walk { names: BTreeSet::new(), is_any: false, steps: 0 };
        let gives = match parse_term(program) {
            Some(term) => walk.term(&term, Gives::ITEM, &Vars::new()),
            None => walk.any(),
        };
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

fn parse_term(program: &str) -> Option<Term<'_>> {
    jaq_core::load::parse(program, |parser| parser.term())
}

/// The text of a string that is written out in the program.
fn literal(term: &Term<'_>) -> Option<String> {
    let parse::Term::Str(None, parts) = term else { return None };
    parts.iter().try_fold(String::new(), |mut text, part| {
        match part {
            StrPart::Str(some) => text.push_str(some),
            StrPart::Char(character) => text.push(*character),
            StrPart::Term(_) => return None,
        }
        Some(text)
    })
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
    fn term<'p>(&mut self, term: &Term<'p>, input: Gives, vars: &Vars<'p>) -> Gives {
        self.steps += 1;
        if self.is_any || self.steps > STEPS_MAX {
            return self.any();
        }
        match term {
            parse::Term::Id => input,
            parse::Term::Num(_) | parse::Term::Arr(None) => Gives::OTHER,
            parse::Term::Break(_) => Gives::NOTHING,
            parse::Term::Var(name) => vars.get(name).copied().unwrap_or(Gives::OTHER),
            parse::Term::Recurse => {
                self.whole(input);
                input
            }
            parse::Term::Str(_, parts) => {
                for part in parts {
                    if let StrPart::Term(term) = part {
                        self.looked_at(term, input, vars);
                    }
                }
                Gives::OTHER
            }
            parse::Term::Arr(Some(members)) => match self.term(members, input, vars).is_whole() {
                true => Gives::INSIDE,
                false => Gives::OTHER,
            },
            parse::Term::Obj(members) => self.object(members, input, vars),
            parse::Term::Neg(term) => self.looked_at(term, input, vars),
            parse::Term::Label(_, term) => self.term(term, input, vars),
            parse::Term::BinOp(left, op, right) => self.operation(left, op, right, input, vars),
            parse::Term::Fold(_, over, pattern, terms) => {
                let over = self.term(over, input, vars);
                let inner = self.bind(pattern, over, input, vars);
                self.fold(terms, input, vars, &inner)
            }
            parse::Term::TryCatch(term, catch) => {
                let gives = self.term(term, input, vars);
                let Some(catch) = catch else { return gives };
                // The message of an error may have in it what it was about.
                let is_whole = input.is_whole() || vars.values().any(|var| var.is_whole());
                let message = if is_whole { Gives::INSIDE } else { Gives::OTHER };
                gives.or(self.term(catch, message, vars))
            }
            parse::Term::IfThenElse(branches, otherwise) => {
                let mut gives = match otherwise {
                    Some(term) => self.term(term, input, vars),
                    None => input,
                };
                for (condition, term) in branches {
                    // Whether something counts as true does not look into it.
                    self.term(condition, input, vars);
                    gives = gives.or(self.term(term, input, vars));
                }
                gives
            }
            parse::Term::Path(head, path) => self.path(head, path, input, vars),
            parse::Term::Call(name, arguments) => self.call(name, arguments, input, vars),
            // There are no definitions in transforms.
            parse::Term::Def(..) => self.any(),
        }
    }

    /// Of a term whose outcome is looked at as a whole.
    fn looked_at<'p>(&mut self, term: &Term<'p>, input: Gives, vars: &Vars<'p>) -> Gives {
        let gives = self.term(term, input, vars);
        self.whole(gives);
        Gives::OTHER
    }

    /// What stands under a name in what comes in.
    fn member(&mut self, name: Option<String>, of: Gives) -> Gives {
        if !of.is_whole() {
            return of;
        }
        match name {
            Some(name) => self.names.insert(name),
            None => return self.any(),
        };
        let inside = if of.has(Gives::INSIDE) { Gives::INSIDE } else { Gives::NOTHING };
        Gives::OTHER.or(inside)
    }

    fn path<'p>(
        &mut self,
        head: &Term<'p>,
        path: &Path<Term<'p>>,
        input: Gives,
        vars: &Vars<'p>,
    ) -> Gives {
        let mut gives = self.term(head, input, vars);
        for (part, _) in &path.0 {
            match part {
                Part::Index(index) => {
                    self.looked_at(index, input, vars);
                    gives = self.member(literal(index), gives);
                }
                Part::Range(from, to) => {
                    for bound in [from, to].into_iter().flatten() {
                        self.looked_at(bound, input, vars);
                    }
                    self.whole(gives);
                }
            }
        }
        gives
    }

    fn object<'p>(
        &mut self,
        members: &[(Term<'p>, Option<Term<'p>>)],
        input: Gives,
        vars: &Vars<'p>,
    ) -> Gives {
        let mut is_whole = false;
        for (key, value) in members {
            let gives = match (key, value) {
                (key, Some(value)) => {
                    self.looked_at(key, input, vars);
                    self.term(value, input, vars)
                }
                // `{$name}`
                (parse::Term::Var(_), None) => self.term(key, input, vars),
                // `{name}`
                (key, None) => {
                    self.looked_at(key, input, vars);
                    self.member(literal(key), input)
                }
            };
            is_whole |= gives.is_whole();
        }
        if is_whole { Gives::INSIDE } else { Gives::OTHER }
    }

    fn operation<'p>(
        &mut self,
        left: &Term<'p>,
        op: &BinaryOp<&'p str>,
        right: &Term<'p>,
        input: Gives,
        vars: &Vars<'p>,
    ) -> Gives {
        let gives = self.term(left, input, vars);
        match op {
            BinaryOp::Pipe(None) => self.term(right, gives, vars),
            BinaryOp::Pipe(Some(pattern)) => {
                let inner = self.bind(pattern, gives, input, vars);
                self.term(right, input, &inner)
            }
            BinaryOp::Comma | BinaryOp::Alt => gives.or(self.term(right, input, vars)),
            BinaryOp::And | BinaryOp::Or => {
                self.term(right, input, vars);
                Gives::OTHER
            }
            BinaryOp::Update if matches!(left, parse::Term::Id) => self.term(right, input, vars),
            // `. += {a: 1}` is `. + {a: 1}`.
            BinaryOp::Math(math @ (Math::Add | Math::Mul))
            | BinaryOp::UpdateMath(math @ (Math::Add | Math::Mul))
                if matches!((op, left), (BinaryOp::Math(_), _) | (_, parse::Term::Id)) =>
            {
                let other = self.term(right, input, vars);
                // Of two items, what both have is multiplied, whatever its name is.
                self.is_any |= *math == Math::Mul && gives.is_whole() && other.is_whole();
                let both = gives.or(other);
                // An object and something else than an object make no object.
                let is_plain = gives.has(Gives::OTHER) && other.has(Gives::OTHER);
                if both.is_whole() && !is_plain { Gives(both.0 & !Gives::OTHER.0) } else { both }
            }
            BinaryOp::Math(_) | BinaryOp::Cmp(_) => {
                self.whole(gives);
                self.looked_at(right, input, vars)
            }
            BinaryOp::Assign | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt => {
                // An item that is put into another one, or in the place of it, is seen as a whole.
                self.whole(gives);
                self.looked_at(right, input, vars);
                input
            }
            BinaryOp::Update => {
                self.whole(gives);
                self.looked_at(right, gives, vars);
                input
            }
        }
    }

    /// The variables inside of a pattern that takes apart what `gives` says.
    fn bind<'p>(
        &mut self,
        pattern: &Pattern<&'p str>,
        gives: Gives,
        input: Gives,
        vars: &Vars<'p>,
    ) -> Vars<'p> {
        let mut bound = vars.clone();
        let mut open = vec![(pattern, gives)];
        while let Some((pattern, gives)) = open.pop() {
            match pattern {
                Pattern::Var(name) => {
                    bound.insert(name, gives);
                }
                Pattern::Arr(members) => {
                    self.whole(gives);
                    open.extend(members.iter().map(|member| (member, gives)));
                }
                Pattern::Obj(members) => {
                    for (key, member) in members {
                        self.looked_at(key, input, vars);
                        open.push((member, self.member(literal(key), gives)));
                    }
                }
            }
        }
        bound
    }

    /// `reduce` and `foreach`: how they begin, what becomes of it in each round, and what they give.
    fn fold<'p>(
        &mut self,
        terms: &[Term<'p>],
        input: Gives,
        vars: &Vars<'p>,
        inner: &Vars<'p>,
    ) -> Gives {
        let [begin, update, project @ ..] = terms else { return self.any() };
        let mut gives = self.term(begin, input, vars);
        for _ in 0..ROUNDS {
            gives = gives.or(self.term(update, gives, inner));
        }
        for term in project {
            gives = self.term(term, gives, inner);
        }
        gives
    }

    /// Filters that do not look at all that comes in. All others do.
    fn call<'p>(
        &mut self,
        name: &str,
        arguments: &[Term<'p>],
        input: Gives,
        vars: &Vars<'p>,
    ) -> Gives {
        match (name, arguments) {
            ("empty" | "error", []) => Gives::NOTHING,
            ("true" | "false" | "null" | "nan" | "infinite" | "not" | "type", []) => Gives::OTHER,
            ("error", [message]) => {
                self.term(message, input, vars);
                Gives::NOTHING
            }
            ("select", [condition]) => {
                self.term(condition, input, vars);
                input
            }
            ("has", [name]) if literal(name).is_some() => {
                self.member(literal(name), input);
                Gives::OTHER
            }
            ("any" | "all", [of, condition]) => {
                let of = self.term(of, input, vars);
                self.term(condition, of, vars);
                Gives::OTHER
            }
            ("isempty", [of]) => {
                self.term(of, input, vars);
                Gives::OTHER
            }
            ("first" | "last", [of]) => self.term(of, input, vars),
            ("limit" | "skip" | "nth", [count, of]) => {
                self.looked_at(count, input, vars);
                self.term(of, input, vars)
            }
            ("add", [of]) => self.looked_at(of, input, vars),
            ("del", [path]) => {
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
            let looks = Looks::of(program);
            let found = looks.of_condition().map(|names| names.iter().cloned().collect::<Vec<_>>());
            let found = found.map_or("any".to_owned(), |names| names.join(" "));
            assert_eq!(found, expected, "{program}");
        }
        // Loops in loops have an end.
        let deep = (0..60).fold(".".to_owned(), |deep, _| format!("reduce .a[] as $x (.; {deep})"));
        for program in ANY.into_iter().chain([deep.as_str()]) {
            assert_eq!(Looks::of(program).of_condition(), None, "{program}");
        }
        // What a change leaves out only sometimes is looked at. A condition leaves nothing out.
        for program in [
            "if .a then . else {id} end",
            "., {id}",
            "[.]",
            "{x: .} | .x.hold",
            "try error catch .",
        ] {
            let looks = Looks::of(program);
            assert!(looks.of_condition().is_some(), "{program}");
            assert_eq!(looks.of_change(), None, "{program}");
        }
        assert!(Looks::of("{id, a: .b}").of_change().is_some());
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
    fn left_out(value: jaq_json::Val, name: &str) -> jaq_json::Val {
        match value {
            jaq_json::Val::Obj(members) => {
                let is_other =
                    |key: &jaq_json::Val| *key != jaq_json::Val::utf8_str(name.to_owned());
                let kept = members.iter().filter(|(key, _)| is_other(key));
                jaq_json::Val::obj(kept.map(|(k, v)| (k.clone(), v.clone())).collect())
            }
            other => other,
        }
    }
}
