"""Objects and keys of encrypted stores are read, and written the same."""

import hashlib
import struct
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.golden import golden_encryption as golden
from tests.golden.writing import stored
from tidelog.storage.encryption.sealed import open_whole, seal


@pytest.mark.parametrize(
    ("name", "content"), [("sealed_object_v1.bin", golden.CONTENT), ("sealed_empty_v1.bin", b"")]
)
def test_a_sealed_object_of_version_1_is_read(name: str, content: bytes) -> None:
    assert open_whole(stored(name), golden.KEY, golden.PLACE) == content


def test_the_keys_of_a_store_of_version_1_are_read() -> None:
    ring = golden.ring_of(stored("store_keys_v1.json"))
    assert ring is not None and ring.number == 2
    assert ring.store.hex() == "8aa53dc15cda6293625bc1e5a7dffaf6"
    assert [key.hex() for key in ring.keys] == ["32e7aca7e7dc6d7e", "fa6e7d6394ba67bc"]
    assert ring.newest.secret.hex() == (
        "6300962fdec087077eeb8ba72867b3fa7b4fe7129526d519d5e4ac6c5f7512a7"
    )


@pytest.mark.parametrize(("name", "content"), golden.FILES.items())
def test_version_1_is_still_written_the_same(name: str, content: Callable[[], bytes]) -> None:
    assert content() == stored(name)


def test_an_object_of_several_chunks_is_still_written_the_same() -> None:
    sealed = seal(golden.LONG, golden.KEY, golden.PLACE, golden.SALT_BYTES)
    assert hashlib.sha256(sealed).hexdigest() == (
        "1f48d2d7d6d6ff380c7af7d24204c0b07ea647ee752830d4d24627815112686a"
    )


def test_the_format_page_alone_is_enough_to_open_an_object() -> None:
    sealed = seal(golden.LONG + b"end", golden.KEY, golden.PLACE, golden.SALT_BYTES)
    header, body = sealed[:64], sealed[64:]
    assert header[:16] == b"TDLGCRPT" + struct.pack("<HHI", 1, 16, 0)
    assert header[16:48] == golden.KEY.id + golden.SALT_BYTES
    name = golden.PLACE.name.encode()
    info = b"tidelog object 1" + header[:48] + struct.pack("<HH", 16, len(name))
    derived = HKDFExpand(SHA512(), 48, info + golden.PLACE.store + name).derive(golden.KEY.secret)
    assert header[48:] == derived[32:]
    content = b""
    for index, at in enumerate(range(0, len(body), 65_552)):
        last = at + 65_552 >= len(body)
        nonce = struct.pack(">QI", index, last)
        content += AESGCM(derived[:32]).decrypt(nonce, body[at : at + 65_552], None)
    assert content == golden.LONG + b"end"
