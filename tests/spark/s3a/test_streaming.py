"""A stateful query on an S3 checkpoint is exact through restarts."""

from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from tests.spark.s3a.conftest import ADVISED, LoggedServer, s3a_options
from tests.spark.support.application import Application, Job
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.stores import EAGER, store_settings
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import events, single

_checkpoints = count()
BATCHES = single(events(seed=71, batches=10, per_batch=20))


@dataclass(frozen=True)
class Query:
    """A query that counts, with its checkpoint on S3; none of its drivers outlives a test."""

    logged: LoggedServer
    jars: list[Path]
    place: Place
    prefix: str = field(default_factory=lambda: f"checkpoint-{next(_checkpoints)}/checkpoint")

    def run(self) -> None:
        """A driver that takes all input there is."""
        url = f"s3a://{self.logged.server.bucket}/{self.prefix}"
        job = Job(self.place, TOTALS.name, checkpoint=url)
        with Application((job,), settings(self.logged, self.jars)) as driver:
            driver.finish()

    def assert_right(self, batches: int, directory: Path) -> None:
        """The result is that of so many batches, and the checkpoint is complete."""
        assert TOTALS.result(self.place.rows()) == TOTALS.expected(BATCHES[:batches])
        server = self.logged.server
        with closing(server.client()) as client:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=server.bucket, Prefix=f"{self.prefix}/"
            )
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
            assert not [key for key in keys if ".tmp" in key]
            for key in (key for key in keys if not key.endswith("/")):
                path = directory / key.removeprefix(f"{self.prefix}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(client.get_object(Bucket=server.bucket, Key=key)["Body"].read())
        assert_complete(directory)


def settings(logged: LoggedServer, jars: list[Path]) -> dict[str, str]:
    hadoop = s3a_options(logged.server) | ADVISED
    given = store_settings() | EAGER
    given["spark.jars"] = ",".join([given["spark.jars"], *map(str, jars)])
    return given | {f"spark.hadoop.{key}": value for key, value in hadoop.items()}


@pytest.fixture
def query(logged: LoggedServer, s3a_jars: list[Path], place: Place) -> Query:
    return Query(logged, s3a_jars, place)


def test_a_query_restarts_from_s3_and_writes_each_object_once_and_never_by_copy(
    logged: LoggedServer, query: Query, tmp_path: Path
) -> None:
    before = len(logged.requests())
    for part in (BATCHES[:5], BATCHES[5:]):
        add(query.place, part)
        query.run()
    requests = logged.requests()[before:]
    assert not [each for each in requests if "Copy" in each.operation]
    written = [each.key for each in requests if each.operation == "PutObject"]
    assert len(written) == len(set(written))
    assert not [key for key in written if key.endswith(".changelog") or ".tmp" in key]
    query.assert_right(10, tmp_path / "objects")
