"""What is not given, such as an option of the command line that a job passes on, is named."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.unit.connectors.sinks.job import context
from tidelog import (
    ConfigError,
    DeadLetterTopic,
    FileSink,
    ForeachSink,
    IcebergSink,
    Job,
    JsonLinesSource,
    KafkaSink,
    KafkaSource,
    ParquetSource,
    PostgresOutboxSource,
    PostgresSink,
    RateSource,
    SqliteSink,
    StdoutSink,
    TextFileSource,
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
        (
            lambda: PostgresSink(ABSENT, "words", COLUMNS).open(context()),
            "the connection string of",
        ),
        (
            lambda: PostgresOutboxSource(ABSENT, "words").open("words", None),
            "the connection string of",
        ),
        (lambda: SqliteSink(ABSENT, "words", COLUMNS), "path of the database"),
        (lambda: IcebergSink(ABSENT, "lake.words"), "catalog; .*the name of a catalogue"),
        (lambda: IcebergSink("lake", ABSENT), "table; .*a namespace and a name"),
    ],
)
def test_an_option_that_is_not_given_is_named(make: Callable[[], object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


URL = "s3://bucket/words"

WRONG: list[tuple[str, Callable[[Any], object]]] = [
    ("path= of TextFileSource; expected Path | str; found 5", lambda _: TextFileSource(5)),
    ("include= of JsonLinesSource; expected str; found 5", lambda path: JsonLinesSource(path, 5)),
    ("chunk_bytes= of TextFileSource", lambda path: TextFileSource(path, chunk_bytes="1")),
    ("batch_rows= of ParquetSource", lambda path: ParquetSource(path, batch_rows=1.5)),
    ("columns= of ParquetSource", lambda path: ParquetSource(path, columns=["a", 1])),
    ("records_per_s= of RateSource; expected float", lambda _: RateSource("5")),
    ("records_per_s; .*found nan", lambda _: RateSource(math.nan)),
    ("start= of RateSource; expected int", lambda _: RateSource(5, start="0")),
    ("make= of RateSource", lambda _: RateSource(5, make="record")),
    ("directory= of FileSink", lambda _: FileSink(5)),
    ("roll_bytes= of FileSink", lambda path: FileSink(path, roll_bytes="1MB")),
    ("roll_every= of FileSink", lambda path: FileSink(path, roll_every="1 min")),
    ("fields= of FileSink", lambda path: FileSink(path, fields=("a", 1))),
    ("fields= of StdoutSink; .*found 'word'", lambda _: StdoutSink("json", fields="word")),
    ("function= of ForeachSink", lambda _: ForeachSink(5)),
    ("flush= of ForeachSink", lambda _: ForeachSink(print, flush=5)),
    ("connect_s= of KafkaSource", lambda _: KafkaSource("a", bootstrap="a:1", connect_s="1")),
    ("topic= of KafkaSink", lambda _: KafkaSink(5, bootstrap="a:1")),
    ("headers= of KafkaSink", lambda _: KafkaSink("a", bootstrap="a:1", headers={})),
    ("topic of a DeadLetterTopic; .*None", lambda _: DeadLetterTopic(ABSENT)),
    ("table= of PostgresSink", lambda _: PostgresSink("host=a", 5, COLUMNS)),
    (
        "type of column 'word' of table 'words'; expected a text",
        lambda _: PostgresSink("host=a", "words", {"word": 5}),
    ),
    ("poll= of PostgresOutboxSource", lambda _: PostgresOutboxSource("host=a", "words", poll="1")),
    ("columns= of SqliteSink; .*Mapping", lambda path: SqliteSink(path, "words", ["word"])),
    ("catalog= of IcebergSink", lambda _: IcebergSink(5, "lake.words")),
    (
        "path of the input; .*, no URL, .*; found 's3://bucket/words'",
        lambda _: JsonLinesSource(URL),
    ),
    ("path of the input; .*, no URL", lambda _: ParquetSource(URL)),
    ("directory; .*, no URL, .*; found 's3://bucket/words'", lambda _: FileSink(URL)),
    ("path of the database; .*, no URL", lambda _: SqliteSink(URL, "words", COLUMNS)),
    ("the name of a job; .*UTF-8", lambda _: Job("\ud800")),
]


@pytest.mark.parametrize(("says", "make"), WRONG, ids=[says for says, _ in WRONG])
def test_an_argument_of_another_type_is_named(
    says: str, make: Callable[[Any], object], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        make(tmp_path)


def test_a_number_of_numpy_and_a_path_of_another_library_do_as_well(tmp_path: Path) -> None:
    class Folder:
        def __fspath__(self) -> str:
            return str(tmp_path)

    files: Any = Folder()
    assert TextFileSource(files).discover() == []
    assert RateSource(numpy.float32(5), splits=numpy.int64(2)).discover() == ["0", "1"]


@pytest.mark.parametrize("kind", ["geometry(Point,4326)", "numeric(5, -2)", "varchar(9)[]"])
def test_a_column_has_any_type_that_postgresql_shows(kind: str) -> None:
    PostgresSink("host=db.example", "words", {"word": kind})
