"""A store on a file system of fsspec: it creates exclusively, or it is refused at open."""

from pathlib import Path

import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from gcsfs import GCSFileSystem
from obstore.fsspec import FsspecStore
from s3fs import S3FileSystem

from tests.unit.storage.conformance import names
from tidelog import ConditionalPutError, ConfigError, open_store
from tidelog.effects import Effects, InlineOffload
from tidelog.storage.port import ObjectStore

INLINE = Effects(offload=InlineOffload())


def open_on(filesystem: AbstractFileSystem, url: str) -> ObjectStore:
    return open_store(url, filesystem=filesystem, effects=INLINE)


async def test_a_local_file_system_is_the_directory(tmp_path: Path) -> None:
    for url in (str(tmp_path), tmp_path.as_uri()):
        store = open_on(LocalFileSystem(), url)
        await store.create(f"by/{len(url)}", b"x")
        assert await names(open_store(tmp_path, effects=INLINE)) == await names(store)
    assert len(await names(store)) == 2


class OwnFileSystem(LocalFileSystem):
    """Another class, which may write in another way."""


@pytest.mark.parametrize(
    ("filesystem", "url"),
    [
        (MemoryFileSystem(), "memory://name"),
        (OwnFileSystem(), "file:///tmp/store"),
        (DirFileSystem("bucket", fs=S3FileSystem(anon=True)), "dir://prefix"),
        (FsspecStore("s3", config={"skip_signature": True}), "s3://bucket/prefix"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_file_system_that_is_not_known_to_create_exclusively_is_refused(
    filesystem: AbstractFileSystem, url: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        open_on(filesystem, url)
    text = str(refused.value)
    assert type(filesystem).__name__ in text
    assert "S3FileSystem of s3fs" in text
    assert "two starts of a job could both win" in text
    assert "leave filesystem= out" in text


@pytest.mark.parametrize(
    ("filesystem", "url"),
    [
        (LocalFileSystem(), "s3://bucket/prefix"),
        (S3FileSystem(anon=True), "gs://bucket/prefix"),
        (S3FileSystem(anon=True), "/tmp/store"),
        (GCSFileSystem(token="anon"), "s3://bucket/prefix"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_url_of_another_file_system_is_refused(filesystem: AbstractFileSystem, url: str) -> None:
    with pytest.raises(ConfigError, match="a URL of the file system"):
        open_on(filesystem, url)


def test_options_beside_a_file_system_are_refused() -> None:
    filesystem = S3FileSystem(anon=True)
    with pytest.raises(ConfigError, match=r"region.*pass them to S3FileSystem\(\.\.\.\)"):
        open_store("s3://bucket", filesystem=filesystem, options={"region": "eu-west-1"})


@pytest.mark.parametrize("argument", ["key", "secret", "token"])
async def test_a_credential_of_a_file_system_is_masked_in_errors(argument: str) -> None:
    sentinel = f"sentinel-{argument}-of-a-file-system"
    filesystem = S3FileSystem(anon=True, **{argument: sentinel}, config_kwargs={sentinel: 1})
    store = open_on(filesystem, "s3://bucket/prefix")
    with pytest.raises(ConfigError) as raised:
        await store.get("name")
    assert sentinel not in str(raised.value)
    assert "***" in str(raised.value)


async def test_a_create_without_its_condition_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """s3fs leaves out of a request what an old botocore does not know."""
    monkeypatch.setattr(S3FileSystem, "_filter_kwargs", lambda self, method, arguments: {})
    store = open_on(S3FileSystem(key="key", secret="secret"), "s3://bucket/prefix")
    try:
        with pytest.raises(ConditionalPutError, match=r"botocore older than 1\.36"):
            await store.create("name", b"x")
    finally:
        await store.close()
