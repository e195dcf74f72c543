"""What a running job or query drops while it is read is an error with the reason, never no rows.

Stores on S3 and encrypted ones are read like those on disk.
"""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from tests.support.cli import lay_out
from tests.support.jobs import Dropping, filled, store_of
from tests.unit.spark.source.changelogs import COLUMNS, content_of, expected
from tests.unit.spark.source.reading import Row, bag, planned, read, request
from tests.unit.spark.synthetic import Synthetic
from tests.unit.storage.encryption.test_sealed import EFFECTS, FIRST, key_file
from tests.unit.verify.stores import needed_by, small, with_objects
from tests.wire.servers import S3Server
from tidelog import ConfigError, ObjectNotFoundError, RestoreError, open_store
from tidelog.spark.source.datasource import BatchReader
from tidelog.spark.source.job.listings import plan_objects
from tidelog.spark.source.parts import Listing, ReadRequest
from tidelog.spark.source.views import VIEWS
from tidelog.storage.memory import MemoryStore


def read_after(location: Path, asked: ReadRequest, *gone: str) -> None:
    """Plan, delete, read: as Spark does when the job goes on in between."""
    parts = planned(asked)
    for name in gone:
        (location / name).unlink()
    for part in parts:
        list(BatchReader(asked).read(InputPartition(part)))


@pytest.mark.parametrize(
    ("view", "prefix"),
    [
        ("changes", "segments/"),
        *(("state", prefix) for prefix in ("segments/", "tables/", "materializations/")),
    ],
)
def test_a_checkpoint_dropped_since_the_plan_says_so(
    view: str, prefix: str, tmp_path: Path
) -> None:
    location = lay_out(tmp_path, filled())
    gone = [name for name in filled() if name.startswith(prefix)]
    with pytest.raises(RestoreError, match="has dropped it since, or it is lost") as raised:
        read_after(location, request(location, view=view), *gone)
    assert raised.value.what.endswith(f" of {location}")
    assert "load again" in (raised.value.action or "") and "--retain" in str(raised.value)


def test_a_batch_dropped_since_the_plan_says_so(tmp_path: Path) -> None:
    objects = Synthetic(content=content_of).stock(1).virtual(2).objects
    location = lay_out(tmp_path, objects)
    for gone in ("**/*.seg", "**/*.changelog"):
        names = [str(path.relative_to(location)) for path in location.glob(gone)]
        assert names
        with pytest.raises(RestoreError, match="has dropped it since") as raised:
            read_after(location, request(location, view="changes"), *names)
        assert "minBatchesToRetain" in str(raised.value)
        lay_out(location, objects)


def test_a_checkpoint_dropped_while_objects_are_listed_is_left_out(tmp_path: Path) -> None:
    assert any(n.startswith("materializations/") and needed_by(small(), n) == {5} for n in small())
    dropped = {name for name in small() if needed_by(small(), name) == {5}}
    store = Dropping(small(), "checkpoints/00000008.json", dropped)
    rows = asyncio.run(listed(store, tmp_path))
    assert {slot for row in rows for slot in row["referenced_by"]} == {6, 7, 8}
    assert {row["name"] for row in rows} == small().keys() - dropped


def test_a_descriptor_that_a_retained_checkpoint_lacks_is_an_error(tmp_path: Path) -> None:
    lost = next(n for n in small() if n.startswith("materializations/") and needed_by(small(), n))
    store = store_of({name: data for name, data in small().items() if name != lost})
    with pytest.raises(ObjectNotFoundError, match=lost):
        asyncio.run(listed(store, tmp_path))


async def listed(store: MemoryStore, location: Path) -> list[Row]:
    (part,) = await plan_objects(store, request(location, view="objects"))
    assert isinstance(part, Listing)
    return await part.rows(store)


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
    key = key_file(tmp_path / "key", FIRST)
    with_objects(open_store(str(tmp_path / "secret"), EFFECTS, encryption_key=key), filled())
    for view in VIEWS:
        found = read(tmp_path / "secret", view=view, encryptionKey=key)
        assert found and bag(found) == bag(read(plain, view=view))
    with pytest.raises(ConfigError, match="no encryption key was given"):
        read(tmp_path / "secret", view="changes")
