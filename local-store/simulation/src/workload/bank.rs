//! Clients that move money between accounts. Accounts of the first kind are items, which
//! transactions change. Accounts of the second kind are attributes of one ledger, which conditional
//! updates change. The sums must stay constant.

use model::Item;

use super::{Client, item, number, update, write};
use crate::checkers::linearizability::State;
use crate::checkers::serializability::Transaction;
use crate::history::{Sum, WriteOutcome, state_of};
use crate::request::{Answer, Change, Endpoint, Expression, Request};

/// The number of accounts of each kind.
const ACCOUNTS: usize = 5;
/// The initial balance of each account.
const BALANCE: u64 = 100;
/// The item with all accounts of the second kind.
const LEDGER: &str = "ledger";
/// The names of the two sums, one for each kind of account.
const BY_TRANSACTION: &str = "accounts";
const BY_CONDITION: &str = "ledger";

fn account(number: usize) -> String {
    format!("account-{number}")
}

/// Creates the accounts. Called before any other client uses them.
pub async fn open<E: Endpoint>(client: &mut Client<E>) {
    let mut items: Vec<(String, Item)> =
        (0..ACCOUNTS).map(|n| (account(n), Item::new().with("n", number(BALANCE)))).collect();
    let ledger =
        (0..ACCOUNTS).fold(Item::new(), |item, n| item.with(&format!("a{n}"), number(BALANCE)));
    items.push((LEDGER.to_owned(), ledger));
    for (key, attributes) in items {
        let id = client.history.write_id();
        let mut whole = item(&key, id);
        whole.extend(attributes.0);
        let writes = vec![write(&key, Change::Put(whole))];
        let call = client.history.tick();
        let fate = client.retry_transaction(format!("open-{id}"), writes).await;
        client.history.wrote(id, &key, fate);
        record(client, call, fate, Vec::new(), vec![(key, id)]);
    }
    let total = i128::from(BALANCE) * i128::try_from(ACCOUNTS).unwrap_or_default();
    let mut records = client.history.records();
    records.expected_sums.insert(BY_TRANSACTION, total);
    records.expected_sums.insert(BY_CONDITION, total);
}

/// Runs until the signal to end.
pub async fn run<E: Endpoint>(mut client: Client<E>) {
    while client.pause().await {
        let from = client.choose(ACCOUNTS - 1);
        let to = (from + 1 + client.choose(ACCOUNTS - 2)) % ACCOUNTS;
        let amount = 1 + client.random.next_u64() % 30;
        match client.choose(99) {
            0..45 => transact(&mut client, from, to, amount).await,
            45..75 => update_ledger(&client, from, to, amount).await,
            _ => read_sum(&client).await,
        }
    }
}

async fn transact<E: Endpoint>(client: &mut Client<E>, from: usize, to: usize, amount: u64) {
    let ids = [client.history.write_id(), client.history.write_id()];
    let move_by =
        |sign: &str| Expression::new(&format!(", n = n {sign} :x")).with(":x", number(amount));
    let enough = Some(Expression::new("n >= :x").with(":x", number(amount)));
    let [taken, given] = ids;
    let writes = vec![
        update(&account(from), taken, &move_by("-"), enough),
        update(&account(to), given, &move_by("+"), None),
    ];
    let call = client.history.tick();
    let fate = if client.choose(1) == 0 {
        client.retry_transaction(format!("transfer-{taken}"), writes).await
    } else {
        match client.send(Request::Transact(None, writes)).await {
            Ok(Answer::Transacted) => WriteOutcome::Acknowledged,
            Ok(Answer::Cancelled) => WriteOutcome::NotApplied,
            Ok(other) => return client.record_defect("a transfer", &other),
            Err(fate) => fate,
        }
    };
    client.history.wrote(taken, &account(from), fate);
    client.history.wrote(given, &account(to), fate);
    let stored = vec![(account(from), taken), (account(to), given)];
    record(client, call, fate, Vec::new(), stored);
}

fn record<E: Endpoint>(
    client: &Client<E>,
    call: u64,
    fate: WriteOutcome,
    reads: Vec<(String, State)>,
    writes: Vec<(String, u64)>,
) {
    let end = Some(client.history.tick());
    client.history.transacted(Transaction { call, end, reads, writes }, fate);
}

async fn update_ledger<E: Endpoint>(client: &Client<E>, from: usize, to: usize, amount: u64) {
    let id = client.history.write_id();
    let text = format!(", a{from} = a{from} - :x, a{to} = a{to} + :x");
    let change = Expression::new(&text).with(":x", number(amount));
    let enough = Expression::new(&format!("a{from} >= :x")).with(":x", number(amount));
    let call = client.history.tick();
    let mut reads = Vec::new();
    let fate = match client.send(Request::Write(update(LEDGER, id, &change, Some(enough)))).await {
        Ok(Answer::Written { old, new }) => {
            add_up_ledger(client, new.as_ref());
            // An answer over a socket has only the new item.
            reads.extend(old.as_ref().map(|old| (LEDGER.to_owned(), state_of(Some(old)))));
            WriteOutcome::Acknowledged
        }
        Ok(Answer::ConditionFailed(found)) => {
            add_up_ledger(client, found.as_ref());
            WriteOutcome::NotApplied
        }
        Ok(other) => return client.record_defect("an update of the ledger", &other),
        Err(fate) => fate,
    };
    client.history.wrote(id, LEDGER, fate);
    record(client, call, fate, reads, vec![(LEDGER.to_owned(), id)]);
}

async fn read_sum<E: Endpoint>(client: &Client<E>) {
    let mut keys: Vec<String> = (0..ACCOUNTS).map(account).collect();
    keys.push(LEDGER.to_owned());
    let call = client.history.tick();
    match client.send(Request::Get { keys: keys.clone(), strong: true }).await {
        Ok(Answer::Items(mut items)) => {
            let states = items.iter().map(|item| state_of(item.as_ref()));
            let reads = keys.into_iter().zip(states).collect();
            record(client, call, WriteOutcome::Acknowledged, reads, Vec::new());
            add_up_ledger(client, items.pop().flatten().as_ref());
            let balance = |item: Option<Item>| amount_of(item.as_ref(), "n");
            let total = items.into_iter().map(balance).sum();
            add(client, BY_TRANSACTION, total);
        }
        Ok(other) => client.record_defect("a read of all accounts", &other),
        Err(_) => {}
    }
}

fn amount_of(item: Option<&Item>, attribute: &str) -> i128 {
    item.and_then(|item| item.get(attribute)?.as_number()?.to_i128()).unwrap_or_default()
}

fn add_up_ledger<E: Endpoint>(client: &Client<E>, ledger: Option<&Item>) {
    let total = (0..ACCOUNTS).map(|n| amount_of(ledger, &format!("a{n}"))).sum();
    add(client, BY_CONDITION, total);
}

fn add<E: Endpoint>(client: &Client<E>, what: &'static str, total: i128) {
    let at = client.history.tick();
    client.history.records().sums.push(Sum { what, total, at });
}
