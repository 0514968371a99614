//! Detection of the end of standard input, which shows that the parent process has ended.
//!
//! When a process is killed, its child processes continue to run, but the system closes the pipes
//! to them.

use std::io::{self, Read};
use std::thread;

use tokio::sync::oneshot;

/// Resolves when standard input has ended or cannot be read. Discards the input.
///
/// A dedicated thread reads the input and runs until the process ends, because a read of a pipe
/// cannot be cancelled. If the read ran on a thread of the runtime, the process could not exit
/// before the pipe ends.
pub async fn ended() {
    let (tell, told) = oneshot::channel();
    let reader = thread::Builder::new().name("standard-input".to_owned()).spawn(move || {
        read_to_end(io::stdin().lock());
        let _ = tell.send(());
    });
    match reader {
        // Receiving fails only after the reader thread has ended, which happens at the end of the
        // input.
        Ok(_) => drop(told.await),
        Err(error) => {
            tracing::warn!(%error, "cannot watch standard input, so this process keeps running when standard input ends");
            std::future::pending::<()>().await;
        }
    }
}

/// Reads to the end of the input, and discards the data.
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
