"""docs/tutorial.md: its program runs, and prints what the comments say."""

import os
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tutorial.md"


def test_the_program_prints_what_its_comments_say():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program = "".join(blocks)
    expected = re.findall(r"print\(.*\)  # (.*)$", program, re.MULTILINE)
    assert len(blocks) >= 6 and len(expected) >= 10
    program = program.replace("mongodb://127.0.0.1:27017", os.environ["MONGODB_URI"])
    with redirect_stdout(StringIO()) as printed:
        exec(compile(program, PAGE.name, "exec"), {"__name__": "tutorial"})
    assert printed.getvalue().splitlines() == expected
