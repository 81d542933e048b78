"""A plugin of pytest for the driver's own tests: the tests in `left_out.txt` must fail, or are skipped."""

from pathlib import Path

import pytest

# What a line begins with: a test that must fail, because the server answers otherwise; and one that cannot run here.
FAILS, SKIPPED = "fails", "skipped"


def left_out(posture: str) -> dict[str, tuple[str, str]]:
    """Per test, or class or file of tests: how it is left out, and why. Lines are `how [posture] name`, below a reason (`#`)."""
    rows, reason = {}, ""
    for line in Path(__file__).with_name("left_out.txt").read_text().splitlines():
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line:
            how, *postures, name = line.split(maxsplit=1) if line.count("|") == 0 else split(line)
            if how not in (FAILS, SKIPPED):
                raise pytest.UsageError(f"left_out.txt: {line}")
            if not postures or posture in postures:
                rows[name] = (how, reason)
    return rows


def split(line: str) -> list[str]:
    """A line for one posture: `how posture | name`."""
    before, name = line.split("|", 1)
    return [*before.split(), name.strip()]


def pytest_addoption(parser):
    parser.addoption("--posture", default="server")


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
