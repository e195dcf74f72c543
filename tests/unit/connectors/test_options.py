"""What is not given, such as an option of the command line that a job passes on, is named."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.unit.connectors.sinks.job import context
from tidelog import (
    Callback,
    ConfigError,
    DeadLetterTopic,
    Files,
    Iceberg,
    Job,
    JsonLines,
    KafkaSink,
    KafkaSource,
    ParquetFiles,
    Postgres,
    PostgresOutbox,
    Rate,
    Sqlite,
    Stdout,
    TextFiles,
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


URL = "s3://bucket/words"

WRONG: list[tuple[str, Callable[[Any], object]]] = [
    ("path= of TextFiles; expected Path | str; found 5", lambda _: TextFiles(5)),
    ("include= of JsonLines; expected str; found 5", lambda path: JsonLines(path, 5)),
    ("chunk_bytes= of TextFiles", lambda path: TextFiles(path, chunk_bytes="1")),
    ("batch_rows= of ParquetFiles", lambda path: ParquetFiles(path, batch_rows=1.5)),
    ("columns= of ParquetFiles", lambda path: ParquetFiles(path, columns=["a", 1])),
    ("records_per_s= of Rate; expected float", lambda _: Rate("5")),
    ("records_per_s; .*found nan", lambda _: Rate(math.nan)),
    ("start= of Rate; expected int", lambda _: Rate(5, start="0")),
    ("make= of Rate", lambda _: Rate(5, make="record")),
    ("directory= of Files", lambda _: Files(5)),
    ("roll_bytes= of Files", lambda path: Files(path, roll_bytes="1MB")),
    ("roll_every= of Files", lambda path: Files(path, roll_every="1 min")),
    ("fields= of Files", lambda path: Files(path, fields=("a", 1))),
    ("fields= of Stdout; .*found 'word'", lambda _: Stdout("json", fields="word")),
    ("function= of Callback", lambda _: Callback(5)),
    ("flush= of Callback", lambda _: Callback(print, flush=5)),
    ("connect_s= of KafkaSource", lambda _: KafkaSource("a", bootstrap="a:1", connect_s="1")),
    ("topic= of KafkaSink", lambda _: KafkaSink(5, bootstrap="a:1")),
    ("headers= of KafkaSink", lambda _: KafkaSink("a", bootstrap="a:1", headers={})),
    ("topic of a DeadLetterTopic; .*None", lambda _: DeadLetterTopic(ABSENT)),
    ("table= of Postgres", lambda _: Postgres("host=a", 5, COLUMNS)),
    ("columns of table 'words'", lambda _: Postgres("host=a", "words", {"word": 5})),
    ("poll= of PostgresOutbox", lambda _: PostgresOutbox("host=a", "words", poll="1")),
    ("columns= of Sqlite; .*Mapping", lambda path: Sqlite(path, "words", ["word"])),
    ("catalog= of Iceberg", lambda _: Iceberg(5, "lake.words")),
    ("path of the input; .*, no URL, .*; found 's3://bucket/words'", lambda _: JsonLines(URL)),
    ("path of the input; .*, no URL", lambda _: ParquetFiles(URL)),
    ("directory; .*, no URL, .*; found 's3://bucket/words'", lambda _: Files(URL)),
    ("path of the database; .*, no URL", lambda _: Sqlite(URL, "words", COLUMNS)),
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
    assert TextFiles(files).discover() == []
    assert Rate(numpy.float32(5), splits=numpy.int64(2)).discover() == ["0", "1"]


@pytest.mark.parametrize("kind", ["geometry(Point,4326)", "numeric(5, -2)", "varchar(9)[]"])
def test_a_column_has_any_type_that_postgresql_shows(kind: str) -> None:
    Postgres("host=db.example", "words", {"word": kind})
