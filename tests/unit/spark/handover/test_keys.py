"""Stored keys become key columns of exactly their type, or an error."""

from typing import Any

import pytest

from tidelog.errors import StateSchemaError
from tidelog.spark.handover.keys import KeyColumns
from tidelog.state.key_groups import encode_key


def columns(*types: str) -> KeyColumns:
    return KeyColumns("count", tuple(f"k{number}" for number in range(len(types))), types)


@pytest.mark.parametrize(
    ("types", "keys"),
    [
        (["string"], ["a", "5", None]),
        (["bigint"], [5, -(2**63), 2**63 - 1]),
        (["int"], [5, -(2**31)]),
        (["double"], [5.0, -1.5]),
        (["boolean"], [True, False]),
        (["binary"], [b"\x00\xff", b""]),
        (["string", "bigint"], [("a", 5), (None, 6)]),
    ],
)
def test_keys_of_the_type_of_the_columns_are_their_values(types: list[str], keys: Any) -> None:
    arrays = columns(*types).arrays([encode_key(key) for key in keys])
    rows = list(zip(*(array.to_pylist() for array in arrays), strict=True))
    assert rows == [key if isinstance(key, tuple) else (key,) for key in keys]
    assert [list(map(type, row)) for row in rows] == [
        list(map(type, key if isinstance(key, tuple) else (key,))) for key in keys
    ]


@pytest.mark.parametrize(
    ("types", "key"),
    [
        (["string"], 5),
        (["bigint"], "5"),
        (["bigint"], True),
        (["boolean"], 1),
        (["double"], 1),
        (["bigint"], 1.0),
        (["string"], b"a"),
        (["int"], 2**31),
        (["tinyint"], 128),
        (["string"], ("a", 5)),
        (["string", "bigint"], "a"),
        (["string", "bigint"], ("a", "5")),
    ],
)
def test_a_key_of_another_type_is_an_error_that_names_both(types: list[str], key: Any) -> None:
    with pytest.raises(StateSchemaError) as refused:
        columns(*types).arrays([encode_key(key)])
    assert "'count'" in str(refused.value)
    assert f"k0 {types[0]}" in str(refused.value)


@pytest.mark.parametrize(
    ("types", "stored"),
    [
        (["string"], ["str"]),
        (["string"], ["str", "None"]),
        (["bigint"], []),
        (["string", "bigint"], ["tuple[str, int]", "tuple[None, int]"]),
        (["binary"], ["tuple"]),
    ],
)
def test_known_types_that_fit_pass(types: list[str], stored: list[str]) -> None:
    columns(*types).check_types(stored)


@pytest.mark.parametrize(
    ("types", "stored"),
    [
        (["string"], ["int"]),
        (["string"], ["str", "int"]),
        (["bigint"], ["bool"]),
        (["string"], ["tuple[str, int]"]),
        (["string", "string"], ["tuple[str, int]"]),
    ],
)
def test_known_types_that_do_not_fit_are_refused_before_rows_are_read(
    types: list[str], stored: list[str]
) -> None:
    with pytest.raises(StateSchemaError, match="keys of type"):
        columns(*types).check_types(stored)
