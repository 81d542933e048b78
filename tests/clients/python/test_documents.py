"""The documents: the program of docs/tutorial.md prints what its comments say, and the server accepts every command line.

The examples for mongosh are run by ../mongosh/examples.js.
"""

import os
import re
import shlex
import subprocess
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TUTORIAL = ROOT / "docs" / "tutorial.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_program_prints_what_its_comments_say():
    blocks = re.findall(r"^```python\n(.*?)^```", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    program = "".join(blocks)
    expected = re.findall(r"print\(.*\)  # (.*)$", program, re.MULTILINE)
    assert len(blocks) >= 6 and len(expected) >= 10
    program = program.replace("mongodb://127.0.0.1:27017", os.environ["MONGODB_URI"])
    with redirect_stdout(StringIO()) as printed:
        exec(compile(program, TUTORIAL.name, "exec"), {"__name__": "tutorial"})
    assert printed.getvalue().splitlines() == expected


def command_lines():
    """The lines in fenced code that start the server, as lists of arguments."""
    for page in PAGES:
        fenced = False
        for line in map(str.strip, page.read_text().splitlines()):
            if line.startswith("```"):
                fenced = not fenced
            elif fenced and line.startswith("mayflydb "):
                words = shlex.split(line.removesuffix("&"), comments=True)
                yield pytest.param(words[1:], id=f"{page.name}: {' '.join(words[1:3])}")


COMMAND_LINES = list(command_lines())


def test_there_are_command_lines():
    assert len(COMMAND_LINES) >= 7


@pytest.mark.parametrize("arguments", COMMAND_LINES)
def test_the_server_accepts_the_command_line(arguments, tmp_path):
    # With --print-config all options are read and checked, and nothing is started. Tasks that read no configuration have
    # their own options, which are read before --help is.
    tasks = ("backup", "restore", "check", "copy", "status", "completions", "manual")
    last = "--help" if arguments[0] in tasks else "--print-config"
    command = [os.environ["MAYFLYDB_BIN"], *(word for word in arguments if word != last), last]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAYFLYDB_")}
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout
