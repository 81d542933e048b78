"""The stores of LangChain over this server: vectors, filters, diversity, full text, hybrid searches, a cache of answers,
texts with their parts."""

import os
import time

import pytest
from fixed_embedding import DIMENSIONS, embed
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.outputs import Generation
from langchain_mongodb import MongoDBAtlasVectorSearch
from langchain_mongodb.cache import MongoDBAtlasSemanticCache
from langchain_mongodb.index import create_fulltext_search_index, drop_vector_search_index, update_vector_search_index
from langchain_mongodb.retrievers import (
    MongoDBAtlasFullTextSearchRetriever,
    MongoDBAtlasHybridSearchRetriever,
    MongoDBAtlasParentDocumentRetriever,
)
from langchain_text_splitters import CharacterTextSplitter
from pymongo import MongoClient

PATIENCE = 60
TEXTS = ["the red pen", "a blue car", "the green tree", "a red car", "the tall green house"]


class Words(Embeddings):
    def embed_query(self, text):
        return embed(text)

    def embed_documents(self, texts):
        return [embed(text) for text in texts]


@pytest.fixture
def collection():
    with MongoClient(os.environ["MONGODB_URI"]) as client:
        client.drop_database("clients_langchain")
        yield client.clients_langchain.create_collection("documents")
        client.drop_database("clients_langchain")


@pytest.fixture
def store(collection):
    filters = {"auto_create_index": True, "auto_index_timeout": PATIENCE, "dimensions": DIMENSIONS}
    made = MongoDBAtlasVectorSearch(collection, Words(), index_name="near", relevance_score_fn="cosine", **filters)
    update_vector_search_index(collection, "near", "embedding", DIMENSIONS, "cosine", filters=["kind"], wait_until_complete=PATIENCE)
    made.add_texts(TEXTS, metadatas=[{"kind": "thing" if "pen" in text or "car" in text else "place"} for text in TEXTS])
    return made


def contents(documents):
    return [document.page_content for document in documents]


def test_the_nearest_texts_and_their_scores(store):
    found = store.similarity_search_with_score("red pen", k=2)
    assert contents(document for document, _ in found)[0] == "the red pen"
    assert found[0][1] > found[1][1] > 0


def test_what_was_added_and_deleted_is_found_at_once(store):
    (added,) = store.add_texts(["a purple boat"])
    assert contents(store.similarity_search("purple boat", k=1)) == ["a purple boat"]
    store.delete([added])
    assert "a purple boat" not in contents(store.similarity_search("purple boat", k=6))


def test_filters_before_the_search(store):
    found = store.similarity_search("red car green tree", k=5, pre_filter={"kind": {"$eq": "place"}})
    assert sorted(contents(found)) == ["the green tree", "the tall green house"]


def test_different_results(store):
    found = contents(store.max_marginal_relevance_search("red car", k=2, fetch_k=5, lambda_mult=0.1))
    assert len(set(found)) == 2 and found[0] == "a red car"


def test_a_retriever(store):
    assert contents(store.as_retriever(search_kwargs={"k": 1}).invoke("blue car")) == ["a blue car"]


def test_full_text_and_hybrid_searches(store, collection):
    create_fulltext_search_index(collection, "words", field="text", wait_until_complete=PATIENCE)
    words = MongoDBAtlasFullTextSearchRetriever(collection=collection, search_index_name="words", search_field="text", k=2)
    assert sorted(contents(words.invoke("car"))) == ["a blue car", "a red car"]
    both = MongoDBAtlasHybridSearchRetriever(vectorstore=store, search_index_name="words", k=3)
    found = both.invoke("red car")
    assert found[0].page_content == "a red car" and isinstance(found[0], Document)
    assert found[0].metadata["fulltext_score"] > 0 and found[0].metadata["vector_score"] > 0


def test_an_answer_to_a_similar_question(collection):
    settings = {"database_name": collection.database.name, "collection_name": collection.name, "index_name": "near"}
    settings |= {"score_threshold": 0.9, "auto_create_index": True, "auto_index_timeout": PATIENCE, "dimensions": DIMENSIONS}
    cache = MongoDBAtlasSemanticCache(os.environ["MONGODB_URI"], Words(), **settings)
    update_vector_search_index(
        collection, "near", "embedding", DIMENSIONS, "cosine", filters=["llm_string"], wait_until_complete=PATIENCE
    )
    cache.update("the tall red pen", "model", [Generation(text="a pen")])
    assert cache.lookup("tall red pen", "model") == [Generation(text="a pen")]
    assert cache.lookup("tall red pen", "other") is None
    assert cache.lookup("a blue car", "model") is None
    cache.clear()
    assert cache.lookup("the tall red pen", "model") is None


def test_the_whole_texts_of_parts_that_were_found(collection):
    retriever = MongoDBAtlasParentDocumentRetriever.from_connection_string(
        os.environ["MONGODB_URI"],
        Words(),
        CharacterTextSplitter(chunk_size=1, chunk_overlap=0, separator=". "),
        database_name=collection.database.name,
        collection_name=collection.name,
        index_name="near",
        text_key="page_content",
        dimensions=DIMENSIONS,
        auto_index_timeout=PATIENCE,
        search_kwargs={"top_k": 2},
    )
    whole = ["the red pen. the red ink", "a blue car. the tall green house"]
    retriever.add_documents([Document(text) for text in whole])
    assert collection.count_documents({}) == 6
    # Both parts that are found are of one text, which is returned once.
    assert contents(retriever.invoke("red ink")) == whole[:1]
    assert sorted(contents(retriever.invoke("pen house"))) == sorted(whole)


def test_an_index_is_dropped(store, collection):
    drop_vector_search_index(collection, "near", wait_until_complete=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while list(collection.list_search_indexes()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
