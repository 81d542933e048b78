"""Operations, each with a size. `prepare` makes the data and returns what is measured."""

import datetime
import re
from dataclasses import dataclass
from typing import Callable

from pymongo import IndexModel, UpdateOne

START = datetime.datetime(2024, 1, 1)
COUNT = [{"$group": {"_id": None, "n": {"$sum": 1}}}]


@dataclass
class Case:
    name: str
    size: int
    prepare: Callable


CASES: list[Case] = []


def case(name: str, size: int):
    def add(prepare):
        CASES.append(Case(name, size, prepare))
        return prepare

    return add


def fill(collection, number: int, document):
    for first in range(0, number, 5000):
        collection.insert_many([document(n) for n in range(first, min(number, first + 5000))])
    return collection


def numbered(n: int) -> dict:
    return {"_id": n, "a": n, "ten": n % 10}


def word(n: int) -> str:
    return f"w{n:06}"


# Updates of one document.


def update(name: str, size: int, document, change, **options):
    @case(f"update: {name}", size)
    def prepare(db, n):
        db.c.insert_one({"_id": 1, **document(n)})
        return lambda: db.c.update_one({"_id": 1}, change(n), **options)


update("$addToSet", 4000, lambda n: {"a": []}, lambda n: {"$addToSet": {"a": {"$each": list(range(n))}}})
update("$push and sort", 4000, lambda n: {"a": []}, lambda n: {"$push": {"a": {"$each": [-i for i in range(n)], "$sort": 1}}})
update("$pullAll", 4000, lambda n: {"a": list(range(n))}, lambda n: {"$pullAll": {"a": list(range(0, n, 2))}})
update("$pull", 4000, lambda n: {"a": list(range(n))}, lambda n: {"$pull": {"a": {"$in": list(range(0, n, 2))}}})
update("a.$[]", 4000, lambda n: {"a": [{"v": 0}] * n}, lambda n: {"$inc": {"a.$[].v": 1}})
update("a.$[e]", 4000, lambda n: {"a": [{"v": i} for i in range(n)]}, lambda n: {"$set": {"a.$[e].v": 0}},
       array_filters=[{"e.v": {"$gt": 5}}])
update("many new fields", 2000, lambda n: {}, lambda n: {"$set": {word(i): i for i in range(n)}})
update("many fields", 2000, lambda n: {word(i): 0 for i in range(n)}, lambda n: {"$set": {word(i): 1 for i in range(n)}})
update("many positions", 2000, lambda n: {"a": [0] * n}, lambda n: {"$inc": {f"a.{i}": 1 for i in range(n)}})
update("$rename", 1000, lambda n: {word(i): 0 for i in range(n)},
       lambda n: {"$rename": {word(i): "x" + word(i) for i in range(n)}})
update("pipeline", 2000, lambda n: {word(i): 0 for i in range(n)}, lambda n: [{"$set": {word(i): 1 for i in range(n)}}])


# Filters.


def find(name: str, size: int, number: int, condition, indexes=()):
    @case(f"find: {name}", size)
    def prepare(db, n):
        fill(db.c, number, lambda i: {"_id": i, "a": i, "b": i, "s": word(i)})
        for index in indexes:
            db.c.create_index(index)
        return lambda: list(db.c.find(condition(n)))


find("$in without an index", 2000, 1000, lambda n: {"a": {"$in": list(range(n, 0, -1))}})
find("$in", 2000, 20_000, lambda n: {"a": {"$in": list(range(n, 0, -1))}}, ["a"])
find("$nin", 2000, 20_000, lambda n: {"a": {"$nin": list(range(n, 0, -1))}}, ["a"])
find("$or of one field", 500, 2000, lambda n: {"$or": [{"a": i} for i in range(n)]}, ["a"])
find("$or of two fields", 500, 2000, lambda n: {"$or": [{"a": i, "b": i} for i in range(n)]}, [[("a", 1), ("b", 1)]])
find("$and of $ne", 500, 100, lambda n: {"$and": [{"a": {"$ne": i + 1000}} for i in range(n)]}, ["a"])
find("$nor", 500, 100, lambda n: {"$nor": [{"a": i + 1000} for i in range(n)]}, ["a"])
find("two $in", 300, 1000, lambda n: {"a": {"$in": list(range(n))}, "b": {"$in": list(range(n))}}, [[("a", 1), ("b", 1)]])
find("$in of patterns", 500, 200, lambda n: {"s": {"$in": [re.compile("^x" + word(i)) for i in range(n)]}}, ["s"])


# Expressions over an array of numbers, an array of documents and a long text.


def expression(name: str, size: int, spec):
    @case(f"expression: {name}", size)
    def prepare(db, n):
        db.c.insert_one({"a": list(range(n)), "o": [{"k": word(i), "v": i} for i in range(n)], "s": "ab" * n})
        size_of = {"$cond": [{"$isArray": "$r"}, {"$size": "$r"}, 1]}
        return lambda: list(db.c.aggregate([{"$project": {"r": spec(n)}}, {"$project": {"r": size_of}}]))


def each(number: int, body) -> dict:
    return {"$map": {"input": {"$range": [0, number]}, "in": body}}


