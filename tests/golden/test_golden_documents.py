"""Slots and descriptors written by the first release stay readable, byte for byte."""

import json
from collections.abc import Callable

import pytest

from tests.golden import golden_documents as golden
from tests.golden.writing import FOLDER
from tidelog.checkpoint.manifest import decode_descriptor, decode_entry
from tidelog.errors import CorruptObjectError, FormatVersionError
from tidelog.storage.document import checksum


def stored(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def test_a_start_slot_of_version_1_is_read() -> None:
    assert decode_entry(stored("slot_start_v1.json"), "slot") == golden.START


def test_a_checkpoint_of_version_1_is_read() -> None:
    assert decode_entry(stored("slot_checkpoint_v1.json"), "slot") == golden.CHECKPOINT


def test_a_savepoint_of_version_1_is_read() -> None:
    assert decode_entry(stored("slot_savepoint_v1.json"), "slot") == golden.SAVEPOINT


def test_a_checkpoint_with_inherited_state_is_read() -> None:
    assert decode_entry(stored("slot_checkpoint_inherited_v1.json"), "slot") == golden.RESCALED


def test_a_checkpoint_with_a_finished_operator_is_read() -> None:
    assert decode_entry(stored("slot_checkpoint_finished_v1.json"), "slot") == golden.FINISHED


def test_a_checkpoint_with_operator_state_is_read() -> None:
    read = decode_entry(stored("slot_checkpoint_operator_state_v1.json"), "slot")
    assert read == golden.WITH_OPERATOR_STATE


def test_a_checkpoint_with_key_groups_ahead_of_the_watermark_is_read() -> None:
    assert decode_entry(stored("slot_checkpoint_ahead_v1.json"), "slot") == golden.AHEAD


def test_a_checkpoint_with_records_in_flight_is_read() -> None:
    read = decode_entry(stored("slot_checkpoint_in_flight_v1.json"), "slot")
    assert read == golden.IN_FLIGHT


def test_a_descriptor_of_version_1_is_read() -> None:
    assert decode_descriptor(stored("descriptor_v1.json"), "descriptor") == golden.DESCRIPTOR


@pytest.mark.parametrize(("name", "content"), golden.FILES.items())
def test_a_document_of_version_1_is_still_written_the_same(
    name: str, content: Callable[[], bytes]
) -> None:
    assert content() == stored(name)


@pytest.mark.parametrize("name", golden.FILES)
def test_every_flipped_bit_of_a_document_is_found(name: str) -> None:
    data = stored(name)
    read = decode_descriptor if name.startswith("descriptor") else decode_entry
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
    read = decode_descriptor if name.startswith("descriptor") else decode_entry
    for length in range(len(data)):
        with pytest.raises(CorruptObjectError, match="damaged"):
            read(data[:length], name)


def test_a_document_of_a_newer_version_is_refused_by_name() -> None:
    body = json.loads(stored("slot_start_v1.json"))["body"] | {"format": 2, "new": "field"}
    raw = json.dumps(body)
    envelope = f'{{"body":{raw},"crc32c":"{checksum(raw.encode())}"}}'
    with pytest.raises(FormatVersionError, match=r"slot-9.*format 2"):
        decode_entry(envelope.encode(), "slot-9")
