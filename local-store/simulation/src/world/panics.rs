//! A task of the store that panics is a defect, also when everything seems to go on without it.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// What panicked on this thread, while somebody wants to know.
    static CAUGHT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Does some work and gives what panicked meanwhile on this thread, in tasks that nobody waits for.
/// What panics elsewhere is printed as always.
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
    fn a_panic_of_a_task_is_told() {
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
