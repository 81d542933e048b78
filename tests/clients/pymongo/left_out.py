"""A plugin of pytest for the driver's own tests: the tests in `left_out.txt` must fail, or are skipped."""

from pathlib import Path

import pytest

# What a line begins with: a test that must fail, because the server answers otherwise; and one that cannot run here.
FAILS, SKIPPED = "fails", "skipped"


def left_out(posture: str) -> dict[str, tuple[str, str]]:
    """By the name of a test, a class or a file: how it is left out, and why.

    A line is `how posture name`, with the posture `all` for both. The reason is the comment above it.
    """
    rows, reason = {}, ""
    for line in Path(__file__).with_name("left_out.txt").read_text().splitlines():
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line:
            how, where, name = line.split(maxsplit=2)
            if how not in (FAILS, SKIPPED):
                raise pytest.UsageError(f"left_out.txt: {line}")
            if where in ("all", posture):
                rows[name] = (how, reason)
    return rows


def pytest_addoption(parser):
    parser.addoption("--posture", default="all")


def pytest_collection_modifyitems(config, items):
    rows = left_out(config.getoption("--posture"))
    used = set()
    for item in items:
        parts = item.nodeid.split("::")
        for length in range(1, len(parts) + 1):
            name = "::".join(parts[:length])
            if name in rows:
                used.add(name)
                how, reason = rows[name]
                mark = pytest.mark.skip(reason=reason) if how == SKIPPED else pytest.mark.xfail(reason=reason, strict=True)
                item.add_marker(mark)
    files = {item.nodeid.split("::")[0] for item in items}
    unknown = [name for name in rows if name not in used and name.split("::")[0] in files]
    if unknown:
        raise pytest.UsageError(f"left_out.txt names no test: {', '.join(unknown)}")
