"""Slots and descriptors stay readable, byte for byte."""

import json
from collections.abc import Callable

import pytest

from tests.golden import golden_documents as golden
from tests.golden.writing import stored
from tidelog.checkpoint.descriptor import decode_descriptor
from tidelog.checkpoint.manifest import decode_entry
from tidelog.errors import CorruptObjectError, FormatVersionError
from tidelog.storage.document import checksum


def read(data: bytes, name: str) -> object:
    return (decode_descriptor if name.startswith("descriptor") else decode_entry)(data, name)


@pytest.mark.parametrize(("name", "content"), golden.DOCUMENTS.items())
def test_a_document_of_version_1_is_read(name: str, content: object) -> None:
    assert read(stored(name), name) == content


@pytest.mark.parametrize(("name", "content"), golden.FILES.items())
def test_a_document_of_version_1_is_still_written_the_same(
    name: str, content: Callable[[], bytes]
) -> None:
    assert content() == stored(name)


@pytest.mark.parametrize("name", golden.FILES)
def test_every_flipped_bit_of_a_document_is_found(name: str) -> None:
    data = stored(name)
    for at in range(len(data)):
        for bit in range(8):
            damaged = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            # White space around the envelope's fields carries nothing, and hex has two cases.
            try:
                assert read(damaged, name) == read(data, name)
            except CorruptObjectError as error:
                assert name in str(error)


@pytest.mark.parametrize("name", golden.FILES)
def test_every_truncation_of_a_document_is_found(name: str) -> None:
    data = stored(name).rstrip(b"\n")
    for length in range(len(data)):
        with pytest.raises(CorruptObjectError, match="damaged"):
            read(data[:length], name)


def test_a_document_of_a_newer_version_is_refused_by_name() -> None:
    body = json.loads(stored("slot_start_v1.json"))["body"] | {"format": 2, "new": "field"}
    raw = json.dumps(body)
    envelope = f'{{"body":{raw},"crc32c":"{checksum(raw.encode())}"}}'
    with pytest.raises(FormatVersionError, match=r"slot-9.*format 2"):
        decode_entry(envelope.encode(), "slot-9")
