"""A running `weir up` for a test: its own folder, free ports, clients, and ways to disturb it."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.request

import boto3

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
WEIR = pathlib.Path(os.environ.get("WEIR_BINARY", ROOT / "target" / "debug" / "weir")).absolute()


def template_text(folder):
    """Returns the project's template, for a file in a folder of its own. If a `weir` is given, the functions
    next to it run, and nothing is built: the paths of packages in the text do not exist then."""
    package = folder / "none" if "WEIR_BINARY" in os.environ else ROOT / "functions" / "processor"
    text = (ROOT / "template.yaml").read_text(encoding="utf-8")
    return text.replace("CodeUri: functions/processor/", f"CodeUri: {package}/")


def project_template(folder):
    """Returns the path of the project's template; a copy in a folder of its own if a `weir` is given."""
    if "WEIR_BINARY" not in os.environ:
        return ROOT / "template.yaml"
    path = folder / "template.yaml"
    path.write_text(template_text(folder), encoding="utf-8")
    return path


class Running:
    """`weir up` in a temporary folder; ends it on exit. `template` creates a template in a folder."""

    def __init__(self, *flags, template=None):
        self.flags = flags
        self.template = template or project_template
        self.folder = tempfile.TemporaryDirectory(prefix="weir-test-")
        self.path = pathlib.Path(self.folder.name)

    def __enter__(self):
        self.start()
        return self

    def start(self):
        command = [WEIR, "up", "--template", self.template(self.path), "--port", "0", "--s3-port", "0", *self.flags]
        # A killed process leaves this file.
        running = self.path / ".weir" / "running.json"
        running.unlink(missing_ok=True)
        self.log = open(self.path / "weir.log", "a")
        self.process = subprocess.Popen(command, cwd=self.path, stderr=self.log, stdout=self.log)
        self.wait_until(lambda: running.exists() or self.process.poll() is not None, 300, "weir up to start")
        if self.process.poll() is not None:
            raise SystemExit((self.path / "weir.log").read_text())
        endpoints = json.loads(running.read_text())
        self.dynamodb_url, self.s3_url = endpoints["dynamodb"], endpoints["s3"]
        self.dynamodb = self.client("dynamodb", self.dynamodb_url)
        self.s3 = self.client("s3", self.s3_url)

    @staticmethod
    def client(service, url):
        return boto3.client(
            service, endpoint_url=url, region_name="us-east-1",
            aws_access_key_id="local", aws_secret_access_key="local",
        )

    def __exit__(self, kind, error, trace):
        self.stop()
        if kind is not None:
            print((self.path / "weir.log").read_text()[-8000:])
        self.folder.cleanup()

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=180)
        self.log.close()

    def load(self, *arguments):
        subprocess.run(
            [WEIR, "load", "--endpoint", self.dynamodb_url, *map(str, arguments)], cwd=self.path, check=True
        )

    def advance_clock(self, seconds):
        return self.clock({"advance_ms": seconds * 1000})

    def clock(self, change):
        """Freezes the store's clock, advances it, or resumes it; returns the resulting time."""
        body = json.dumps(change).encode()
        request = urllib.request.Request(f"{self.dynamodb_url}/_weir/clock", data=body, method="POST")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def kill_function(self, binary):
        """Ends every process of a function that this `weir up` started, as kill -9 does."""
        killed = 0
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            except OSError:
                continue
            if fields["Name"].strip() == binary and int(fields["PPid"]) == self.process.pid:
                os.kill(int(status.parent.name), signal.SIGKILL)
                killed += 1
        return killed

    @staticmethod
    def wait_until(condition, seconds, what, pause=0.1):
        deadline = time.monotonic() + seconds
        while not (result := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds} s for {what}")
            time.sleep(pause)
        return result
