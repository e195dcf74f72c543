"""The data source reads encrypted stores by the same options as others, and the key's place."""

import asyncio
from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import filled
from tests.unit.spark.source.reading import bag, read
from tests.unit.storage.encryption.test_keys import EFFECTS, FIRST, key_file
from tidelog.errors import ConfigError
from tidelog.storage.open import open_store


def encrypted(directory: Path, key: str) -> Path:
    """The filled store of the tests, encrypted."""

    objects = filled()

    async def write() -> None:
        store = open_store(str(directory), EFFECTS, encryption_key=key)
        for name, data in objects.items():
            await store.put(name, data)

    asyncio.run(write())
    return directory


@pytest.mark.parametrize("view", ["changes", "blocks", "checkpoints", "objects"])
def test_a_view_of_an_encrypted_store_is_that_of_a_plain_one(tmp_path: Path, view: str) -> None:
    key = key_file(tmp_path / "key", FIRST)
    plain = read(lay_out(tmp_path / "plain", filled()), view=view)
    found = read(encrypted(tmp_path / "secret", key), view=view, encryptionKey=key)
    assert plain and bag(found, list(plain[0])) == bag(plain, list(plain[0]))


def test_an_encrypted_store_is_not_read_without_its_key(tmp_path: Path) -> None:
    location = encrypted(tmp_path / "secret", key_file(tmp_path / "key", FIRST))
    with pytest.raises(ConfigError, match="no encryption key was given"):
        read(location, view="changes")


def test_a_key_is_no_place_of_a_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"option encryptionKey.*a key itself") as caught:
        read(tmp_path, view="changes", encryptionKey="a" * 43 + "=")
    assert "aaa" not in str(caught.value)
