"""The document store of Haystack over this server: duplicate policies, filters, metadata, deletion, and its retrievers by
embedding and by full text, alone and in a pipeline."""

import asyncio
import os
import time
from dataclasses import replace

import pytest
from fixed_embedding import DIMENSIONS, embed, likeness
from haystack import Document, Pipeline
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret
from haystack_integrations.components.retrievers.mongodb_atlas import (
    MongoDBAtlasEmbeddingRetriever,
    MongoDBAtlasFullTextRetriever,
)
from haystack_integrations.document_stores.mongodb_atlas import MongoDBAtlasDocumentStore
from pymongo import MongoClient
from pymongo.operations import SearchIndexModel

PATIENCE = 60
# The kind of each text and its size.
TEXTS = {
    "the red pen": ("thing", 1),
    "a blue car": ("thing", 4),
    "the green tree": ("place", 5),
    "a red car": ("thing", 3),
    "the tall green house": ("place", 9),
}
VECTOR = {
    "fields": [
        {"type": "vector", "path": "embedding", "numDimensions": DIMENSIONS, "similarity": "cosine"},
        {"type": "filter", "path": "meta.kind"},
        {"type": "filter", "path": "meta.size"},
    ]
}
TEXT = {"mappings": {"dynamic": False, "fields": {"content": {"type": "string"}}}}


def document(text, kind, size):
    return Document(id=text, content=text, embedding=embed(text), meta={"kind": kind, "size": size})


def where(field, operator, value):
    return {"field": f"meta.{field}", "operator": operator, "value": value}


def several(operator, *conditions):
    return {"operator": operator, "conditions": list(conditions)}


def contents(documents):
    return [document.content for document in documents]


@pytest.fixture(scope="module")
def database():
    with MongoClient(os.environ["MONGODB_URI"]) as client:
        yield client.clients_haystack
        client.drop_database("clients_haystack")


@pytest.fixture
def store(database):
    """The store with five documents, and both of its indexes."""
    database.drop_collection("documents")
    collection = database.create_collection("documents")
    collection.create_index("id", unique=True)
    collection.create_search_indexes(
        [SearchIndexModel(VECTOR, name="near", type="vectorSearch"), SearchIndexModel(TEXT, name="words", type="search")]
    )
    deadline = time.monotonic() + PATIENCE
    while [index["queryable"] for index in collection.list_search_indexes()] != [True, True]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    made = MongoDBAtlasDocumentStore(
        mongo_connection_string=Secret.from_token(os.environ["MONGODB_URI"]),
        database_name=database.name,
        collection_name=collection.name,
        vector_search_index="near",
        full_text_search_index="words",
    )
    assert made.write_documents([document(text, *more) for text, more in TEXTS.items()]) == 5
    yield made
    made.close()


def near(store, text, **more):
    return MongoDBAtlasEmbeddingRetriever(document_store=store).run(query_embedding=embed(text), **more)["documents"]


def words(store, query, **more):
    return MongoDBAtlasFullTextRetriever(document_store=store).run(query=query, **more)["documents"]


def test_documents_are_the_same_as_they_were_written(store):
    assert store.count_documents() == 5
    (found,) = store.filter_documents(where("size", "==", 4))
    assert found == document("a blue car", "thing", 4)


def test_duplicate_policies(store):
    other = document("a blue car", "toy", 2)
    with pytest.raises(DuplicateDocumentError):
        store.write_documents([other])
    with pytest.raises(DuplicateDocumentError):
        store.write_documents([other], DuplicatePolicy.FAIL)
    kept = lambda: [(found.id, found.meta["kind"]) for found in store.filter_documents(where("size", "in", [2, 4]))]
    assert store.write_documents([other, document("a tall car", "toy", 6)], DuplicatePolicy.SKIP) == 1
    assert kept() == [("a blue car", "thing")] and store.count_documents() == 6
    assert store.write_documents([other, document("a green car", "toy", 8)], DuplicatePolicy.OVERWRITE) == 2
    assert kept() == [("a blue car", "toy")] and store.count_documents() == 7
    assert near(store, "blue car", top_k=1)[0].meta == {"kind": "toy", "size": 2}


FILTERS = [
    (where("kind", "==", "place"), ["the green tree", "the tall green house"]),
    (where("kind", "!=", "place"), ["a blue car", "a red car", "the red pen"]),
    (where("size", ">", 4), ["the green tree", "the tall green house"]),
    (where("size", ">=", 9), ["the tall green house"]),
    (where("size", "<", 3), ["the red pen"]),
    (where("size", "<=", 3), ["a red car", "the red pen"]),
    (where("size", "in", [3, 9]), ["a red car", "the tall green house"]),
    (where("size", "not in", [1, 3, 9]), ["a blue car", "the green tree"]),
    (several("AND", where("kind", "==", "thing"), where("size", ">", 1)), ["a blue car", "a red car"]),
    (
        several("OR", where("kind", "==", "place"), where("size", "==", 1)),
        ["the green tree", "the red pen", "the tall green house"],
    ),
    (
        several("NOT", where("kind", "==", "thing"), where("size", ">", 1)),
        ["the green tree", "the red pen", "the tall green house"],
    ),
    (
        several("AND", where("size", "!=", 5), several("OR", where("kind", "==", "place"), where("size", "<", 4))),
        ["a red car", "the red pen", "the tall green house"],
    ),
]


