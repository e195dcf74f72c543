"""`Row` behaves like pyspark's.

Schemas: Spark's DDL and `simpleString` texts mean the same and accept the same values.
"""

import copy
import datetime
import decimal
import pickle
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tidelog import Row, StateSchemaError
from tidelog.runtime.channels.copies import copies_of
from tidelog.state.objects.values import ObjectEncoding
from tidelog.state.schema import row as rows
from tidelog.state.schema.schema import parse_schema


def test_fields_are_found_by_name_index_and_attribute() -> None:
    row = Row(word="tide", count=3)
    assert (row.word, row["word"], row[0], row[-1]) == ("tide", "tide", "tide", 3)
    assert row[0:2] == ("tide", 3)
    assert "word" in row and "tide" not in row
    assert row.__fields__ == ["word", "count"]
    assert list(row) == ["tide", 3] and len(row) == 2
    assert repr(row) == "Row(word='tide', count=3)"


def test_equality_and_hash_are_those_of_the_values() -> None:
    assert Row(a=1, b=2) == Row(x=1, y=2) == (1, 2)
    assert hash(Row(a=1)) == hash((1,))
    assert Row(a=1) != Row(a=2)
    assert Row(a=1) < Row(a=2)


def test_fields_may_be_called_like_methods_of_tuples() -> None:
    assert (Row(count=3, index=7).count, Row(count=3, index=7).index) == (3, 7)
    assert (Row(3, 3).count(3), Row(1, 2).index(2)) == (2, 1)
    assert Order(count=3).count == 3
    for row in (Row(n=3), Order(n=3), Row(index=5)):
        with pytest.raises(AttributeError, match="the row has no field 'count', only"):
            _ = row.count


def test_a_field_that_is_absent_has_a_default() -> None:
    row = Row(word="tide", count=None)
    assert [row.get("word"), row.get("count", 5), row.get("n"), row.get("n", 5)] == [
        *("tide", None),
        *(None, 5),
    ]
    assert Row(1, 2).get("n", 0) == 0


def test_a_row_with_other_values_is_another_row() -> None:
    row = Row.of(("word", "a b", "self"), ("tide", 1, 2))
    changed = row.replace(word="ebb", **{"a b": 5})
    assert changed == ("ebb", 5, 2) and type(changed) is type(row)
    assert changed._fields == row._fields and row == ("tide", 1, 2)
    assert row.replace() == row and row.replace(self=3)["self"] == 3
    order = Order(amount=2).replace(amount=3)
    assert type(order) is Order and order.doubled() == 6
    assert dict(row.asDict(), word="x") == {"word": "x", "a b": 1, "self": 2}


def test_errors_name_the_fields_and_say_the_way_out() -> None:
    row = Row(word="tide", n=1)
    with pytest.raises(KeyError, match=r"no field 'm', only \('word', 'n'\); row.get\('m'\)"):
        row["m"]
    with pytest.raises(AttributeError, match=r"no field 'm', only \('word', 'n'\); row.get"):
        _ = row.m
    with pytest.raises(KeyError, match=r"no field 'm', only .* Row\(\*\*row.asDict\(\), m=...\)"):
        row.replace(m=1)
    with pytest.raises(TypeError, match=r"never changed; row.replace\(n=...\)"):
        row.n = 5
    with pytest.raises(KeyError, match=r"values without names: row\[0\]"):
        Row(1, 2)["n"]
    with pytest.raises(TypeError, match=r"without names is no dict; list\(row\)"):
        Row(1, 2).asDict()


def test_a_row_of_names_makes_rows() -> None:
    Word = Row("word", "count")
    assert Word("tide", 3) == Row(word="tide", count=3)
    assert Word("tide", 3).word == "tide"
    assert Word("tide", 3)["count"] == 3


def test_as_dict_goes_into_rows_lists_and_dicts_when_asked() -> None:
    row = Row(a=Row(b=1), c=[Row(d=2)], e={"f": Row(g=3)})
    assert row.asDict() == {"a": Row(b=1), "c": [Row(d=2)], "e": {"f": Row(g=3)}}
    assert row.asDict(recursive=True) == {"a": {"b": 1}, "c": [{"d": 2}], "e": {"f": {"g": 3}}}


@pytest.mark.parametrize("row", [Row(a=1, b=[2]), Row(1, 2), Row(a=Row(b=1))])
def test_rows_survive_pickle_and_copy(row: Row) -> None:
    for twin in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert twin == row and repr(twin) == repr(row)


ODD_NAMES = ("count", "of", "a b", "a", "a", "_hidden", "class", "mro", "")


@pytest.fixture(params=["of few kinds", "of more kinds than there are classes"])
def odd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Row:
    monkeypatch.setattr(rows, "_makers", {})
    if request.param != "of few kinds":
        monkeypatch.setattr(rows, "_MAX_CLASSES", 0)
    return Row.of(ODD_NAMES, range(len(ODD_NAMES)))


