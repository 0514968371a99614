//! Detection of panics. A panicking task of the store is a defect, even if the store continues.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// The panics on this thread; `None` while they are not collected.
    static CAUGHT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs some work and returns the panics on this thread during the work, including panics of detached tasks.
/// Panics on other threads are printed as usual.
pub fn watch<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let kept = CAUGHT.try_with(|caught| {
                let mut caught = caught.try_borrow_mut().ok()?;
                caught.as_mut()?.push(panic.to_string());
                Some(())
            });
            if !matches!(kept, Ok(Some(()))) {
                previous(panic);
            }
        }));
    });
    CAUGHT.set(Some(Vec::new()));
    let result = work();
    (result, CAUGHT.take().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_task_is_reported() {
        let (answer, panics) = watch(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let task = tokio::spawn(async { panic!("planted") });
                assert!(task.await.is_err());
                7
            })
        });
        assert_eq!(answer, 7);
        assert!(panics.len() == 1 && panics[0].contains("planted"), "{panics:?}");
        assert!(watch(|| ()).1.is_empty());
    }
}
