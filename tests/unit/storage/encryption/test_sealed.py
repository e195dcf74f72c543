"""Sealed objects give back what was sealed, whole and in parts, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptObjectError, FormatVersionError
from tidelog.storage.encryption.sealed import (
    CHUNK,
    HEADER,
    SALT,
    ObjectIdentity,
    StoreKey,
    content_size,
    key_id_of,
    open_range,
    open_whole,
    seal,
    stored_range,
)

KEY = StoreKey(b"12345678", b"k" * 32)
PLACE = ObjectIdentity(b"store of 16 byte", "segments/a.seg", "object memory://s/segments/a.seg")

SIZES = st.one_of(
    st.integers(0, 200),
    st.builds(
        lambda chunks, off: max(0, chunks * CHUNK + off), st.integers(0, 3), st.integers(-2, 2)
    ),
)


def content(size: int) -> bytes:
    return bytes(i * 7 % 251 for i in range(251)) * (size // 251) + bytes(size % 251)


def sealed(data: bytes, place: ObjectIdentity = PLACE, salt: int = 0) -> bytes:
    return seal(data, KEY, place, salt.to_bytes(SALT, "big"))


@given(SIZES)
def test_an_object_opens_as_what_was_sealed_and_its_size_is_known_from_the_stored_one(
    size: int,
) -> None:
    stored = sealed(content(size))
    assert open_whole(stored, KEY, PLACE) == content(size)
    assert content_size(len(stored)) == size


@given(size=SIZES, start=SIZES, length=st.one_of(st.none(), SIZES.filter(bool)))
def test_a_range_is_the_same_part_of_the_content_as_in_any_store(
    size: int, start: int, length: int | None
) -> None:
    stored = sealed(content(size))
    where = stored_range(start, length)
    end = None if where.length is None else where.start + where.length
    found = open_range(stored[:HEADER], stored[where.start : end], start, length, KEY, PLACE)
    assert found == content(size)[start:][:length]


@given(size=SIZES, data=st.data())
def test_no_changed_bit_is_taken_for_content(size: int, data: st.DataObject) -> None:
    stored = bytearray(sealed(content(size)))
    at = data.draw(st.integers(0, len(stored) * 8 - 1))
    stored[at // 8] ^= 1 << at % 8
    with pytest.raises((CorruptObjectError, FormatVersionError)):
        key_id_of(bytes(stored[:HEADER]), PLACE)
        changed = StoreKey(bytes(stored[16:24]), KEY.secret)
        open_whole(bytes(stored), changed, PLACE)


@given(size=SIZES, data=st.data())
def test_an_object_that_was_cut_short_does_not_open(size: int, data: st.DataObject) -> None:
    stored = sealed(content(size))
    left = data.draw(st.one_of(st.integers(0, len(stored) - 1), st.just(HEADER + CHUNK + 16)))
    if left >= len(stored):
        return
    with pytest.raises(CorruptObjectError):
        key_id_of(stored[:left], PLACE)
        open_whole(stored[:left], KEY, PLACE)


def test_a_range_at_the_new_end_of_an_object_that_was_cut_at_a_chunk_does_not_open() -> None:
    stored = sealed(content(3 * CHUNK))[: HEADER + 2 * (CHUNK + 16)]
    where = stored_range(CHUNK, 2 * CHUNK)
    with pytest.raises(CorruptObjectError, match="cut short"):
        open_range(stored[:HEADER], stored[where.start :], CHUNK, 2 * CHUNK, KEY, PLACE)


def test_chunks_of_an_object_cannot_change_places() -> None:
    stored = sealed(content(3 * CHUNK))
    first, second = stored[HEADER:][: CHUNK + 16], stored[HEADER + CHUNK + 16 :][: CHUNK + 16]
    swapped = stored[:HEADER] + second + first + stored[HEADER + 2 * (CHUNK + 16) :]
    with pytest.raises(CorruptObjectError):
        open_whole(swapped, KEY, PLACE)


@pytest.mark.parametrize(
    "place",
    [
        ObjectIdentity(PLACE.store, "segments/b.seg", "another name"),
        ObjectIdentity(b"store of others.", PLACE.name, "another store"),
        # Where one ends and the other begins counts.
        ObjectIdentity(PLACE.store + b"s", PLACE.name[1:], "both moved by a byte"),
    ],
    ids=lambda place: place.shown,
)
def test_an_object_brought_from_elsewhere_does_not_open(place: ObjectIdentity) -> None:
    with pytest.raises(CorruptObjectError, match="brought from another name or store"):
        open_whole(sealed(b"content"), KEY, place)


def test_an_object_does_not_open_with_another_secret() -> None:
    with pytest.raises(CorruptObjectError):
        open_whole(sealed(b"content"), StoreKey(KEY.id, b"x" * 32), PLACE)


def test_equal_contents_have_no_byte_in_common_beyond_their_keys_name() -> None:
    first, second = sealed(bytes(1000), salt=1), sealed(bytes(1000), salt=2)
    equal = sum(a == b for a, b in zip(first[HEADER:], second[HEADER:], strict=True))
    assert equal < 30  # 4 of 1016 are expected by chance


def test_a_newer_format_is_told_as_such() -> None:
    stored = bytearray(sealed(b"content"))
    stored[8] = 9
    with pytest.raises(FormatVersionError, match="format 9"):
        key_id_of(bytes(stored), PLACE)
