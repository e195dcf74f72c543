"""Index documents: equal contents are equal text, and what is read is whole."""

import pytest

from tidelog.errors import CorruptObjectError, FormatVersionError
from tidelog.spark.format.index import (
    ChangelogPiece,
    IndexDocument,
    IndexEntry,
    read_index,
)
from tidelog.spark.format.names import ChangelogName
from tidelog.storage.document import checksum


def read(body: str) -> IndexDocument:
    text = f'{{ "crc32c": "{checksum(body.encode())}", "body": {body} }}'
    return read_index(text, "commits/1")


def body_with(changelog: str) -> str:
    return (
        f'{{"changelogs":[{changelog}],"first":1,"format":1,"kind":"spark-index","last":1,'
        '"segments":[["s",200]]}'
    )


def test_fields_of_a_later_release_do_no_harm() -> None:
    body = (
        '{"changelogs":[["0/1",2,"a",9,[[0,44,99,7]],8]],"extra":1,"first":1,"format":1,'
        '"kind":"spark-index","last":1,"segments":[["s",200,"more"]]}'
    )
    entry = IndexEntry(ChangelogName(0, 1, "default", 2, "a"), 9, (ChangelogPiece("s", 44, 99),))
    assert read(body) == IndexDocument(1, 1, {"s": 200}, (entry,))


@pytest.mark.parametrize(
    "body",
    [
        body_with('["0/1",2,"a",9,[[1,44,99]]]'),
        body_with('["0/1",2,"a",9,[]]'),
        body_with('["0/1",2,"a",9,[[0,44]]]'),
        body_with('["0/1",3,"a",9,[[0,44,99]]]'),
        body_with('["0",2,"a",9,[[0,44,99]]]'),
        body_with('["0/1",2,"a",-9,[[0,44,99]]]'),
        body_with('["0/1","2","a",9,[[0,44,99]]]'),
        '{"format":1,"kind":"spark-index"}',
        '{"format":1,"kind":"slot"}',
        "[]",
    ],
)
def test_an_index_that_is_not_whole_is_refused_under_a_good_checksum(body: str) -> None:
    with pytest.raises(CorruptObjectError, match=r"commits/1 is damaged.*a restarted query writes"):
        read(body)


def test_an_index_of_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(FormatVersionError, match=r"commits/1.*format 2"):
        read('{"format":2,"new":{}}')
