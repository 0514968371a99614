"""Runs the commands that docs/install.md records, and prints them with the seconds of this run.

    first_minute.py PAGE WHEEL FOLDER SECONDS

FOLDER is created again: afterwards it has the wheel, the environment `venv` with nothing else in it, and the file SECONDS
with the seconds of `pip install`. Each line of output that the page shows must appear; `…` in it stands for any text.
`weir up` gets free ports, because those of the page may be in use here.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

# The maximum of seconds for all commands on a busy machine; the environment takes most of it.
SECONDS_MAX = 900
STEP = re.compile(r" *[\d.]+ s  \$ (.*)")
TOTAL = re.compile(r" *[\d.]+ s  in all")
FREE_PORTS = " up --port 0 --s3-port 0 --invoke-port 0 --console-port 0"
END = "the end of a step: "


def steps(page):
    """Returns the commands of the recording, each with the lines that it shows."""
    recording = page.read_text(encoding="utf-8").split("## The first minute, recorded", 1)[1].split("```")[1]
    found = []
    for line in recording.splitlines()[1:]:
        if step := STEP.fullmatch(line):
            found.append((step[1], []))
        elif not TOTAL.fullmatch(line):
            found[-1][1].append(line.strip())
    return found


def run(shell, command):
    """Runs a command in the shell; returns its output and its seconds, or exits with the failure."""
    begun = time.monotonic()
    shell.stdin.write(f"{command.replace(' up ', FREE_PORTS + ' ')}\nprintf '\\n%s%s\\n' '{END}' $?\n")
    shell.stdin.flush()
    lines = []
    for line in shell.stdout:
        if line.startswith(END):
            if line.strip() != END + "0":
                break
            return lines, time.monotonic() - begun
        lines.append(line.rstrip("\n"))
    sys.exit(f"FAILED: `{command}`\n" + "\n".join(lines))


def is_shown(line, shown):
    return re.fullmatch(" *" + ".*".join(re.escape(part.strip()) + " *" for part in shown.split("…")), line)


def main():
    page, wheel, folder, seconds = map(Path, sys.argv[1:])
    # The commands run in a separate process group, which `finally` ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: ended by a signal"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(wheel, folder)
    python = Path(sys.executable).resolve().parent
    environment = {"HOME": str(folder), "PATH": f"{python}:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    shell = subprocess.Popen(
        ["bash"], cwd=folder, env=environment, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    limit = threading.Timer(SECONDS_MAX, os.killpg, (shell.pid, signal.SIGKILL))
    limit.start()
    try:
        total = 0
        for command, shown in steps(page):
            lines, took = run(shell, command)
            total += took
            print(f"{took:6.1f} s  $ {command}", flush=True)
            for wanted in shown:
                if not any(is_shown(line, wanted) for line in lines):
                    sys.exit(f"FAILED: `{command}` does not show `{wanted}`:\n" + "\n".join(lines))
                print(f"{'':10}{wanted}")
            if command.startswith("pip install"):
                seconds.write_text(f"{took:.0f}\n", encoding="utf-8")
        print(f"{total:6.1f} s  in all")
        run(shell, "kill %1; wait")
    finally:
        limit.cancel()
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


if __name__ == "__main__":
    main()