expression("$setUnion", 4000, lambda n: {"$setUnion": ["$a", list(range(n, 2 * n))]})
expression("$setDifference", 4000, lambda n: {"$setDifference": ["$o", list(range(n))]})
expression("$arrayToObject", 4000, lambda n: {"$arrayToObject": "$o"})
expression("$arrayElemAt", 4000, lambda n: each(n, {"$arrayElemAt": ["$a", "$$this"]}))
expression("$slice", 4000, lambda n: each(n, {"$slice": ["$a", "$$this", 2]}))
expression("$in", 2000, lambda n: {"$map": {"input": "$a", "in": {"$in": ["$$this", list(range(n, 2 * n))]}}})
expression("$concatArrays", 1000, lambda n: {
    "$reduce": {"input": "$a", "initialValue": [], "in": {"$concatArrays": ["$$value", ["$$this"]]}}})
expression("$concat", 1000, lambda n: {"$reduce": {"input": "$a", "initialValue": "", "in": {"$concat": ["$$value", "x"]}}})
expression("$sortArray", 4000, lambda n: {"$sortArray": {"input": "$o", "sortBy": {"v": -1}}})
expression("$zip", 4000, lambda n: {"$zip": {"inputs": ["$a", "$o"]}})
expression("$split", 4000, lambda n: {"$split": ["$s", "b"]})
expression("$regexFindAll", 4000, lambda n: {"$regexFindAll": {"input": "$s", "regex": "b"}})
expression("$switch", 1000, lambda n: {
    "$switch": {"branches": [{"case": {"$eq": ["$_id", i]}, "then": i} for i in range(n)], "default": 0}})


# Stages.


def stage(name: str, size: int, pipeline, indexes=()):
    @case(f"stage: {name}", size)
    def prepare(db, n):
        fill(db.c, n, lambda i: {"_id": i, "a": i, "b": i * 7919 % n, "ten": i % 10, "parent": i - 1})
        fill(db.d, n, lambda i: {"_id": i, "k": i})
        for index in indexes:
            db.c.create_index(index)
        return lambda: list(db.c.aggregate(pipeline(n) + COUNT))


stage("$group", 4000, lambda n: [{"$group": {"_id": "$b", "n": {"$sum": 1}}}])
for accumulator in ({"$push": "$a"}, {"$addToSet": "$b"}, {"$median": {"input": "$b", "method": "approximate"}}):
    stage(f"$group {next(iter(accumulator))}", 4000, lambda n, it=accumulator: [{"$group": {"_id": None, "x": it}}])
