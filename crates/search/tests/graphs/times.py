"""Measures FAISS's HNSW graph with the vectors of the example `measure`: the processor time of a build and of a query,
memory, and the share of the nearest ten that is found. One thread. A build takes 40 candidates, the default of FAISS,
and then 100, the number of this crate.

usage: times.py FOLDER   (needs faiss-cpu and numpy)
"""

import os
import pathlib
import sys
import time

import faiss
import numpy

NEIGHBOURS, NEAREST, ROUNDS = 16, 10, 9
BUILD_CANDIDATES = [40, 100]

faiss.omp_set_num_threads(1)
folder = pathlib.Path(sys.argv[1])


def vectors(name, dimensions):
    # The order of normalised vectors by their distance is that by their cosine.
    found = numpy.fromfile(folder / name, dtype=numpy.float32).reshape(-1, dimensions)
    faiss.normalize_L2(found)
    return found


def bytes_in_use():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def recall(found, exact):
    hits = sum(len(set(row) & set(wanted)) for row, wanted in zip(found.tolist(), exact.tolist()))
    return hits / exact.size


exact = numpy.fromfile(folder / "exact.u32", dtype=numpy.uint32).reshape(-1, NEAREST)
dimensions = (folder / "queries.f32").stat().st_size // 4 // len(exact)
base, queries = vectors("base.f32", dimensions), vectors("queries.f32", dimensions)


def build(candidates):
    before, start = bytes_in_use(), time.thread_time()
    index = faiss.IndexHNSWFlat(dimensions, NEIGHBOURS)
    index.hnsw.efConstruction = candidates
    index.add(base)
    seconds = time.thread_time() - start
    print(f"FAISS, {len(base)} x {dimensions}, {candidates} candidates of a build: {1e6 * seconds / len(base):.0f} us "
          f"a vector, {(bytes_in_use() - before) / len(base):.0f} bytes a vector", flush=True)
    return index


def search(index):
    for candidates in [16, 24, 32, 48, 64, 96, 128, 192, 256]:
        index.hnsw.efSearch = candidates
        best = float("inf")
        for _ in range(ROUNDS):
            start = time.thread_time()
            _, found = index.search(queries, NEAREST)
            best = min(best, time.thread_time() - start)
        print(f"  {candidates} candidates: {1e6 * best / len(queries):.0f} us, recall {recall(found, exact):.4f}",
              flush=True)


# All indexes stay in memory: one that took the place of another one would seem to need none.
indexes = [build(candidates) for candidates in BUILD_CANDIDATES]
for index, candidates in zip(indexes, BUILD_CANDIDATES):
    print(f"queries of the graph with {candidates} candidates of a build:")
    search(index)
