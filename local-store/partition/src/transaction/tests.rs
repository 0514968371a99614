//! Tests that transactions are atomic and applied once, and that the sum of a bank's accounts never
//! changes.

use std::collections::{BTreeMap, BTreeSet};

use expression::{ExpressionKind, Placeholders, parse_condition, parse_update};
use model::limits::REQUEST_TOKEN_LIFE_MS;
use model::{AttributeValue, EpochMillis, Number};
use proptest::prelude::*;

use crate::machine::tests::{Replica, START, add, create, entry, put};
use crate::*;

const ACCOUNTS: u8 = 6;
const OPENING: u8 = 10;

fn amount(value: u8) -> Placeholders {
    let value = AttributeValue::N(Number::from(u64::from(value)));
    Placeholders::new(None, Some(BTreeMap::from([(":v".to_owned(), value)]))).unwrap()
}

fn operation(command: Command) -> Write {
    match command {
        Command::Write(write) => *write,
        other => panic!("{other:?} is not a write"),
    }
}

/// Returns a transfer from one account to another, with the condition that the first account has
/// enough money.
fn transfer(from: u8, to: u8, value: u8, token: Option<String>) -> Command {
    let mut take = operation(add(from, 0));
    take.action = WriteAction::Update(parse_update("SET n = n - :v", &mut amount(value)).unwrap());
    take.condition = Some(Box::new(
        parse_condition("n >= :v", ExpressionKind::Condition, &mut amount(value)).unwrap(),
    ));
    let operations = vec![take, operation(add(to, value))];
    Command::Transaction(Box::new(Transaction { token, operations }))
}

fn opened() -> Replica {
    let mut replica = Replica::new();
    let mut commands = vec![create()];
    commands.extend((0..ACCOUNTS).map(|account| put(account, OPENING, None)));
    replica.apply(1, &entry(0, commands));
    replica
}

fn balances(replica: &Replica) -> Vec<u64> {
    let balance = |item: &model::Item| match item.get("n") {
        Some(AttributeValue::N(number)) => number.to_string().parse().unwrap(),
        other => panic!("{other:?} is not a balance"),
    };
    replica.items().iter().map(balance).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Method: each entry has a group of transfers. Some are cancelled for lack of money, and some
    /// are sent twice with a token. The sum must stay constant, and the stream must have each
    /// change once.
    #[test]
    fn transfers_keep_the_sum(groups in prop::collection::vec(prop::collection::vec(
        (0..ACCOUNTS, 1..ACCOUNTS, 1u8..15, prop::option::of(0u8..3)), 1..5), 1..15)) {
        let mut replica = opened();
        let mut changes = usize::from(ACCOUNTS);
        for (index, group) in (2u64..).zip(groups) {
            let commands: Vec<Command> = group
                .into_iter()
                .map(|(from, step, value, token)| {
                    transfer(from, (from + step) % ACCOUNTS, value, token.map(|t| t.to_string()))
                })
                .collect();
            let before = balances(&replica);
            let replies = replica.apply(index, &entry(0, commands));
            let made = replies
                .iter()
                .filter(|reply| matches!(reply, Reply::Transacted { repeated: false, .. }))
                .count();
            changes += 2 * made;
            if made == 0 {
                prop_assert_eq!(&balances(&replica), &before);
            }
            let total: u64 = balances(&replica).iter().sum();
            prop_assert_eq!(total, u64::from(ACCOUNTS) * u64::from(OPENING));
        }
        let records: Vec<_> = replica.records().into_iter().flat_map(|(_, r)| r).collect();
        let places: BTreeSet<_> = records.iter().map(|r| r.sequence_number.to_string()).collect();
        prop_assert_eq!((records.len(), places.len()), (changes, changes));
    }
}

#[test]
fn a_failed_operation_changes_nothing_and_every_reason_is_returned() {
    let mut replica = opened();
    let before = replica.storage.0.clone();
    let mut poor = operation(add(1, 0));
    poor.condition = Some(Box::new(
        parse_condition("n > :v", ExpressionKind::Condition, &mut amount(OPENING)).unwrap(),
    ));
    let mut wrong = operation(add(2, 0));
    wrong.action = WriteAction::Update(parse_update("SET n = p + :v", &mut amount(1)).unwrap());
    let operations = vec![operation(add(0, 5)), poor, wrong, operation(add(7, 1))];
    let transaction = Transaction { token: Some("t".to_owned()), operations };
    let replies = replica.apply(2, &entry(0, vec![Command::Transaction(Box::new(transaction))]));
    let [Reply::TransactionCancelled(reasons)] = &replies[..] else { panic!("{replies:?}") };
    assert!(
        matches!(
            &reasons[..],
            [
                CancellationReason::None,
                CancellationReason::ConditionFailed { item: Some(_) },
                CancellationReason::Invalid(text),
                CancellationReason::None,
            ] if text.contains("incorrect data type")
        ),
        "{reasons:?}"
    );
    // Only the state machine's own state, under the key `[1]`, has changed. The token can be
    // reused.
    let without_state = |mut all: BTreeMap<Vec<u8>, Vec<u8>>| {
        all.remove(&vec![1]);
        all
    };
    assert_eq!(without_state(replica.storage.0.clone()), without_state(before));
}

#[test]
fn a_token_applies_a_transaction_once_in_ten_minutes() {
    let mut replica = opened();
    let token = || Some("token".to_owned());
    let send = |replica: &mut Replica, index, at, value| {
        let replies = replica.apply(index, &entry(at, vec![transfer(0, 1, value, token())]));
        replies.into_iter().next().unwrap()
    };
    let Reply::Transacted { writes: first, repeated: false } = send(&mut replica, 2, 0, 3) else {
        panic!("the transaction was not applied")
    };
    let Reply::Transacted { writes: second, repeated: true } = send(&mut replica, 3, 5, 3) else {
        panic!("the token was not remembered")
    };
    let sizes = |all: &[Written]| {
        all.iter().map(|written| (written.old_bytes, written.new_bytes)).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&first), sizes(&second));
    assert_eq!(send(&mut replica, 4, 5, 4), Reply::TokenMismatch);
    // Tokens survive a restart.
    replica.machine = Machine::open(&replica.storage).unwrap();
    let life = REQUEST_TOKEN_LIFE_MS;
    assert!(matches!(send(&mut replica, 5, life - 1, 3), Reply::Transacted { repeated: true, .. }));
    assert_eq!(balances(&replica)[..2].iter().sum::<u64>(), 2 * u64::from(OPENING));
    let has_expired =
        |replica: &Replica, at| has_expired_tokens(&replica.storage, EpochMillis(START + at));
    assert_eq!(has_expired(&replica, life - 1), Ok(false));
    assert_eq!(has_expired(&replica, life), Ok(true));
    // After ten minutes the token can be reused, even if the state machine has not deleted it yet.
    assert!(matches!(send(&mut replica, 6, life, 4), Reply::Transacted { repeated: false, .. }));
    assert_eq!(has_expired(&replica, life), Ok(false));
    let forgotten = replica.apply(7, &entry(2 * life, vec![Command::ForgetTokens]));
    assert_eq!(forgotten, [Reply::Done { more: false }]);
    assert_eq!(replica.storage.0.keys().filter(|key| matches!(key[0], 10 | 11)).count(), 0);
}
