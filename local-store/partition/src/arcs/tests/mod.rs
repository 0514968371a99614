//! Several arcs together: duplicated, late and reordered deliveries, transactions that lose their
//! coordinator at any step, splits and restarts. The tests check the invariants once everything is
//! delivered.

mod definitions;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use model::encoding::decode_item;
use model::{
    EpochMillis, Item, KeyAttribute, KeyAttributeType, KeySchema, KeyValue, Number, PrimaryKey,
    StreamViewType,
};
use proptest::prelude::*;

use crate::storage::testing::MapStorage;
use crate::*;

const START: u64 = 1_800_000_000_000;
const ARCS: u32 = 3;
const TABLE: TableId = TableId(1);

/// One arc: a state machine, its storage, and the index of its last entry.
struct Arc {
    machine: Machine,
    storage: MapStorage,
    index: u64,
}

/// A ring of arcs that a test drives by hand.
struct Ring {
    arcs: Vec<Arc>,
    now: u64,
    /// Deliveries that were sent before, so that the test can repeat them.
    sent: Vec<(ArcId, DeliveryBatch)>,
    ids: u128,
}

impl Ring {
    fn new() -> Self {
        let arc = |arc| {
            let storage = MapStorage::default();
            let position = ArcPosition { arc: ArcId(arc), arcs: ARCS };
            Arc { machine: Machine::open_in(position, &storage).unwrap(), storage, index: 0 }
        };
        Self { arcs: (0..ARCS).map(arc).collect(), now: START, sent: Vec::new(), ids: 0 }
    }

    fn arc(&self, arc: ArcId) -> &Arc {
        &self.arcs[arc.0 as usize]
    }

    fn apply(&mut self, arc: ArcId, command: Command) -> Reply {
        let now = EpochMillis(self.now);
        let arc = &mut self.arcs[arc.0 as usize];
        arc.index += 1;
        let entry = Entry { now, commands: vec![command] };
        let (batch, mut replies) = arc.machine.apply(&arc.storage, arc.index, &entry).unwrap();
        arc.storage.apply(batch);
        replies.remove(0)
    }

    fn restart(&mut self, arc: ArcId) {
        let position = ArcPosition { arc, arcs: ARCS };
        let arc = &mut self.arcs[arc.0 as usize];
        arc.machine = Machine::open_in(position, &arc.storage).unwrap();
    }

    fn definition(&self) -> Table {
        self.arc(ArcId(0)).machine.catalogue().get(TABLE).unwrap().definition()
    }

    fn adopt(&mut self, arc: u32) -> Reply {
        let table = self.definition();
        let placement = table.placement.clone();
        self.apply(ArcId(arc), Command::AdoptTable { table: Box::new(table), placement })
    }

    fn create(&mut self, indexes: Vec<IndexDefinition>) {
        let reply = self.apply(
            ArcId(0),
            Command::CreateTable(Box::new(CreateTable {
                name: "t".into(),
                key_schema: schema("p"),
                billing: Billing::OnDemand,
                deletion_protection: false,
                stream: Some((StreamViewType::NewAndOldImages, "label".to_owned())),
                indexes,
                options: Vec::new(),
            })),
        );
        assert!(matches!(reply, Reply::Table(_)));
        for arc in 1..ARCS {
            self.adopt(arc);
        }
    }

    /// Returns the table in the ring's merged catalogue.
    fn table(&self) -> Table {
        let parts: Vec<_> =
            self.arcs.iter().map(|arc| std::sync::Arc::clone(arc.machine.catalogue())).collect();
        Table::clone(Catalogue::merge(&parts).get(TABLE).unwrap())
    }

    fn home(&self, name: u8) -> ArcId {
        self.definition().arc_of(&key(name))
    }

    fn write(&mut self, name: u8, group: Option<u8>) -> Reply {
        let arc = self.home(name);
        self.apply(arc, Command::Write(Box::new(put(name, group))))
    }

