"""A program that a test starts: waits until it is ready, and ensures that it ends.

Its standard input is a pipe that this process holds. The system closes the pipe when this process
ends, even if it is killed, and the program then stops (`--end-with-stdin`).
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from weir_dynamodb import programs

# How long a program may take to shut down before it is killed: an invocation may be in progress.
STOP_SECONDS = 10
# The number of bytes from the end of a log that an error shows: the last lines say why a program exited.
TAIL_BYTES = 4000
# Variables of the user that would change a program's behavior, or direct it to AWS.
HIDDEN = ("AWS_", "LOCAL_STORE_", "WEIR_")
# The variables that every AWS SDK needs; the local endpoints accept any keys.
KEYS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class WeirError(Exception):
    """A failure, with the end of the program's log."""


def environment():
    """Returns the environment of this process without the variables in `HIDDEN`."""
    return {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}


class Process:
    """A running program with its own folder, which is removed when the program stops."""

    def __init__(self, name, arguments):
        self._temporary = tempfile.TemporaryDirectory(prefix="weir-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self._log = self.folder / "log"
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                [programs.path(name), *arguments, "--end-with-stdin"],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder, env=environment(),
            )

    @property
    def id(self):
        """The process id."""
        return self._child.pid

    def log(self):
        """Returns the output of the program so far."""
        return self._log.read_text(errors="replace")

    def wait_until(self, found, seconds):
        """Returns the first true value of `found()`; raises when the program ends or time is over."""
        deadline = time.monotonic() + seconds
        while not (value := found()):
            if (code := self._child.poll()) is not None:
                self._fail(f"the program exited with {code}")
            if time.monotonic() > deadline:
                self._fail(f"the program is not ready after {seconds} s")
            time.sleep(0.01)
        return value

    def _fail(self, what):
        tail = self.log()[-TAIL_BYTES:]
        self.stop()
        raise WeirError(f"{what}; its log ends:\n{tail}")

    def stop(self):
        """Ends the program in order, or kills it, and removes its folder."""
        self._child.stdin.close()
        # A forked child of the test process may still hold the other end of standard input.
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._temporary.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
