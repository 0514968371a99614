//! The arguments that are common to all subcommands that switch or end a migration.

use std::time::Duration;

use clap::Args;

use crate::migrate::context::Context;
use crate::migrate::failure::Result;
use crate::migrate::switch::verb_hooks;
use client::exit::Exit;

/// The default of `--timeout`, in seconds.
pub(crate) const TIMEOUT_SECONDS: u64 = 60;

/// Arguments of a switch.
#[derive(Clone, Debug, Args)]
pub(crate) struct SwitchArguments {
    /// The migration
    pub(crate) name: String,
    /// Seconds after which a switch that is not committed is rolled back
    #[arg(long, default_value_t = TIMEOUT_SECONDS)]
    pub(crate) timeout: u64,
    /// Report what would happen, without changing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl SwitchArguments {
    /// Runs a subcommand with the hooks before and after it. A dry run has no hooks.
    pub(crate) async fn with_hooks(
        &self,
        context: &Context,
        verb: &str,
        ended: Result<Exit>,
    ) -> Result<Exit> {
        if self.dry_run {
            return ended;
        }
        verb_hooks::after(context, verb, &self.name, ended).await
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
