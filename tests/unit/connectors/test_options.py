"""What is not given, such as an option of the command line that a job passes on, is named."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.connectors.sinks.job import context
from tidelog import (
    ConfigError,
    Iceberg,
    KafkaSink,
    KafkaSource,
    Postgres,
    PostgresOutbox,
    Sqlite,
)

ABSENT: Any = None
COLUMNS = {"word": "text"}


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: KafkaSource("words", bootstrap=ABSENT), "bootstrap; .*'broker-1:9092"),
        (lambda: KafkaSource("words", bootstrap=[ABSENT, ""]), "bootstrap; .*'broker-1:9092"),
        (lambda: KafkaSource(ABSENT, bootstrap="a:1"), "topics of a KafkaSource"),
        (lambda: KafkaSource(["words", ABSENT], bootstrap="a:1"), "topics of a KafkaSource"),
        (lambda: KafkaSink("words", bootstrap=ABSENT), "bootstrap; .*'broker-1:9092"),
        (
            lambda: KafkaSink("words", bootstrap="a:1", client={"message.max.bytes": "1MB"}),
            "message.max.bytes .*a number of bytes; found 1MB",
        ),
        (lambda: Postgres(ABSENT, "words", COLUMNS).open(context()), "the connection string of"),
        (lambda: PostgresOutbox(ABSENT, "words").open("words", None), "the connection string of"),
        (lambda: Sqlite(ABSENT, "words", COLUMNS), "path of the database"),
        (lambda: Iceberg(ABSENT, "lake.words"), "catalog; .*the name of a catalogue"),
        (lambda: Iceberg("lake", ABSENT), "table; .*a namespace and a name"),
    ],
)
def test_an_option_that_is_not_given_is_named(make: Callable[[], object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


@pytest.mark.parametrize("kind", ["geometry(Point,4326)", "numeric(5, -2)", "varchar(9)[]"])
def test_a_column_has_any_type_that_postgresql_shows(kind: str) -> None:
    Postgres("host=db.example", "words", {"word": kind})
