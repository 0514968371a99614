//! Tests that acquiring a poisoned lock panics, or aborts in a process that called
//! `abort_when_poisoned`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use super::*;

/// Environment variable that makes a child process acquire a poisoned lock and abort.
const ENDS: &str = "LOCKS_TEST_ENDS";

struct Half;

/// Poisons a lock: a thread panics while it holds the lock.
fn poison<G>(take: impl FnOnce() -> G) {
    let holder = catch_unwind(AssertUnwindSafe(|| {
        let _guard = take();
        panic!("the first panic");
    }));
    assert!(holder.is_err());
}

fn message_of(take: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(take)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_poisoned_lock_panics_and_names_itself() {
    let (mutex, rw) = (Mutex::new(Half), RwLock::new(Half));
    poison(|| mutex.lock());
    poison(|| rw.write());
    for message in [
        message_of(|| drop(mutex.lock())),
        message_of(|| drop(mutex.try_lock())),
        message_of(|| drop(rw.read())),
        message_of(|| drop(rw.write())),
    ] {
        assert!(message.contains("tests::Half") && message.contains("tests.rs:"), "{message}");
    }
    assert!(message_of(|| _ = mutex.into_inner()).contains("tests::Half"));
}

#[test]
fn a_panicking_thread_can_still_lock_in_drop() {
    struct Guarded<'m>(&'m Mutex<u32>);
    impl Drop for Guarded<'_> {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }
    let mutex = Mutex::new(0);
    poison(|| {
        let guarded = Guarded(&mutex);
        (mutex.lock(), guarded)
    });
}

#[test]
fn locks_lock_and_conditions_wake() {
    let (mutex, condition) = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            *mutex.lock() = 1;
            condition.notify_all();
        });
        let mut value = mutex.lock();
        while *value == 0 {
            value = condition.wait(value);
        }
        assert!(mutex.try_lock().is_none(), "another guard holds the lock");
    });
    assert_eq!(mutex.into_inner(), 1);
}

/// Runs in the child process that the next test starts. Does nothing without the environment
/// variable.
#[test]
fn aborts_by_a_poisoned_lock() {
    if std::env::var_os(ENDS).is_some() {
        abort_when_poisoned();
        let mutex = Mutex::new(Half);
        poison(|| mutex.lock());
        drop(mutex.lock());
    }
}

#[test]
fn a_poisoned_lock_aborts_a_process_that_asked_for_it() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::aborts_by_a_poisoned_lock", "--nocapture"])
        .env(ENDS, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("the lock of `locks::tests::Half`"), "{told}");
    assert!(told.contains("the process aborts; restart the process"), "{told}");
}