stage("$group $topN", 4000, lambda n: [{
    "$group": {"_id": None, "x": {"$topN": {"n": n // 2, "sortBy": {"b": 1}, "output": "$a"}}}}])
stage("$sort", 4000, lambda n: [{"$sort": {"b": 1}}])
stage("$bucketAuto", 4000, lambda n: [{"$bucketAuto": {"groupBy": "$b", "buckets": n // 10}}])
stage("$facet", 4000, lambda n: [{"$facet": {"x": [{"$limit": n}], "y": [{"$group": {"_id": "$ten"}}]}}])
stage("$densify", 4000, lambda n: [{"$densify": {"field": "a", "range": {"step": 0.5, "bounds": "full"}}}])
stage("$fill", 4000, lambda n: [{"$fill": {"sortBy": {"a": 1}, "output": {"x": {"method": "linear"}}}}])
stage("$lookup", 1000, lambda n: [{"$lookup": {"from": "d", "localField": "b", "foreignField": "k", "as": "x"}}])
stage("$lookup by _id", 1000, lambda n: [{"$lookup": {"from": "d", "localField": "b", "foreignField": "_id", "as": "x"}}])
stage("$graphLookup", 500, lambda n: [{"$match": {"_id": n - 1}}, {"$graphLookup": {
    "from": "c", "startWith": "$parent", "connectFromField": "parent", "connectToField": "_id", "as": "x"}}])
stage("$unionWith", 2000, lambda n: [{"$unionWith": "d"}])
stage("$sample", 4000, lambda n: [{"$sample": {"size": n // 2}}])

WINDOW_FUNCTIONS = [
    {"$sum": "$b"}, {"$avg": "$b"}, {"$min": "$b"}, {"$max": "$b"}, {"$stdDevPop": "$b"}, {"$count": {}}, {"$first": "$b"},
    {"$last": "$b"}, {"$covariancePop": ["$a", "$b"]}, {"$median": {"input": "$b", "method": "approximate"}},
    {"$minN": {"n": 3, "input": "$b"}}, {"$firstN": {"n": 3, "input": "$b"}}, {"$lastN": {"n": 3, "input": "$b"}},
    {"$top": {"sortBy": {"b": 1}, "output": "$a"}}, {"$topN": {"n": 3, "sortBy": {"b": 1}, "output": "$a"}},
    {"$integral": {"input": "$b"}}, {"$derivative": {"input": "$b"}},
]  # fmt: skip
for function in WINDOW_FUNCTIONS:
    for bounds in ("documents", "range"):
        if bounds == "documents" or next(iter(function)) not in ("$first", "$last"):
            stage(f"window {next(iter(function))} by {bounds}", 2000, lambda n, it=function, by=bounds: [{"$setWindowFields": {
                "sortBy": {"a": 1}, "output": {"x": {**it, "window": {by: [-(n // 2), 0]}}}}}])


# Writes, and reads after deletions.


@case("insert with three indexes", 4000)
def insert(db, n):
    for field in "abc":
        db.c.create_index(field)
    return lambda: db.c.insert_many([{"a": i, "b": -i, "c": str(i)} for i in range(n)])


@case("insert with many indexes", 8)
def insert_with_many(db, n):
    db.c.create_indexes([IndexModel(word(i)) for i in range(min(n, 60))])
    return lambda: db.c.insert_many([{word(i): j for i in range(n)} for j in range(200)])


def over_numbers(name: str, size: int, act):
    @case(name, size)
    def prepare(db, n):
        fill(db.c, n, numbered).create_index("a")
        return lambda: act(db, n)


over_numbers("updateMany", 4000, lambda db, n: db.c.update_many({}, {"$inc": {"a": 1}}))
over_numbers("deleteMany", 4000, lambda db, n: db.c.delete_many({}))
over_numbers("validate", 4000, lambda db, n: db.validate_collection("c", full=True))
over_numbers("queue by an index", 4000, lambda db, n: [db.c.find_one_and_delete({}, sort=[("a", 1)]) for _ in range(n // 4)])
over_numbers("queue by record", 4000, lambda db, n: [db.c.find_one_and_delete({}) for _ in range(n // 4)])
over_numbers("upserts", 500, lambda db, n: db.c.bulk_write(
    [UpdateOne({"_id": -i}, {"$set": {"b": 1}}, upsert=True) for i in range(n)]))


def after_deletion(name: str, condition, act):
    @case(f"after a deletion: {name}", 20_000)
    def prepare(db, n):
        fill(db.c, n, numbered).create_index("a")
        db.c.delete_many(condition(n))
        return lambda: [act(db) for _ in range(200)]


after_deletion("the first by an index", lambda n: {"_id": {"$lt": n * 9 // 10}}, lambda db: db.c.find_one_and_delete(
    {}, sort=[("a", 1)]))
after_deletion("the last by an index", lambda n: {"_id": {"$gt": n // 10}}, lambda db: db.c.find_one({}, sort=[("a", -1)]))
after_deletion("the first record", lambda n: {"_id": {"$lt": n * 9 // 10}}, lambda db: db.c.find_one({}))


# Time series. The collection before has the same name and was dropped.


def series(name: str, size: int, measurement):
    @case(f"time series: {name}", size)
    def prepare(db, n):
        options = {"timeField": "t", "metaField": "m"}
        db.create_collection("c", timeseries=options)
        measurements = [measurement(i, n) for i in range(n)]
        db.c.insert_many(measurements)
        db.drop_collection("c")
        db.create_collection("c", timeseries=options)
        return lambda: db.c.insert_many(measurements)


def seconds(n: int) -> datetime.datetime:
    return START + datetime.timedelta(seconds=n)


series("few sources", 4000, lambda i, n: {"t": seconds(i), "m": i % 10, "v": i})
series("many sources", 2000, lambda i, n: {"t": seconds(i), "m": i, "v": i})
series("backward", 2000, lambda i, n: {"t": seconds(-3600 * i), "m": 1, "v": i})
series("random times", 4000, lambda i, n: {"t": seconds(i * 7919 % n * 60), "m": i % 3, "v": i})


# Definitions.


@case("create collections", 100)
def create(db, n):
    return lambda: [db.create_collection(word(i)) for i in range(n)]


@case("drop a database", 100)
def drop(db, n):
    for i in range(n):
        db[word(i)].insert_one({})
    return lambda: db.client.drop_database(db.name)


def build(name: str, size: int, document, key):
    @case(f"index: {name}", size)
    def prepare(db, n):
        fill(db.c, n, document)
        return lambda: db.c.create_index(key)


build("numbers", 4000, numbered, "a")
build("arrays", 400, lambda i: {"_id": i, "a": [i * 7 + j for j in range(10)]}, "a")
build("wildcard", 400, lambda i: {"_id": i, **{word(j): i for j in range(10)}}, "$**")
build("words", 1000, lambda i: {"_id": i, "t": " ".join(word((i * 31 + j) % 5000) for j in range(20))}, [("t", "text")])
build("points", 4000, lambda i: {"_id": i, "p": [i % 360 - 180, i * 7 % 170 - 85]}, [("p", "2dsphere")])


# Cursors and change streams.


over_numbers("small batches", 4000, lambda db, n: list(db.c.find().sort("ten", 1).batch_size(100)))
over_numbers("$or of two indexes", 4000, lambda db, n: list(db.c.find({"$or": [{"a": {"$gte": 0}}, {"_id": {"$gte": 0}}]})))


@case("change stream", 4000)
def change_stream(db, n):
    db.c.insert_one({"_id": -1})
    stream = db.c.watch()
    fill(db.c, n, numbered)
    return lambda: [stream.next() for _ in range(n)]
