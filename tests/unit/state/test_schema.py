"""Schemas: Spark's DDL and `simpleString` texts mean the same and accept the same values."""

import datetime
import decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tidelog.errors import StateSchemaError
from tidelog.state.schema.schema import parse_schema


class StructType:
    """What of pyspark's class is used."""

    def __init__(self, text: str) -> None:
        self._text = text

    def simpleString(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("count long", "count bigint"),
        ("a INT, b STRING", "a int, b string"),
        ("a: integer, b: real NOT NULL", "a int, b float"),
        ("struct<a:int,b:array<string>>", "a int, b array<string>"),
        ("m map<string,array<bigint>>", "m map<string,array<bigint>>"),
        ("s struct<x:int,y:struct<z:date>>", "s struct<x:int,y:struct<z:date>>"),
        ("d decimal(10,2), v varchar(20)", "d decimal(10,2), v string(20)"),
        ("`odd name` short, `tick``ed` byte", "odd name smallint, tick`ed tinyint"),
        ("b binary, t timestamp, f boolean", "b binary, t timestamp, f boolean"),
    ],
)
def test_equal_schemas_have_one_canonical_text(text: str, canonical: str) -> None:
    assert parse_schema(text).schema == canonical
    assert parse_schema(StructType(text)).schema == canonical


NO_SCHEMAS = "|  |a|a unknown|a int,|a int b int|a array<int|a map<int>|struct<a:int|a decimal(10|"
NO_SCHEMAS += "a int)|a int; b int|a array|int<"


@pytest.mark.parametrize("text", [*NO_SCHEMAS.split("|"), 5])
def test_a_text_that_is_no_schema_is_refused_as_such(text: Any) -> None:
    with pytest.raises(StateSchemaError, match="state schema"):
        parse_schema(text)


NOON = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("n tinyint", (-128,)),
        ("n bigint", (2**63 - 1,)),
        ("x double", (float("inf"),)),
        ("s string, b binary", ("tide", b"\x00\xff")),
        ("d date, t timestamp", (NOON.date(), NOON)),
        ("t timestamp", (NOON.replace(tzinfo=None),)),
        ("d decimal(10,2)", (decimal.Decimal("1.10"),)),
        ("a array<int>, m map<string,int>", ([1, None], {"x": None})),
        ("s struct<x:int,y:array<string>>", ((1, ["a"]),)),
        ("a int, b string", (None, None)),
    ],
)
def test_values_come_back_as_they_were_written(schema: str, value: tuple[Any, ...]) -> None:
    codec = parse_schema(schema)
    assert codec.decode(codec.encode(codec.check(value))) == value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("n tinyint", (128,)),
        ("n int", ("1",)),
        ("n int", (1.5,)),
        ("n int", (True,)),
        ("s string", (b"x",)),
        ("b boolean", (1,)),
        ("a array<int>", (["x"],)),
        ("m map<string,int>", ({1: 1},)),
        ("s struct<x:int>", ((1, 2),)),
        ("n int", ()),
        ("n int", 7),
    ],
)
def test_values_of_another_type_are_refused(schema: str, value: Any) -> None:
    with pytest.raises(StateSchemaError, match="a value for the schema"):
        parse_schema(schema).check(value)


def test_whole_numbers_become_floats_where_floats_are_expected() -> None:
    assert parse_schema("x double").check((3,)) == (3.0,)


def test_only_schemas_of_scalars_may_be_shared_without_a_copy() -> None:
    assert parse_schema("a int, s struct<b:string,c:date>").immutable
    assert not parse_schema("a array<int>").immutable
    assert not parse_schema("s struct<a:array<int>>").immutable


@looking(80, deep=25)
@given(st.text("abint<>(),:` 0", max_size=20))
def test_no_text_raises_anything_but_a_schema_error(text: str) -> None:
    try:
        codec = parse_schema(text)
    except StateSchemaError:
        return
    assert codec.fields
