"""Fixtures of several files."""

import pytest

from postgres import Postgres


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """A PostgreSQL server for the tests of a file."""
    with Postgres(tmp_path_factory.mktemp("postgres") / "log") as server:
        yield server
