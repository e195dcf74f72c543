"""Keys of `key_by`: equal keys are one key, and what has no clear encoding is refused."""

import enum
import math
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from tidelog import Row, UserFunctionError
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.channels.partition import ByKey


class Colour(enum.StrEnum):
    RED = "red"


class Word(str):
    """A subclass that msgpack does not know."""

    __slots__ = ()


class Number(enum.IntEnum):
    ONE = 1


@dataclass(frozen=True)
class Point:
    x: int


def encoded(*keys: Any) -> list[bytes]:
    ((_, part),) = ByKey(lambda r: r, 1, 8, "key_by before 'count'").route(Batch(list(keys)))
    assert isinstance(part, KeyedBatch)
    return part.keys


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (math.nan, -math.nan),
        (("a", 0.0), ("a", -0.0)),
        (("a", (math.nan,)), ("a", (-math.nan,))),
        (("a", 1), Row(word="a", count=1)),
        (("a", -0.0), Row(word="a", share=0.0)),
        ("red", Colour.RED),
        ("red", Word("red")),
        (1, Number.ONE),
    ],
)
def test_equal_keys_are_one_key(one: Any, other: Any) -> None:
    alone, together = encoded(one) + encoded(other), encoded(one, other)
    assert alone[0] == alone[1] == together[0] == together[1]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ({"a": 1}, "dict"),
        ([1], "list"),
        ({1}, "set"),
        (frozenset({1}), "frozenset"),
        (bytearray(b"a"), "bytearray"),
        (date(2020, 1, 1), "date"),
        (Point(1), "Point"),
        (("a", [1]), "list"),
        (("a", ("b", {})), "dict"),
        (Row(at=date(2020, 1, 1)), "date"),
    ],
)
def test_a_key_without_a_clear_encoding_is_refused(key: Any, kind: str) -> None:
    with pytest.raises(
        UserFunctionError, match=rf"key_by before 'count'.*type {kind}[.]"
    ) as caught:
        encoded("fine", key)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("key", [2**64, -(2**63) - 1, ("a", 2**64), (0.5, 2**70)])
def test_an_int_beyond_64_bits_is_refused(key: Any) -> None:
    with pytest.raises(UserFunctionError, match=r"key_by before 'count'.*beyond 64 bits"):
        encoded(key)
