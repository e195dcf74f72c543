"""Stores on S3 and encrypted ones are read like those on disk."""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import filled
from tests.unit.spark.source.changelogs import COLUMNS, content_of, expected
from tests.unit.spark.source.reading import bag, read
from tests.unit.spark.synthetic import Synthetic
from tests.unit.storage.encryption.test_keys import EFFECTS, FIRST, key_file
from tests.wire.servers import S3Server
from tidelog.errors import ConfigError
from tidelog.spark.source.views import VIEWS
from tidelog.storage.open import open_store


@pytest.fixture
def server(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in moto.env.items():
        if name != "AWS_ENDPOINT_URL":
            monkeypatch.setenv(name, value)
    return moto


def put(server: S3Server, prefix: str, objects: Mapping[str, bytes]) -> None:
    with closing(server.client()) as client:
        for name, data in objects.items():
            client.put_object(Bucket=server.bucket, Key=f"{prefix}/{name}", Body=data)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("plain"), filled())


def test_a_store_on_s3_reads_like_one_on_disk(server: S3Server, plain: Path) -> None:
    put(server, "source-job", filled())
    url = f"s3://{server.bucket}/source-job"
    for view in VIEWS:
        found = read(url, view=view, endpoint=server.endpoint)
        assert found and bag(found) == bag(read(plain, view=view))


def test_a_query_on_s3_is_read_by_its_location_in_spark(server: S3Server) -> None:
    made = Synthetic(partitions=3, content=content_of).virtual(3)
    put(server, "source-query", made.objects)
    url = f"s3a://{server.bucket}/source-query"
    assert bag(read(url, view="changes", endpoint=server.endpoint), COLUMNS) == bag(expected(made))


def test_an_encrypted_store_reads_like_a_plain_one_with_its_key(
    plain: Path, tmp_path: Path
) -> None:
    key, objects = key_file(tmp_path / "key", FIRST), filled()

    async def write() -> None:
        store = open_store(str(tmp_path / "secret"), EFFECTS, encryption_key=key)
        for name, data in objects.items():
            await store.put(name, data)

    asyncio.run(write())
    for view in VIEWS:
        found = read(tmp_path / "secret", view=view, encryptionKey=key)
        assert found and bag(found) == bag(read(plain, view=view))
    with pytest.raises(ConfigError, match="no encryption key was given"):
        read(tmp_path / "secret", view="changes")


def test_a_key_is_not_accepted_in_place_of_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"option encryptionKey.*a key itself") as caught:
        read(tmp_path, view="changes", encryptionKey="a" * 43 + "=")
    assert "aaa" not in str(caught.value)
