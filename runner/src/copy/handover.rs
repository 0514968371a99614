//! The handover of the source: the moment from which it refuses writes permanently.
//!
//! A local store in one process refuses them itself (`/_weir/handover`). Before any other source, the
//! operator stops the programs that write.

use std::io::BufRead as _;

use http::Method;
use serde_json::{Value, json};

use client::aws_host::is_on_aws;
use client::endpoint::admin;
use client::failure::{Context, Failure, Result, fatal};
use client::output::say;

const PATH: &str = "handover";

/// The state of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handover {
    /// The source accepts writes, and cannot refuse them.
    Impossible,
    /// The source accepts writes.
    Open,
    /// The source refuses writes, because it was copied to this endpoint.
    To(String),
}

impl Handover {
    /// Reads the state of a source.
    ///
    /// # Errors
    /// When the source does not answer.
    pub(super) async fn read(source: &str) -> Result<Self> {
        if is_on_aws(source) {
            return Ok(Self::Impossible);
        }
        match admin(Method::GET, source, PATH, &Value::Null).await {
            Ok(state) => {
                let to = state.get("to").and_then(Value::as_str);
                Ok(to.map_or(Self::Open, |to| Self::To(to.to_owned())))
            }
            // Another DynamoDB endpoint has no such path, and a store of several processes refuses it.
            Err(Failure::Fatal(_)) => Ok(Self::Impossible),
            Err(failure) => Err(failure),
        }
    }

    /// Makes the source refuse writes, or waits until the operator has stopped the programs that write.
    ///
    /// # Errors
    /// When the source refuses it, or standard input ends before the operator has confirmed.
    pub(super) async fn carry_out(self, source: &str, target: &str) -> Result<()> {
        match self {
            Self::To(_) => Ok(()),
            Self::Open => {
                let body = json!({ "to": target });
                let done = admin(Method::POST, source, PATH, &body).await;
                done.context(|| "the source did not hand over").map(drop)
            }
            Self::Impossible => {
                say(&format!(
                    "`{source}` cannot refuse writes: stop all programs that write to it, then press Enter"
                ));
                let line = tokio::task::spawn_blocking(|| {
                    let mut line = String::new();
                    std::io::stdin().lock().read_line(&mut line)
                });
                match line.await.map_err(Failure::fatal)?? {
                    0 => Err(fatal!(
                        "standard input ended: confirm with Enter that no program writes to `{source}`"
                    )),
                    _ => Ok(()),
                }
            }
        }
    }
}