@pytest.mark.parametrize("filters, expected", FILTERS)
def test_filters_mean_the_same_everywhere(store, filters, expected):
    assert sorted(contents(store.filter_documents(filters))) == expected
    assert store.count_documents_by_filter(filters) == len(expected)
    assert sorted(contents(near(store, "the red car", filters=filters))) == expected
    assert sorted(contents(words(store, ["the", "a"], filters=filters))) == expected


def test_the_nearest_documents_and_their_scores(store):
    found = near(store, "red pen", top_k=2)
    assert contents(found) == ["the red pen", "a red car"]
    assert [document.score for document in found] == [likeness("red pen", text) for text in contents(found)]
    assert replace(found[0], score=None) == document("the red pen", "thing", 1)


def test_a_filter_on_a_field_that_is_not_in_the_index(store):
    with pytest.raises(DocumentStoreError, match="meta.colour"):
        near(store, "red", filters=where("colour", "==", "red"))


def test_full_text(store):
    assert sorted(contents(words(store, "car"))) == ["a blue car", "a red car"]
    found = words(store, "red house")
    # One word is in two texts, the other one in one, and therefore weighs more.
    assert contents(found)[0] == "the tall green house" and sorted(contents(found)[1:]) == ["a red car", "the red pen"]
    assert found[0].score > found[1].score > 0
    assert contents(words(store, "red car", match_criteria="all")) == ["a red car"]
    assert contents(words(store, "hause")) == []
    assert contents(words(store, "hause", fuzzy={"maxEdits": 1})) == ["the tall green house"]
    assert [found.score for found in words(store, "pen", score={"constant": {"value": 5}})] == [5.0]
    assert len(words(store, "the", top_k=2)) == 2


def test_what_was_written_and_deleted_is_found_at_once(store):
    store.write_documents([document("a tall red tree", "place", 7)])
    assert contents(near(store, "tall red tree", top_k=1)) == contents(words(store, "tall tree", top_k=1)) == ["a tall red tree"]
    store.delete_documents(["a tall red tree", "the green tree"])
    assert contents(words(store, "tree")) == []
    assert store.update_by_filter(where("kind", "==", "place"), {"kind": "thing"}) == 1
    assert len(near(store, "red", filters=where("kind", "==", "thing"))) == 4
    assert store.delete_by_filter(where("size", "<", 9)) == 3
    assert contents(near(store, "red")) == contents(words(store, "the a")) == ["the tall green house"]
    store.delete_all_documents()
    assert near(store, "red") == words(store, "the") == []
    store.write_documents([document("the red house", "place", 2)])
    assert contents(near(store, "red")) == contents(words(store, "red")) == ["the red house"]


def test_metadata(store):
    assert store.get_metadata_fields_info() == {"content": {"type": "text"}, "kind": {"type": "keyword"}, "size": {"type": "long"}}
    assert store.get_metadata_field_min_max("size") == {"min": 1, "max": 9}
    assert store.get_metadata_field_unique_values("kind") == (["place", "thing"], 2)
    assert store.get_metadata_field_unique_values("meta.kind", "PLA") == (["place"], 1)
    assert store.count_unique_metadata_by_filter(where("size", ">", 3), ["kind", "size"]) == {"kind": 2, "size": 3}


def test_retrievers_in_a_pipeline(store):
    pipeline = Pipeline()
    things, places = where("kind", "==", "thing"), where("kind", "==", "place")
    pipeline.add_component("near", MongoDBAtlasEmbeddingRetriever(document_store=store, filters=things, top_k=1))
    pipeline.add_component("words", MongoDBAtlasFullTextRetriever(document_store=store, filters=places))
    found = pipeline.run({"near": {"query_embedding": embed("green car")}, "words": {"query": "green", "top_k": 1}})
    assert found["near"]["documents"][0].meta["kind"] == "thing"
    assert contents(found["words"]["documents"]) == ["the green tree"]


def test_the_asynchronous_client(store):
    async def use():
        await store.write_documents_async([document("a tall tree", "place", 7)])
        assert await store.count_documents_async() == 6
        retriever = MongoDBAtlasEmbeddingRetriever(document_store=store)
        found = await retriever.run_async(query_embedding=embed("tall tree"), filters=where("kind", "==", "place"), top_k=1)
        assert contents(found["documents"]) == ["a tall tree"]
        assert found["documents"][0].score == likeness("tall tree", "a tall tree")
        retriever = MongoDBAtlasFullTextRetriever(document_store=store)
        assert contents((await retriever.run_async(query="tall", filters=where("size", "<", 9)))["documents"]) == ["a tall tree"]
        await store.delete_documents_async(["a tall tree"])
        assert (await retriever.run_async(query="tall", filters=where("size", "<", 9)))["documents"] == []
        await store.close_async()

    asyncio.run(use())
