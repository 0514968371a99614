"""The commands `weir` and `local-store`: the programs of this package in place of the interpreter.

The programs lie in one folder, because `weir` looks for the functions' binaries beside itself.
"""

import os
import sys
from pathlib import Path


def path(name):
    """Returns the path of a program of this package."""
    return Path(__file__).parent / "bin" / name


def _replace_interpreter(name):
    program = path(name)
    os.execv(program, [str(program), *sys.argv[1:]])


def weir():
    """Runs `weir` with the arguments of this process."""
    _replace_interpreter("weir")


def local_store():
    """Runs `local-store` with the arguments of this process."""
    _replace_interpreter("local-store")
