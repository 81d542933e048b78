"""Measures SQLite's FTS5 with the documents of the example `compare`: the processor time of a query
for the best 10 of two words."""

import pathlib
import sqlite3
import sys
import tempfile
import time

folder = pathlib.Path(sys.argv[1])
with tempfile.TemporaryDirectory(dir=folder) as scratch:
    database = sqlite3.connect(f"{scratch}/fts.db")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(words, content='')")
    with open(folder / "documents.txt", encoding="utf-8") as lines:
        rows = ((number, line) for number, line in enumerate(lines))
        database.executemany("INSERT INTO t(rowid, words) VALUES (?, ?)", rows)
    database.execute("INSERT INTO t(t) VALUES ('optimize')")
    database.commit()
    for operator in ["OR", "AND"]:
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            for rank in range(10, 210, 10):
                words = (f"w{rank} {operator} w{rank * 7}",)
                query = "SELECT rowid, rank FROM t WHERE t MATCH ? ORDER BY rank LIMIT 10"
                database.execute(query, words).fetchall()
            best = min(best, time.thread_time() - start)
        print(f"SQLite {sqlite3.sqlite_version}, a {operator} b: {best / 20 * 1e3:.2f} ms")
