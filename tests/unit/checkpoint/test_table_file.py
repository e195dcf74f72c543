"""A table file is taken only for what it is."""

import pytest

from tidelog.checkpoint.manifest import TableObject
from tidelog.checkpoint.table_file import check_table_file, content_hash
from tidelog.errors import CorruptObjectError
from tidelog.storage.document import checksum
from tidelog.table.frame import encode_rows


def stored(data: bytes) -> TableObject:
    name = f"tables/00000001/{content_hash(data)}-count-0-3.sst"
    return TableObject("000012.sst", name, len(data), checksum(data))


def test_the_bytes_of_a_file_pass() -> None:
    data = encode_rows([(b"key", b"value")])
    check_table_file(stored(data), data, "restore an older slot")


@pytest.mark.parametrize("damage", [b"", b"short", encode_rows([(b"kez", b"value")])[:-1] + b"\0"])
def test_other_bytes_are_refused_with_the_name_of_the_object(damage: bytes) -> None:
    file = stored(encode_rows([(b"key", b"value")]))
    with pytest.raises(CorruptObjectError, match=file.object):
        check_table_file(file, damage, "restore an older slot")


def test_another_file_of_the_same_length_and_crc_is_refused() -> None:
    """Whatever ends with its own CRC32C has one and the same CRC32C."""
    file, other = encode_rows([(b"key", b"value")]), encode_rows([(b"key", b"VALUE")])
    assert len(file) == len(other)
    assert checksum(file) == checksum(other)
    with pytest.raises(CorruptObjectError, match="content whose hash"):
        check_table_file(stored(file), other, "restore an older slot")
