"""The commands `weir` and `local-store`: each replaces the interpreter by a program of this package.

The programs are in one folder, because `weir` searches its own folder for the functions' binaries.
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