    fn deliver(&mut self, from: ArcId, to: ArcId, trim: bool) {
        let Some(batch) = read_delivery_batch(&self.arc(from).storage, from, to).unwrap() else {
            return;
        };
        self.sent.push((to, batch.clone()));
        let reply = self.apply(to, Command::Receive(Box::new(batch)));
        let Reply::Received { upto } = reply else { panic!("{reply:?}") };
        if trim {
            self.apply(from, Command::TrimOutbox { to, upto });
        }
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            let mut quiet = true;
            for from in (0..ARCS).map(ArcId) {
                for (to, _) in unacknowledged_changes(&self.arc(from).storage, ARCS).unwrap() {
                    quiet = false;
                    self.deliver(from, to, true);
                }
                self.apply(from, Command::StepIndexes { table: TABLE });
                self.apply(from, Command::StepSplits { table: TABLE });
            }
            for arc in 1..ARCS {
                self.adopt(arc);
            }
            let table = self.table();
            let is_working = |i: &SecondaryIndex| i.status != IndexStatus::Active;
            let splitting = table.partitions.iter().any(|p| p.split.is_some());
            if quiet && !splitting && !table.indexes.iter().any(is_working) {
                return;
            }
        }
        panic!("the ring does not become idle");
    }

    fn items(&self) -> BTreeMap<u8, Item> {
        let mut items = BTreeMap::new();
        for arc in &self.arcs {
            let table = arc.machine.catalogue().get(TABLE).unwrap();
            let range = ItemRange::Tokens(TokenRange::ALL);
            read_encoded_items(&arc.storage, table, &range, None, true, &mut |item| {
                let item = decode_item(item).unwrap();
                assert!(items.insert(name_of(&item), item).is_none(), "an item is in two arcs");
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        items
    }

    /// Returns the entries of an index as (group, name), sorted, and checks that each is in the arc
    /// of its group.
    fn entries(&self, index: IndexNumber) -> Vec<(u64, u8)> {
        let mut entries = Vec::new();
        for (place, arc) in self.arcs.iter().enumerate() {
            let table = arc.machine.catalogue().get(TABLE).unwrap();
            let range = ItemRange::Tokens(TokenRange::ALL);
            let mut own = 0;
            read_encoded_entries(&arc.storage, table, index, &range, None, true, &mut |entry| {
                let item = decode_item(entry).unwrap();
                let group = number(&item, "g").unwrap();
                let at = table.placement.arc_of(group_key(u8::try_from(group).unwrap()).token());
                assert_eq!(at.0 as usize, place);
                entries.push((group, name_of(&item)));
                own += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
            let counted = read_index_statistics(&arc.storage, table, index).unwrap();
            assert_eq!(counted.items, own);
        }
        entries.sort_unstable();
        entries
    }

    /// Checks that the index matches the items, and that the statistics of every part of the table
    /// are right.
    fn check(&self) {
        let items = self.items();
        for index in &self.table().indexes {
            let group = |(name, item): (&u8, &Item)| Some((number(item, "g")?, *name));
            let mut expected: Vec<_> = items.iter().filter_map(group).collect();
            expected.sort_unstable();
            assert_eq!(self.entries(index.number), expected);
        }
        let mut counted = 0;
        for arc in &self.arcs {
            let table = arc.machine.catalogue().get(TABLE).unwrap();
            counted += read_statistics(&arc.storage, table).unwrap().items;
        }
        assert_eq!(counted, items.len() as u64);
    }

    fn prepare(
        &mut self,
        operations: &[Write],
        deciding_arc: ArcId,
    ) -> (TransactionId, Vec<(ArcId, u32)>, bool) {
        self.ids += 1;
        let id = TransactionId(self.ids);
        let mut parts: BTreeMap<ArcId, Vec<Write>> = BTreeMap::new();
        for write in operations {
            let arc = self.definition().arc_of(&write.key);
            parts.entry(arc).or_default().push(write.clone());
        }
        let began = EpochMillis(self.now);
        let (mut participants, mut all) = (Vec::new(), true);
        for (arc, operations) in parts {
            participants.push((arc, u32::try_from(operations.len()).unwrap()));
            let prepare = Prepare { id, deciding_arc, began, operations, return_items: false };
            let reply = self.apply(arc, Command::Prepare(Box::new(prepare)));
            all &= matches!(reply, Reply::Prepared { .. });
        }
        (id, participants, all)
    }

    fn decide(&mut self, id: TransactionId, began: u64, home: ArcId, commit: bool) -> bool {
        let decide = Decide {
            id,
            began: EpochMillis(began),
            commit,
            token: None,
            sizes: Vec::new(),
            participants: Vec::new(),
        };
        match self.apply(home, Command::Decide(Box::new(decide))) {
            Reply::Decided { commit } => commit,
            other => panic!("{other:?}"),
        }
    }

    fn finish(&mut self, id: TransactionId, began: u64, part: (ArcId, u32), commit: bool) {
        let finish = Finish { id, began: EpochMillis(began), commit, operations: part.1 };
        self.apply(part.0, Command::Finish(finish));
    }

    /// Recovers abandoned transactions as the server does.
    fn recover(&mut self) {
        for arc in (0..ARCS).map(ArcId) {
            for (id, prepared) in read_prepared(&self.arc(arc).storage).unwrap() {
                let commit = self.decide(id, prepared.began.0, prepared.deciding_arc, false);
                let part = (arc, u32::try_from(prepared.items.len()).unwrap());
                self.finish(id, prepared.began.0, part, commit);
            }
        }
    }
}

fn schema(partition: &str) -> KeySchema {
    let attribute_type = if partition == "p" { KeyAttributeType::S } else { KeyAttributeType::N };
    KeySchema { partition: KeyAttribute { name: partition.to_owned(), attribute_type }, sort: None }
}

fn by_group() -> IndexDefinition {
    IndexDefinition {
        name: "by-group".to_owned(),
        kind: IndexKind::Global,
        key_schema: schema("g").into(),
        projection: IndexProjection::All,
        throughput: None,
    }
}

fn key(name: u8) -> PrimaryKey {
    PrimaryKey { partition: KeyValue::S(format!("k{name}")), sort: None }
}

fn group_key(group: u8) -> PrimaryKey {
    PrimaryKey { partition: KeyValue::N(Number::from(u64::from(group))), sort: None }
}

fn name_of(item: &Item) -> u8 {
    match item.get("p") {
        Some(model::AttributeValue::S(text)) => text[1..].parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn number(item: &Item, attribute: &str) -> Option<u64> {
    match item.get(attribute)? {
        model::AttributeValue::N(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Puts an item of a group, or deletes it.
fn put(name: u8, group: Option<u8>) -> Write {
    let action = match group {
        Some(group) => {
            let item = Item::new().with("p", format!("k{name}").as_str());
            WriteAction::put(
                &item.with("g", model::AttributeValue::N(Number::from(u64::from(group)))),
            )
        }
        None => WriteAction::Delete,
    };
    Write {
        table: TABLE,
        key: key(name),
        action,
        condition: None,
        return_old: false,
        return_new: false,
        return_on_failure: false,
    }
}

/// Returns the names of items in at least two different arcs.
fn names_apart(ring: &Ring) -> Vec<u8> {
    let mut by_arc: BTreeMap<ArcId, u8> = BTreeMap::new();
    for name in 0..60 {
        by_arc.entry(ring.home(name)).or_insert(name);
    }
    assert!(by_arc.len() >= 2);
    by_arc.into_values().collect()
}

#[derive(Clone, Debug)]
enum Step {
    Write(u8, Option<u8>),
    /// A delivery: the sender, the receiver, and whether the acknowledged changes are trimmed.
    Deliver(u8, u8, bool),
    /// An earlier delivery that arrives again.
    Repeat(usize),
    Restart(u8),
    CreateIndex,
    Adopt(u8),
    Build(u8),
    Split(u8),
    /// A transaction over these names, and the number of its steps that run before its coordinator
    /// is lost.
    Transact(Vec<u8>, Option<u8>, usize),
    Recover,
    Pass,
}

fn any_step() -> impl Strategy<Value = Step> {
    let group = || prop::option::weighted(0.8, 0u8..6);
    prop_oneof![
        8 => (0u8..20, group()).prop_map(|(name, group)| Step::Write(name, group)),
        4 => (0u8..3, 0u8..3, any::<bool>()).prop_map(|(a, b, trim)| Step::Deliver(a, b, trim)),
        3 => any::<usize>().prop_map(Step::Repeat),
        1 => (0u8..3).prop_map(Step::Restart),
        1 => Just(Step::CreateIndex),
        2 => (1u8..3).prop_map(Step::Adopt),
        2 => (0u8..3).prop_map(Step::Build),
        1 => any::<u8>().prop_map(Step::Split),
        3 => (prop::collection::btree_set(0u8..20, 2..5), group(), 0usize..9)
            .prop_map(|(names, group, steps)| Step::Transact(names.into_iter().collect(), group, steps)),
        1 => Just(Step::Recover),
        1 => Just(Step::Pass),
    ]
}

fn remember(model: &mut BTreeMap<u8, u8>, name: u8, group: Option<u8>) {
    match group {
        Some(group) => model.insert(name, group),
        None => model.remove(&name),
    };
}

fn carry_out(ring: &mut Ring, model: &mut BTreeMap<u8, u8>, step: Step) {
    match step {
        Step::Write(name, group) => match ring.write(name, group) {
            Reply::Written(_) => {
                remember(model, name, group);
            }
            Reply::Conflict => {}
            other => panic!("{other:?}"),
        },
        Step::Deliver(from, to, trim) => ring.deliver(ArcId(from.into()), ArcId(to.into()), trim),
        Step::Repeat(place) => {
            if !ring.sent.is_empty() {
                let (to, batch) = ring.sent[place % ring.sent.len()].clone();
                ring.apply(to, Command::Receive(Box::new(batch)));
            }
        }
        Step::Restart(arc) => ring.restart(ArcId(arc.into())),
        Step::CreateIndex => {
            if ring.definition().indexes.is_empty() {
                let mut update = UpdateTable::of_options(TABLE, Vec::new());
                update.indexes = vec![IndexChange::Create(by_group())];
                ring.apply(ArcId(0), Command::UpdateTable(Box::new(update)));
            }
        }
        Step::Adopt(arc) => {
            ring.adopt(arc.into());
        }
        Step::Build(arc) => {
            ring.apply(ArcId(arc.into()), Command::StepIndexes { table: TABLE });
        }
        Step::Split(place) => {
            let table = ring.table();
            let partition = table.partitions[usize::from(place) % table.partitions.len()].number;
            let at = SplitPoint::Half;
            let split = Command::SplitPartition { table: TABLE, partition, at };
            ring.apply(ArcId::of_number(partition.0), split);
        }
        Step::Transact(names, group, steps) => transact(ring, model, &names, group, steps),
        Step::Recover => ring.recover(),
        Step::Pass => ring.now += 7_000,
    }
}

/// Runs the first steps of a transaction. After the decision, the transaction is committed,
/// although its items are locked in every arc.
fn transact(
    ring: &mut Ring,
    model: &mut BTreeMap<u8, u8>,
    names: &[u8],
    group: Option<u8>,
    steps: usize,
) {
    let operations: Vec<Write> = names.iter().map(|name| put(*name, group)).collect();
    let (home, began) = (ring.home(names[0]), ring.now);
    let (id, participants, prepared) = ring.prepare(&operations, home);
    if !prepared {
        for part in participants {
            ring.finish(id, began, part, false);
        }
        return;
    }
    if steps == 0 || !ring.decide(id, began, home, true) {
        return;
    }
    for name in names {
        remember(model, *name, group);
    }
    for part in participants.into_iter().take(steps - 1) {
        ring.finish(id, began, part, true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: in the end, the items equal the items of a plain map, each item is in its arc, and the
    /// index matches the items. This holds for any loss, delay, duplicate or restart.
    #[test]
    fn an_idle_ring_is_consistent(
        begins_with_index in any::<bool>(),
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        let mut ring = Ring::new();
        ring.create(if begins_with_index { vec![by_group()] } else { Vec::new() });
        let mut model = BTreeMap::new();
        for step in steps {
            carry_out(&mut ring, &mut model, step);
        }
        ring.recover();
        ring.settle();
        ring.check();
        let found: BTreeMap<u8, u8> = ring
            .items()
            .into_iter()
            .map(|(name, item)| (name, u8::try_from(number(&item, "g").unwrap()).unwrap()))
            .collect();
        prop_assert_eq!(found, model);
        prop_assert!(!ring.table().is_behind);
    }
}

#[test]
fn partitions_and_shards_are_spread_and_unique() {
    let mut ring = Ring::new();
    ring.create(Vec::new());
    let table = ring.table();
    assert_eq!(table.partitions.len(), 4);
    let arcs: Vec<u32> =
        table.partitions.iter().map(|partition| ArcId::of_number(partition.number.0).0).collect();
    assert_eq!(arcs, [1, 2, 0, 1]);
    let shards = &table.streams[0].shards;
    let ids: std::collections::BTreeSet<&str> = shards.iter().map(|s| s.id.as_str()).collect();
    assert_eq!((shards.len(), ids.len()), (4, 4));
    for (place, partition) in table.partitions.iter().enumerate() {
        let range = table.token_range(place).unwrap();
        assert_eq!(table.placement.arc_of(range.first), ArcId::of_number(partition.number.0));
        assert_eq!(table.placement.arc_of(range.last), ArcId::of_number(partition.number.0));
    }
}

#[test]
fn a_locked_item_conflicts_until_its_transaction_ends() {
    for commit in [true, false] {
        let mut ring = Ring::new();
        ring.create(Vec::new());
        let names = names_apart(&ring);
        let operations: Vec<Write> = names.iter().map(|name| put(*name, Some(1))).collect();
        let (home, began) = (ring.home(names[0]), ring.now);
        let (id, participants, prepared) = ring.prepare(&operations, home);
        assert!(prepared);
        for arc in 0..ARCS {
            ring.restart(ArcId(arc));
        }
        for name in &names {
            assert_eq!(ring.write(*name, Some(2)), Reply::Conflict);
            let transaction = Transaction { token: None, operations: vec![put(*name, Some(3))] };
            let arc = ring.home(*name);
            assert_eq!(
                ring.apply(arc, Command::Transaction(Box::new(transaction))),
                Reply::TransactionCancelled(vec![CancellationReason::Conflict])
            );
        }
        assert!(ring.items().is_empty());
        assert_eq!(ring.decide(id, began, home, commit), commit);
        // The first decision is final.
        assert_eq!(ring.decide(id, began, home, !commit), commit);
        for part in &participants {
            ring.finish(id, began, *part, commit);
            ring.finish(id, began, *part, commit);
        }
        assert_eq!(ring.items().len(), if commit { names.len() } else { 0 });
        for name in names {
            assert!(matches!(ring.write(name, Some(2)), Reply::Written(_)));
        }
    }
}

#[test]
fn late_messages_change_nothing() {
    let mut ring = Ring::new();
    ring.create(Vec::new());
    let names = names_apart(&ring);
    let operations: Vec<Write> = names.iter().map(|name| put(*name, Some(1))).collect();
    let (deciding_arc, began) = (ring.home(names[0]), ring.now);
    let (id, participants, _) = ring.prepare(&operations, deciding_arc);
    ring.decide(id, began, deciding_arc, true);
    for part in &participants {
        ring.finish(id, began, *part, true);
    }
    for name in &names {
        ring.write(*name, None);
    }
    // The same prepare command arrives two more times: soon afterwards, and after the transaction
    // was forgotten.
    for pass in [0, 120_000] {
        ring.now += pass;
        for arc in 0..ARCS {
            ring.apply(ArcId(arc), Command::CompleteTransaction { id, began: EpochMillis(began) });
            ring.apply(ArcId(arc), Command::ForgetTransactions);
        }
        for (arc, _) in &participants {
            let own =
                operations.iter().filter(|write| ring.definition().arc_of(&write.key) == *arc);
            let prepare = Prepare {
                id,
                deciding_arc,
                began: EpochMillis(began),
                operations: own.cloned().collect(),
                return_items: false,
            };
            let reply = ring.apply(*arc, Command::Prepare(Box::new(prepare)));
            assert_eq!(reply, Reply::TransactionOver);
        }
        assert!(ring.items().is_empty());
    }
    // After a transaction was forgotten, a delayed coordinator cannot commit it.
    assert!(!ring.decide(id, began, deciding_arc, true));
    for arc in &ring.arcs {
        assert!(!has_old_transactions(&arc.storage, EpochMillis(began)).unwrap());
    }
}
