"""Encrypted connections, and logging in by a certificate."""

import os

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

URI = os.environ["MONGODB_TLS_URI"]
FILES = os.environ["MONGODB_TLS_FILES"]
NAME = os.environ["MONGODB_TLS_CLIENT_NAME"]
BY_CERTIFICATE = "&authMechanism=MONGODB-X509"


def code_of(action):
    with pytest.raises(OperationFailure) as failed:
        action()
    return failed.value.code


@pytest.fixture(scope="module", autouse=True)
def users():
    """The first user, and the one of the certificate."""
    with MongoClient(URI) as anonymous:
        anonymous.admin.command("createUser", "root", pwd="secret", roles=["root"])
        assert code_of(lambda: anonymous.shop.orders.find_one()) == 13
    with MongoClient(URI, username="root", password="secret", authMechanism="SCRAM-SHA-256") as root:
        root.shop.orders.insert_one({"_id": 1, "text": "x" * 100_000})
        assert len(root.shop.orders.find_one()["text"]) == 100_000
        root["$external"].command("createUser", NAME, roles=[{"role": "readWrite", "db": "shop"}])


def test_a_certificate_logs_its_user_in():
    with MongoClient(f"{URI}{BY_CERTIFICATE}&tlsCertificateKeyFile={FILES}/client.pem") as ann:
        status = ann.admin.command("connectionStatus")["authInfo"]
        assert status["authenticatedUsers"] == [{"user": NAME, "db": "$external"}]
        assert ann.shop.orders.find_one()["_id"] == 1
        assert code_of(lambda: ann.other.orders.find_one()) == 13


def test_without_a_certificate_no_user_can_log_in():
    with MongoClient(URI + BY_CERTIFICATE) as anonymous:
        assert code_of(lambda: anonymous.shop.orders.find_one()) == 18


@pytest.mark.parametrize(
    "uri, why",
    [
        (URI.split("?")[0], "connection closed|reset by peer"),
        (URI.replace("authority.crt", "stranger.crt"), "certificate verify failed"),
    ],
)
def test_plain_connections_and_another_authority_fail(uri, why):
    with MongoClient(uri, serverSelectionTimeoutMS=1000) as client:
        with pytest.raises(ServerSelectionTimeoutError, match=why):
            client.admin.command("ping")
