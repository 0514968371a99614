//! A Lambda function that performs the action in its event. The tests of the module `function` run
//! it.
//!
//! The event is `{"do": WHAT, ...}` with WHAT one of `echo`, `sleep` (`ms`), `error` (`message`),
//! `panic`, `exit` (`code`), `print` (`line`), `large` (`bytes`), `memory` (`mb`, held for `ms`),
//! `environment` (`variable`), `start` (a process that runs for ten minutes). With `FAIL_INIT=panic` in
//! its environment, it exits before its first event. With `FAIL_INIT=hang`, it never requests an event.

use std::{env, process, time::Duration};

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    match env::var("FAIL_INIT").as_deref() {
        Ok("hang") => std::future::pending().await,
        Ok(reason) => {
            write_error("this function was told to fail");
            return Err(format!("told to fail: {reason}").into());
        }
        Err(_) => {}
    }
    lambda_runtime::run(service_fn(handle)).await
}

async fn handle(event: LambdaEvent<Value>) -> Result<Value, Error> {
    let (payload, context) = event.into_parts();
    let number = |name: &str| payload.get(name).and_then(Value::as_u64).unwrap_or_default();
    let text = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("do") {
        "echo" => Ok(json!({
            "event": payload,
            "process": process::id(),
            "request": context.request_id,
            "arn": context.invoked_function_arn,
            "deadline": context.deadline,
            "memory": context.env_config.memory,
        })),
        "sleep" => {
            tokio::time::sleep(Duration::from_millis(number("ms"))).await;
            Ok(json!({ "process": process::id() }))
        }
        "error" => Err(text("message").to_owned().into()),
        "panic" => fail(),
        "exit" => {
            write_error("leaving");
            process::exit(i32::try_from(number("code")).unwrap_or(1))
        }
        "print" => {
            write_error(text("line"));
            Ok(Value::Null)
        }
        "large" => Ok("x".repeat(usize::try_from(number("bytes")).unwrap_or_default()).into()),
        "memory" => {
            // Writing to every page makes the system allocate it.
            let held = vec![1_u8; usize::try_from(number("mb") << 20).unwrap_or_default()];
            tokio::time::sleep(Duration::from_millis(number("ms"))).await;
            Ok(json!({ "process": process::id(), "bytes": held.len() }))
        }
        "start" => {
            let started = process::Command::new("sleep").arg("600").spawn()?;
            Ok(json!({ "process": started.id() }))
        }
        "environment" => Ok(env::var(text("variable")).ok().into()),
        other => Err(format!("cannot do `{other}`").into()),
    }
}

#[expect(clippy::panic, reason = "what runs functions must survive it")]
fn fail() -> ! {
    panic!("told to panic")
}

#[expect(clippy::print_stderr, reason = "a function's standard error is its log")]
fn write_error(line: &str) {
    eprintln!("{line}");
}
