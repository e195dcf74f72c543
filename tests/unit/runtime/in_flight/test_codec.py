"""In-flight data comes back as it was, and nothing but what the job allows is ever built."""

import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.changelog.block import Block, BlockKind, open_block, seal_opaque
from tidelog.errors import CorruptObjectError, UnstorableError
from tidelog.ids import SeqNo
from tidelog.runtime.channels.messages import Batch, Watermark
from tidelog.runtime.in_flight import codec
from tidelog.runtime.in_flight.capture import ChannelData, ChannelId
from tidelog.runtime.in_flight.codec import decode, encode
from tidelog.state.objects.classes import RecordTypes

CHANNEL = ChannelId("count", 0, 1, 2, at_producer=True)
BASIC = RecordTypes()

plain = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
    ),
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner, inner), st.dictionaries(st.text(), inner)
    ),
    max_leaves=8,
)


class Parcel:
    """A type of a user that is no data type."""

    def __init__(self, item: str, price: Decimal) -> None:
        self.item = item
        self.price = price

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parcel) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Weight(float):
    """A number of a kind."""


def through(parts: list[ChannelData], types: RecordTypes = BASIC) -> list[ChannelData]:
    sealed = encode(parts, types, SeqNo(5)).blocks
    assert sealed[0].first == 5
    assert [block.first for block in sealed[1:]] == [block.end for block in sealed[:-1]]
    return decode([open_block(block.data) for block in sealed], types)


@given(st.lists(plain), st.integers())
def test_what_is_decoded_is_what_was_encoded_types_included(records: list[Any], time: int) -> None:
    timed = Batch(records, list(range(len(records))))
    part = ChannelData(CHANNEL, [Batch(records), Watermark(time % 2**63), timed])
    (back,) = through([part])
    assert back == part
    assert repr(back) == repr(part), "a tuple is no list, and True is not 1"


def test_a_users_type_is_stored_when_the_job_names_it_and_refused_when_not() -> None:
    records = [Parcel("tea", Decimal(3)), Weight(2.5)]
    part = ChannelData(CHANNEL, [Batch(records)])
    named = RecordTypes([Parcel, Weight])
    assert through([part], named) == [part]
    with pytest.raises(UnstorableError, match=r"record_types.*Parcel"):
        encode([part], BASIC, SeqNo(0))
    (block,) = encode([part], named, SeqNo(0)).blocks
    with pytest.raises(UnstorableError, match="Parcel"):
        decode([open_block(block.data)], BASIC)


class Evil:
    """Would call a function when it is loaded."""

    def __reduce__(self) -> Any:
        return print, ("never",)


def pickled(records: bytes) -> Block:
    """A block as older releases stored it."""
    part = codec._Part("count", 0, 0, 0, False, [codec._Buffer(records, None)])
    payload = codec.msgspec.msgpack.encode([part])
    return open_block(seal_opaque(BlockKind.IN_FLIGHT, payload, 1, SeqNo(0)).data, name="the-seg")


def test_a_forged_object_calls_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnstorableError, match=r"builtins\.print"):
        decode([pickled(pickle.dumps([Evil()]))], BASIC)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("records", [b"", b"\x80\x05K\x01", pickle.dumps({"no": "list"})])
def test_damaged_records_are_an_error_that_names_the_object(records: bytes) -> None:
    with pytest.raises(CorruptObjectError, match="the-seg"):
        decode([pickled(records)], BASIC)


def test_long_data_is_cut_into_blocks_and_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "BLOCK_BYTES", 100)
    other = ChannelId("count", 0, 1, 3, at_producer=True)
    parts = [
        ChannelData(CHANNEL, [Batch([n] * 20) for n in range(9)]),
        ChannelData(other, [Watermark(1), Batch(["x"])]),
    ]
    assert len(encode(parts, BASIC, SeqNo(0)).blocks) > 2
    back = through(parts)
    for part in parts:
        pieces = [piece.data for piece in back if piece.channel == part.channel]
        assert [message for piece in pieces for message in piece] == part.data
    assert encode([], BASIC, SeqNo(3)).blocks == []