def test_names_that_are_no_attributes_are_still_fields(odd: Row) -> None:
    assert [odd[name] for name in ODD_NAMES] == [0, 1, 2, 3, 3, 5, 6, 7, 8]
    assert (getattr(odd, "a b"), odd.a, getattr(odd, "class"), odd.mro) == (2, 3, 6, 7)
    assert odd.count == 0  # a method of tuples gives way to a field
    assert odd.of(["x"], [1]) == Row(x=1)  # one of rows does not
    with pytest.raises(AttributeError):
        _ = odd._hidden
    assert odd.__fields__ == list(ODD_NAMES) and "a b" in odd
    assert isinstance(odd, Row) and pickle.loads(pickle.dumps(odd))._fields == ODD_NAMES
    with pytest.raises(TypeError):
        odd.a = 2
    with pytest.raises(AttributeError, match="no field 'nothing'"):
        _ = odd.nothing


def test_field_names_without_end_make_no_classes_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows, "_makers", {})
    monkeypatch.setattr(rows, "_MAX_CLASSES", 3)
    made = [Row.of((f"f{n}",), [n]) for n in range(10)]
    assert [row[f"f{row[0]}"] for row in made] == list(range(10))
    assert len(set(map(type, made))) == 4 and len(rows._makers) == 3


class Order(Row):
    def doubled(self) -> int:
        return int(self.amount) * 2


def test_a_subclass_makes_rows_of_its_own_type_which_copies_have_too() -> None:
    order = Order(amount=2, tags=["x"])
    copied = [copy.deepcopy(order), pickle.loads(pickle.dumps(order)), *copies_of([order])]
    for each in (order, *copied):
        assert type(each) is Order and each.doubled() == 4
        assert each.asDict() == {"amount": 2, "tags": ["x"]}


@pytest.mark.parametrize(
    "given",
    [
        [Row(a=1, b="x"), Row(a=2, b=None)],
        [Row(a=1), Row(a=1 << 70)],
        [Row(a=[1]), Row(a=Decimal(2))],
        [Row(a=Row(b=1)), Row(a=Row(b=2))],
        [Row(), Row()],
    ],
)
def test_rows_of_one_class_are_stored_as_each_alone(given: list[Row]) -> None:
    values = ObjectEncoding("values")
    assert values.encode_many(given) == list(map(values.encode, given))


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
        ("`odd name` short, `tick``ed` byte", "`odd name` smallint, `tick``ed` tinyint"),
        ("b binary, t timestamp, f boolean", "b binary, t timestamp, f boolean"),
    ],
)
def test_equal_schemas_have_one_canonical_text(text: str, canonical: str) -> None:
    assert parse_schema(text).schema == canonical
    assert parse_schema(StructType(text)).schema == canonical


NO_SCHEMAS = "|  |a|a unknown|a int,|a int b int|a array<int|a map<int>|struct<a:int|a decimal(10|"
NO_SCHEMAS += "a int)|a int; b int|a array|int<|m map<array<int>,int>|m map<map<int,int>,int>"


@pytest.mark.parametrize("text", [*NO_SCHEMAS.split("|"), 5])
def test_a_text_that_is_no_schema_is_refused_as_such(text: Any) -> None:
    with pytest.raises(StateSchemaError, match="state schema"):
        parse_schema(text)


class Word(str):
    """Not stored as what it is."""


WEST = datetime.timezone(datetime.timedelta(hours=-1))
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
        ("n int", b"a"),
        ("s string", "x"),
        ("s string", {"s": "x"}),
        ("a int, b int", {1, 2}),
        ("b binary", ("abcd",)),
        ("m map<binary,int>", ({"abcd": 1},)),
        ("d date", ("2024-02-29",)),
        ("t timestamp", ("2024-02-29T12:00:00",)),
        ("t timestamp", (datetime.datetime.max.replace(tzinfo=WEST),)),
        ("a array<timestamp>", ([datetime.datetime.max.replace(tzinfo=WEST)],)),
        ("a array<string>", ([Word("x")],)),
        ("m map<string,int>", (range(3),)),
        ("d double", (Decimal("sNaN"),)),
    ],
)
def test_values_of_another_type_are_refused(schema: str, value: Any) -> None:
    with pytest.raises(StateSchemaError, match=r"a value for the schema .* of state 'mine'"):
        parse_schema(schema, "mine").store(value)


@looking(80)
@given(st.text("abint<>(),:` 0", max_size=20))
def test_no_text_raises_anything_but_a_schema_error(text: str) -> None:
    try:
        codec = parse_schema(text)
    except StateSchemaError:
        return
    assert codec.fields
