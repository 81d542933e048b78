"""The vector store of LlamaIndex over this server: its index helpers, vectors, metadata filters, full text, hybrid searches,
deletion, and the same through its asynchronous client."""

import asyncio
import os
import time

import pytest
from fixed_embedding import DIMENSIONS, embed, likeness
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from llama_index.vector_stores.mongodb import MongoDBAtlasVectorSearch
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import OperationFailure

PATIENCE = 60
# The source of each text, its kind, and its size.
TEXTS = {
    "the red pen": ("desk", "thing", 1),
    "a blue car": ("street", "thing", 4),
    "the green tree": ("garden", "place", 5),
    "a red car": ("street", "thing", 3),
    "the tall green house": ("garden", "place", 9),
}
VECTOR = {"type": "vector", "path": "embedding", "numDimensions": DIMENSIONS, "similarity": "cosine"}


class Words(BaseEmbedding):
    def _get_query_embedding(self, query):
        return embed(query)

    async def _aget_query_embedding(self, query):
        return embed(query)

    def _get_text_embedding(self, text):
        return embed(text)


def node(text, source, kind, size):
    relationships = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=source)}
    metadata = {"kind": kind, "size": size}
    return TextNode(id_=text, text=text, metadata=metadata, embedding=embed(text), relationships=relationships)


@pytest.fixture
def clients():
    with MongoClient(os.environ["MONGODB_URI"]) as client:
        client.drop_database("clients_llamaindex")
        yield client, AsyncMongoClient(os.environ["MONGODB_URI"])
        client.drop_database("clients_llamaindex")


@pytest.fixture
def empty(clients):
    return MongoDBAtlasVectorSearch(*clients, db_name="clients_llamaindex", collection_name="nodes")


@pytest.fixture
def store(empty):
    empty.create_vector_search_index(DIMENSIONS, "embedding", "cosine", ["metadata.kind", "metadata.size"])
    empty.create_fulltext_search_index("text")
    until(lambda: [index["queryable"] for index in empty.collection.list_search_indexes()] == [True, True])
    assert empty.add([node(text, *more) for text, more in TEXTS.items()]) == list(TEXTS)
    return empty


def until(done):
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def near(store, text, top=5, filters=None):
    return store.query(VectorStoreQuery(query_embedding=embed(text), similarity_top_k=top, filters=filters))


def test_the_helpers_for_indexes(empty):
    empty.create_vector_search_index(DIMENSIONS, "embedding", "cosine", wait_until_complete=PATIENCE)
    (made,) = empty.collection.list_search_indexes()
    assert (made["name"], made["type"], made["queryable"]) == ("vector_index", "vectorSearch", True)
    assert made["latestDefinition"] == {"fields": [VECTOR]}
    empty.update_vector_search_index(DIMENSIONS, "embedding", "cosine", ["metadata.kind"], wait_until_complete=PATIENCE)
    (updated,) = empty.collection.list_search_indexes()
    assert updated["latestDefinition"] == {"fields": [VECTOR, {"type": "filter", "path": "metadata.kind"}]}
    empty.create_fulltext_search_index("text", wait_until_complete=PATIENCE)
    (words,) = empty.collection.list_search_indexes("fulltext_index")
    fields = {"text": [{"type": "string"}]}
    assert words["type"] == "search" and words["latestDefinition"] == {"mappings": {"dynamic": False, "fields": fields}}
    empty.drop_vector_search_index()
    until(lambda: [index["name"] for index in empty.collection.list_search_indexes()] == ["fulltext_index"])
    with pytest.raises(OperationFailure) as failed:
        empty.drop_vector_search_index()
    assert failed.value.code == 27


def test_the_nearest_nodes_and_their_scores(store):
    found = near(store, "red pen", 3)
    assert found.ids[:2] == ["the red pen", "a red car"] and len(found.ids) == 3
    assert found.similarities == [likeness("red pen", text) for text in found.ids]
    first = found.nodes[0]
    assert (first.node_id, first.get_content(), first.ref_doc_id) == ("the red pen", "the red pen", "desk")
    assert first.metadata == {"kind": "thing", "size": 1}


