//! A proxy for a node's peer port, so that the connection from one node to another can be cut.
//!
//! A cut connection either breaks immediately, as when a process ends, or becomes silent, as when a
//! cable is pulled. In a silent connection, bytes wait until the connection is restored or closed.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The state of a proxied connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Connections are open.
    Open,
    /// Connections break, and new connections are refused.
    Broken,
    /// Connections stay open, but no bytes pass in either direction.
    Silent,
}

/// A proxy for the connections from one node to another.
#[derive(Debug)]
pub struct Proxy {
    /// The address of the proxy, to which the other node connects.
    pub address: SocketAddr,
    state: Arc<watch::Sender<LinkState>>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Listens on a free port and forwards connections to an address.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(target: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(watch::Sender::new(LinkState::Open));
        let task = tokio::spawn(serve(listener, target, Arc::clone(&state)));
        Ok(Self { address, state, task })
    }

    /// Opens or cuts the connections.
    pub fn set(&self, way: LinkState) {
        self.state.send_replace(way);
    }
}

async fn serve(listener: TcpListener, target: SocketAddr, way: Arc<watch::Sender<LinkState>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((from, _)) = listener.accept().await else { return };
        if *way.borrow() != LinkState::Broken {
            connections.spawn(pass(from, target, way.subscribe()));
        }
    }
}

async fn pass(from: TcpStream, target: SocketAddr, mut way: watch::Receiver<LinkState>) {
    let Ok(to) = TcpStream::connect(target).await else { return };
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let ((from_reader, from_writer), (to_reader, to_writer)) = (from.into_split(), to.into_split());
    let broken = way.clone();
    tokio::select! {
        () = copy(from_reader, to_writer, way.clone()) => {}
        () = copy(to_reader, from_writer, broken) => {}
        _ = way.wait_for(|way| *way == LinkState::Broken) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut way: watch::Receiver<LinkState>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        if way.wait_for(|way| *way != LinkState::Silent).await.is_err() {
            return;
        }
        let Some(bytes) = buffer.get(..length) else { return };
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
