//! The console of a `weir up`: its port, and its start once the system runs.

use ::console::context::{Context, Place};
use ::console::{Console, Settings};
use server::gate::BoundListener;

use super::{StoreChoice, UpArguments};
use client::failure::{Failure, Result, fatal};
use client::running::Running;
use local::system::System;

/// Binds the port before the build, so that a port in use is reported immediately.
///
/// # Errors
/// The chosen port is in use, or the system refuses it.
pub(super) async fn take_port(chosen: Option<u16>) -> Result<BoundListener> {
    let bound = crate::console::take_port(chosen).await;
    bound.map_err(|error| fatal!("{error}; choose a port with --console-port"))
}

/// Starts the console, and publishes its address in `running`.
///
/// # Errors
/// The system has no random numbers, or a host of --allow-host is not valid.
pub(super) fn start(
    bound: BoundListener,
    arguments: &UpArguments,
    system: &System,
    running: &mut Running,
) -> Result<Console> {
    running.console = format!("http://{}", bound.address());
    let place = Place {
        endpoint: running.store().unwrap_or_default().to_owned(),
        s3: Some(running.s3.clone()),
        own: Some(running.clone()),
        directory: None,
        chaos: system.chaos(),
        allow_writes: arguments.store == StoreChoice::Local || arguments.allow_writes,
    };
    let context = Context::new(place).map_err(Failure::fatal)?;
    let settings = Settings { bound, hosts: arguments.allow_host.clone(), context };
    let console = ::console::serve(settings).map_err(Failure::fatal)?;
    tracing::info!("console    {}   for a browser: why a function ran or did not", console.url());
    Ok(console)
}
