"""Stores on S3 are read like those on disk, by URLs of both kinds and by option endpoint."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import filled
from tests.unit.spark.source.changelogs import COLUMNS, expected, real_changelogs
from tests.unit.spark.source.reading import bag, read
from tests.unit.spark.synthetic import Synthetic
from tests.wire.servers import S3Server

__all__ = ["real_changelogs"]


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


@pytest.mark.parametrize("view", ["checkpoints", "objects", "blocks", "changes", "state"])
def test_a_store_on_s3_reads_like_one_on_disk(server: S3Server, view: str, tmp_path: Path) -> None:
    put(server, "source-job", filled())
    url = f"s3://{server.bucket}/source-job"
    found = read(url, view=view, endpoint=server.endpoint)
    assert bag(found) == bag(read(lay_out(tmp_path, filled()), view=view))


def test_a_query_on_s3_is_read_by_its_location_in_spark(server: S3Server) -> None:
    made = Synthetic(partitions=3).virtual(3)
    put(server, "source-query", made.objects)
    url = f"s3a://{server.bucket}/source-query"
    assert bag(read(url, view="changes", endpoint=server.endpoint), COLUMNS) == bag(expected(made))
