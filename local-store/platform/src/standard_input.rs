//! The end of standard input, by which a process learns that the one that started it is gone.
//!
//! A process that is killed ends none of those that it started, but the system closes its pipes.

use std::io::{self, Read};
use std::thread;

use tokio::sync::oneshot;

/// Resolves when standard input has ended or cannot be read; what it holds is discarded.
///
/// The thread that reads it lasts as long as the process: a read of a pipe cannot be cancelled, and a
/// thread of the runtime would delay the end of the process until the pipe has ended.
pub async fn ended() {
    let (tell, told) = oneshot::channel();
    let reader = thread::Builder::new().name("standard-input".to_owned()).spawn(move || {
        read_to_end(io::stdin().lock());
        let _ = tell.send(());
    });
    match reader {
        // An error means that the thread has ended, which it does at the end of the input alone.
        Ok(_) => drop(told.await),
        Err(error) => {
            tracing::warn!(%error, "cannot watch standard input: this process goes on when it ends");
            std::future::pending().await
        }
    }
}

/// Reads until there is nothing more, in one small piece of memory.
fn read_to_end(mut input: impl Read) {
    let mut piece = [0; 512];
    loop {
        match input.read(&mut piece) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_comes_when_the_other_end_of_the_pipe_is_closed() {
        let (reader, mut writer) = io::pipe().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let reading = thread::spawn(move || {
            read_to_end(reader);
            tell.send(()).unwrap();
        });
        writer.write_all(&[b'x'; 2000]).unwrap();
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        drop(writer);
        told.recv_timeout(Duration::from_secs(20)).unwrap();
        reading.join().unwrap();
    }
}
