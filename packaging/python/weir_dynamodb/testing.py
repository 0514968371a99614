"""Runs a store, or all of a template, for the duration of a test.

For pytest there are fixtures (`weir_dynamodb.pytest_plugin`); with other runners, use these classes in `with`.
"""

import http.client
import json
import re
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

from weir_dynamodb import programs
from weir_dynamodb.process import KEYS, Process, WeirError, environment

__all__ = ["Clock", "Store", "Up", "WeirError"]

# How long a store may take to listen, on a busy machine.
STORE_SECONDS = 30
# How long one admin request may take: a sweep deletes up to ten million items.
REQUEST_SECONDS = 60
# How long one `weir` command may take: `status --exit-code` gives up after 15 s.
COMMAND_SECONDS = 60

# How many lines of a function's log a failed `settle` shows: the last few attempts with their errors.
LOG_LINES = 20

# States of a mapping in `weir status` that waiting does not change.
NEVER = ("ended", "gap", "does not run here")


def _admin(endpoint, method, path, body=None):
    """Sends a request of docs/reference/admin.md; raises with the store's reason if it is refused."""
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=REQUEST_SECONDS)
    try:
        connection.request(method, f"/_weir/{path}", None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise WeirError(f"{method} /_weir/{path}: {answer.status} {text}")
    return json.loads(text)


class Clock:
    """The clock of a store. It never runs backwards: an advance lasts as long as the store."""

    def __init__(self, endpoint):
        self._endpoint = endpoint

    def _change(self, change):
        return _time(_admin(self._endpoint, "POST", "clock", change))

    def now(self):
        """Returns the store's time."""
        return _time(_admin(self._endpoint, "GET", "clock"))

    def advance(self, **duration):
        """Advances the clock immediately, for example by `advance(hours=26)`, and returns the store's time."""
        millis = timedelta(**duration) // timedelta(milliseconds=1)
        return self._change({"advance_ms": millis})

    def freeze(self):
        """Stops the clock."""
        return self._change({"freeze": True})

    def resume(self):
        """Resumes the clock."""
        return self._change({"resume": True})

    def sweep(self):
        """Deletes every item that has expired by the store's time, and returns how many."""
        return _admin(self._endpoint, "POST", "ttl/sweep")["expired"]


def _time(clock):
    return datetime.fromtimestamp(clock["now_ms"] / 1000, timezone.utc)


class Store(Process):
    """A separate `local-store` on a free port, with one replica."""

    def __init__(self):
        arguments = ["--data", "data", "--port", "0", "--replicas", "1", "--region", "us-east-1"]
        super().__init__("local-store", arguments)
        listening = re.compile(r"listening on (http://\S+)")
        found = self.wait_until(lambda: listening.search(self.log()), STORE_SECONDS)
        self.endpoint = found[1]
        self.clock = Clock(self.endpoint)

    @property
    def environment(self):
        """The environment variables by which AWS SDKs find the store."""
        names = ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_DYNAMODB_STREAMS")
        return {**KEYS, **dict.fromkeys(names, self.endpoint)}

    def empty(self):
        """Deletes all tables, and returns how many."""
        return _admin(self.endpoint, "DELETE", "tables")["deleted"]


class Up(Process):
    """A `weir up` of a template on free ports, with an empty store.

    `seconds` is how long it may take to start: functions in Rust are compiled the first time.
    """

    def __init__(self, template, parameters=None, seconds=600):
        template = Path(template).resolve(strict=True)
        values = [f"--parameter={name}={value}" for name, value in (parameters or {}).items()]
        ports = ["--port", "0", "--s3-port", "0", "--invoke-port", "0"]
        super().__init__("weir", ["--template", template, *values, "up", *ports])
        running = self.folder / ".weir" / "running.json"
        self.wait_until(running.exists, seconds)
        told = json.loads(running.read_text())
        self.dynamodb, self.s3, self.invoke = told["dynamodb"], told["s3"], told["lambda"]
        self.clock = Clock(self.dynamodb)

    @property
    def environment(self):
        """The environment variables by which AWS SDKs find the store, the S3 endpoint and the Invoke API."""
        return {
            **KEYS,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb,
            "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": self.dynamodb,
            "AWS_ENDPOINT_URL_S3": self.s3,
            "AWS_ENDPOINT_URL_LAMBDA": self.invoke,
        }

    def weir(self, *arguments):
        """Runs a `weir` command against this `weir up`, and returns a `subprocess.CompletedProcess`."""
        return subprocess.run(
            [programs.path("weir"), *arguments], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, cwd=self.folder, env=environment(), timeout=COMMAND_SECONDS, check=False,
        )

    def settle(self, seconds=60):
        """Waits until the functions have processed every record, including the records of their own writes.

        Raises `WeirError` with the status and the last lines of the functions' logs when a record was
        discarded, a mapping does not run, or time is over.
        """
        deadline = time.monotonic() + seconds
        while (status := self.weir("status", "--exit-code", "--output", "json")).returncode != 0:
            told = status.stdout + status.stderr
            if status.returncode != 3:
                raise WeirError(f"`weir status` failed:\n{told}")
            if any(row["discarded"] or row["state"] in NEVER for row in json.loads(status.stdout)):
                raise WeirError(f"at least one record was not processed:\n{told}{self._log_ends()}")
            if time.monotonic() > deadline:
                raise WeirError(f"records still wait after {seconds} s:\n{told}{self._log_ends()}")
            time.sleep(0.05)

    def _log_ends(self):
        """Returns the last lines of each function's log, because this folder is deleted when the test ends."""
        texts = []
        for file in sorted((self.folder / ".weir" / "up" / "logs").glob("*.log")):
            lines = file.read_text(errors="replace").splitlines()[-LOG_LINES:]
            texts.append("\n".join([f"the last lines of {file.stem}:", *lines, ""]))
        return "".join(texts)
