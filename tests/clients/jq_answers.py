"""Compares the recorded answers of jq with those of the jq program that the PyPI package `jq` has.

`cargo test -p rules jq` compares Weir's transforms with the recordings. Each case is an expression, an
input, a line `----`, and the answer: one line of JSON per value, then `error: MESSAGE` if jq fails, or
only `not a program`. `jq_answers.py --write` records all answers again; write new cases without one.
"""

import sys
from pathlib import Path

import jq

FOLDER = Path(__file__).resolve().parents[2] / "functions/rules/testdata/jq"


def cases(text):
    """Yields the expression, the input and the answer of each case."""
    for block in text.strip("\n").split("\n\n"):
        head, _, answer = block.partition("\n----")
        expression, _, value = head.rpartition("\n")
        yield expression, value, answer.strip("\n")


def answer(expression, value):
    """Returns jq's answer, with numbers as jq formats them."""
    try:
        program = jq.compile(f"({expression}\n) | tojson")
    except ValueError:
        return "not a program"
    lines = []
    try:
        for one in program.input_text(value):
            lines.append(one)
    except ValueError as error:
        lines.append("error: " + str(error).replace("\n", " "))
    return "\n".join(lines)


def main():
    writes = sys.argv[1:] == ["--write"]
    count = different = 0
    for path in sorted(FOLDER.glob("*.txt")):
        recorded = list(cases(path.read_text(encoding="utf-8")))
        text = ""
        for expression, value, known in recorded:
            count += 1
            found = answer(expression, value)
            if found != known and not writes:
                different += 1
                print(f"{path.name}: {expression} of {value}\n  recorded: {known}\n  jq: {found}")
            text += f"{expression}\n{value}\n----\n{found}\n\n" if found else f"{expression}\n{value}\n----\n\n"
        if writes:
            path.write_text(text, encoding="utf-8")
    print(f"jq: {count} recorded answers, {different} differ")
    return 1 if different or count < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