@pytest.mark.parametrize(
    "filters, expected",
    [
        ([("kind", FilterOperator.EQ, "place")], ["the green tree", "the tall green house"]),
        ([("kind", FilterOperator.NE, "place")], ["a blue car", "a red car", "the red pen"]),
        ([("size", FilterOperator.GT, 4)], ["the green tree", "the tall green house"]),
        ([("size", FilterOperator.GTE, 4), ("size", FilterOperator.LT, 9)], ["a blue car", "the green tree"]),
        ([("size", FilterOperator.LTE, 1)], ["the red pen"]),
        ([("size", FilterOperator.IN, [3, 9])], ["a red car", "the tall green house"]),
        ([("size", FilterOperator.NIN, [1, 3, 9])], ["a blue car", "the green tree"]),
        ([("kind", FilterOperator.EQ, "place"), ("size", FilterOperator.EQ, 1)], []),
        (
            [("kind", FilterOperator.EQ, "place"), ("size", FilterOperator.EQ, 1), FilterCondition.OR],
            ["the green tree", "the red pen", "the tall green house"],
        ),
    ],
)
def test_filters_before_the_search(store, filters, expected):
    condition = filters.pop() if isinstance(filters[-1], FilterCondition) else FilterCondition.AND
    chosen = [MetadataFilter(key=key, operator=operator, value=value) for key, operator, value in filters]
    filters = MetadataFilters(filters=chosen, condition=condition)
    assert sorted(near(store, "the red car", filters=filters).ids) == expected
    # Texts are filtered after the search.
    query = VectorStoreQuery(query_str="the a", mode=VectorStoreQueryMode.TEXT_SEARCH, similarity_top_k=5, filters=filters)
    assert sorted(store.query(query).ids) == expected


def test_full_text(store):
    query = VectorStoreQuery(query_str="red house", mode=VectorStoreQueryMode.TEXT_SEARCH, similarity_top_k=2)
    found = store.query(query)
    # One word is in two texts, the other one in one, and therefore weighs more.
    assert found.ids[0] == "the tall green house" and found.ids[1] in ("the red pen", "a red car")
    assert found.similarities[0] > found.similarities[1] > 0
    query = VectorStoreQuery(query_str="purple", mode=VectorStoreQueryMode.TEXT_SEARCH, similarity_top_k=2)
    assert store.query(query).ids == []


def test_hybrid_searches(store):
    def hybrid(text, vector, alpha):
        more = {"mode": VectorStoreQueryMode.HYBRID, "similarity_top_k": 2, "hybrid_top_k": 4, "alpha": alpha}
        found = store.query(VectorStoreQuery(query_str=text, query_embedding=embed(vector), **more))
        return list(zip(found.ids, found.similarities))

    # Each search gives 1 to its first result, and 1/2 to its second one.
    assert hybrid("house", "blue car", 0.75) == [("a blue car", 0.75), ("a red car", 0.375), ("the tall green house", 0.25)]
    assert hybrid("blue", "blue car", 0.5) == [("a blue car", 1.0), ("a red car", 0.25)]


def test_what_was_added_and_deleted_is_found_at_once(store):
    store.add([node("a tall red tree", "garden", "place", 7)])
    assert near(store, "tall red tree", 1).ids == ["a tall red tree"]
    store.delete("garden")
    assert sorted(near(store, "tall red tree").ids) == ["a blue car", "a red car", "the red pen"]
    assert store.collection.count_documents({}) == 3
    assert store.collection.index_information()["metadata_delete_index"]["key"] == [("metadata.ref_doc_id", 1)]


def test_an_index_of_nodes_and_its_retriever(store):
    # The nodes stay as they are: the usual transformation needs a tokenizer of a model.
    settings = {"embed_model": Words(), "transformations": [lambda nodes, **_: nodes]}
    index = VectorStoreIndex([], storage_context=StorageContext.from_defaults(vector_store=store), **settings)
    index.insert_nodes([node("a green car", "street", "thing", 2)])
    chosen = MetadataFilters(filters=[MetadataFilter(key="kind", value="thing")])
    (found,) = index.as_retriever(similarity_top_k=1, filters=chosen).retrieve("green tree car")
    assert (found.text, found.score) == ("a green car", likeness("green tree car", "a green car"))
    index.delete_ref_doc("street")
    assert [found.text for found in index.as_retriever(similarity_top_k=5, filters=chosen).retrieve("car")] == ["the red pen"]


def test_the_asynchronous_client(empty):
    async def use():
        await empty.acreate_vector_search_index(DIMENSIONS, "embedding", "cosine", wait_until_complete=PATIENCE)
        await empty.aupdate_vector_search_index(DIMENSIONS, "embedding", "cosine", ["metadata.kind"], wait_until_complete=PATIENCE)
        await empty.acreate_fulltext_search_index("text", wait_until_complete=PATIENCE)
        await empty.async_add([node(text, *more) for text, more in TEXTS.items()])
        chosen = MetadataFilters(filters=[MetadataFilter(key="kind", value="place")])
        found = await empty.aquery(VectorStoreQuery(query_embedding=embed("green tree"), similarity_top_k=1, filters=chosen))
        assert (found.ids, found.similarities) == (["the green tree"], [likeness("green tree", "the green tree")])
        await empty.adelete("garden")
        assert (await empty.aquery(VectorStoreQuery(query_embedding=embed("green"), similarity_top_k=5, filters=chosen))).ids == []
        found = await empty.aquery(VectorStoreQuery(query_str="blue", mode=VectorStoreQueryMode.TEXT_SEARCH))
        assert found.ids == ["a blue car"]
        await empty.adrop_vector_search_index()
        assert [index["name"] async for index in await empty.async_collection.list_search_indexes()] == ["fulltext_index"]
        await empty.async_client.close()

    asyncio.run(use())
