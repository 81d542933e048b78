"""The embedding of the suites of stores in Python: a fixed function, so that no model and no network is needed."""

import hashlib
import math

import pytest

# With this number, the words of all suites have dimensions of their own.
DIMENSIONS = 40


def embed(text):
    """One dimension for each word."""
    vector = [0.0] * DIMENSIONS
    for word in text.lower().split():
        vector[int(hashlib.md5(word.encode()).hexdigest(), 16) % DIMENSIONS] += 1.0
    return vector


def likeness(one, other):
    """The score of a text for another one by cosine, between 0 and 1."""
    left, right = embed(one), embed(other)
    product = sum(x * y for x, y in zip(left, right))
    return pytest.approx((1 + product / math.hypot(*left) / math.hypot(*right)) / 2, abs=1e-5)
