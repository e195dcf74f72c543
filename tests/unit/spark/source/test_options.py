"""Options say what is read; a wrong one is refused by its name."""

import pytest

from tests.unit.spark.source.reading import request
from tidelog.errors import ConfigError
from tidelog.spark.source.filters import Intervals
from tidelog.spark.source.options import Options, read_options
from tidelog.spark.source.views import VIEWS, checked, ddl


def options(**given: str) -> Options:
    return read_options({"path": "/store", **given})


def test_names_of_options_are_compared_without_case() -> None:
    assert options(PARTITIONBYTES="8m").partition_bytes == 8 << 20
    assert options(partitionBytes="Auto").partition_bytes == "auto"
    assert options(partitionBytes="0").partition_bytes == 0
    assert options(partitionbytes="8m") == options(partitionBytes="8m")


def test_narrowing_options_are_about_the_columns_of_the_view() -> None:
    wanted = options(operator="a, b", subtask="0,2-", seqno="10-20", keyGroup="5").filter
    assert wanted.texts["operator"] == {"a", "b"}
    assert wanted.of("subtask") == Intervals.of([(0, 0), (2, 2**63 - 1)])
    assert wanted.of("key_group") == Intervals.between(5, 5)
    assert wanted.accepts(operator="a", subtask=2, seqno=20)
    assert not wanted.accepts(operator="c") and not wanted.accepts(subtask=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"view": "tables"}, "option view .*expected one of checkpoints, objects"),
        ({"oparator": "a"}, "option oparator .*no such option"),
        ({"slot": "newest"}, "option slot .*expected latest, all, or numbers"),
        ({"view": "checkpoints", "slot": "latest"}, "option slot .*expected all, or numbers"),
        ({"subtask": "a"}, "option subtask .*expected numbers such as"),
        ({"view": "state", "seqno": "3"}, "option seqno .*expected its use with view changes"),
        ({"view": "objects", "operator": "a"}, "option operator .*view blocks or changes or state"),
        ({"partitionBytes": "many"}, "option partitionBytes"),
        ({"decode": "yes"}, "option decode .*expected true or false"),
        ({"path": ""}, "location to load"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        options(**given)
    assert raised.value.action


def test_columns_are_those_asked_for_in_that_order() -> None:
    asked = request("/store", view="changes", columns="value, seqno,key_json")
    assert ddl(asked.columns) == "value binary, seqno bigint, key_json string"


@pytest.mark.parametrize("names", ["seqno,nothing", "seqno,seqno"])
def test_columns_that_are_none_or_twice_are_refused(names: str) -> None:
    with pytest.raises(ConfigError, match="columns of view changes"):
        request("/store", view="changes", columns=names)


def test_a_schema_chooses_columns_and_must_fit_them() -> None:
    fields = [("seqno", "bigint"), ("op", "string")]
    assert checked(VIEWS["changes"], fields) == tuple(fields)
    with pytest.raises(ConfigError, match=r"column seqno .*expected type bigint; found int"):
        checked(VIEWS["changes"], [("seqno", "int")])
    with pytest.raises(ConfigError, match="found missing"):
        checked(VIEWS["changes"], [("missing", "int")])
