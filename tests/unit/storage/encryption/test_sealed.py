"""Sealed objects give back what was sealed, whole and in parts, and nothing else.

Where keys come from, and what a wrong one says.
"""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import ConfigError, CorruptObjectError, FormatVersionError, open_store
from tidelog.effects import Effects, InlineOffload
from tidelog.storage.encryption.keys import key_id, key_line, key_source
from tidelog.storage.encryption.sealed import (
    CHUNK,
    HEADER,
    SALT,
    ObjectIdentity,
    StoreKey,
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


def sealed(data: bytes) -> bytes:
    return seal(data, KEY, PLACE, bytes(SALT))


@given(size=SIZES, data=st.data())
def test_no_changed_bit_is_taken_for_content(size: int, data: st.DataObject) -> None:
    stored = bytearray(sealed(content(size)))
    at = data.draw(st.integers(0, len(stored) * 8 - 1))
    stored[at // 8] ^= 1 << at % 8
    with pytest.raises((CorruptObjectError, FormatVersionError)):
        key_id_of(bytes(stored[:HEADER]), PLACE)
        changed = StoreKey(bytes(stored[16:24]), KEY.secret)
        open_whole(bytes(stored), changed, PLACE)


def test_a_range_at_the_new_end_of_an_object_that_was_cut_at_a_chunk_does_not_open() -> None:
    stored = sealed(content(3 * CHUNK))[: HEADER + 2 * (CHUNK + 16)]
    start, _ = stored_range(CHUNK, 2 * CHUNK)
    with pytest.raises(CorruptObjectError, match="cut short"):
        open_range(stored[:HEADER], stored[start:], CHUNK, 2 * CHUNK, KEY, PLACE)


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
    ids=lambda place: place.label,
)
def test_an_object_brought_from_elsewhere_does_not_open(place: ObjectIdentity) -> None:
    with pytest.raises(CorruptObjectError, match="brought from another name or store"):
        open_whole(sealed(b"content"), KEY, place)


def test_a_newer_format_is_told_as_such() -> None:
    stored = bytearray(sealed(b"content"))
    stored[8] = 9
    with pytest.raises(FormatVersionError, match="format 9"):
        key_id_of(bytes(stored), PLACE)


EFFECTS = Effects(offload=InlineOffload())
FIRST, SECOND = b"1" * 32, b"2" * 32


def key_file(path: Path, *keys: bytes) -> str:
    path.write_text("# a comment\n\n" + "".join(f"{key_line(key)}\n" for key in keys))
    path.chmod(0o600)
    return str(path)


async def test_the_first_key_of_a_file_wraps_and_every_one_opens(tmp_path: Path) -> None:
    old = key_source(key_file(tmp_path / "old", FIRST), EFFECTS)
    both = key_source(key_file(tmp_path / "both", SECOND, FIRST), EFFECTS)
    wrapped = await old.wrap(b"s" * 32, "context")
    assert await both.unwrap(wrapped, "context") == b"s" * 32
    newer = await both.wrap(b"s" * 32, "context")
    assert newer.by == f"local:{key_id(SECOND)}"
    assert await old.unwrap(newer, "context") is None
    assert await both.unwrap(wrapped, "another context") is None


async def test_a_key_can_be_in_the_environment_or_come_from_openssl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_KEY", base64.b64encode(FIRST).decode())
    path = tmp_path / "key"
    path.write_text(base64.b64encode(FIRST).decode() + "\n")
    path.chmod(0o600)
    wrapped = await key_source("env:STATE_KEY", EFFECTS).wrap(b"s" * 32, "context")
    assert await key_source(f"file:{path}", EFFECTS).unwrap(wrapped, "context") == b"s" * 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found none"),
        ("# nothing but a comment\n", "found none"),
        ("secret-but-no-key", "a line of 17 characters that is not"),
        (base64.b64encode(b"31 bytes are too few for a key!").decode(), "44 characters"),
        (base64.b64encode(FIRST).decode() + "\nmore", "a line of 4 characters"),
    ],
)
def test_a_file_without_a_key_is_an_error_that_does_not_show_what_is_in_it(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        key_source(str(path), EFFECTS)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "key", [base64.b64encode(b"never read before".ljust(32)).decode(), "5e" * 32]
)
def test_a_key_in_place_of_where_it_is_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="found a key itself") as caught:
        open_store("memory://refused", effects=EFFECTS, encryption_key=key)
    assert key not in str(caught.value)
