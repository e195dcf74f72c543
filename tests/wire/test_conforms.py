"""Stores of S3, Google Cloud and Azure, through real sockets, keep the port's promises.

The probe, against servers that keep their promises and servers that do not.
"""

import asyncio
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.documentation import BLOCKS
from tests.unit.storage.conformance import (
    Opener,
    RaceConformance,
    StoreConformance,
    fill,
    names,
    opened,
)
from tests.wire.calls import CLIENTS, OPERATIONS
from tests.wire.proxy import Behaviour, proxy
from tests.wire.servers import CloudServer, S3Server
from tidelog import open_store
from tidelog.effects import Effects
from tidelog.storage.config import S3Client
from tidelog.storage.probe import ProbeReport, probe_store

# Libraries of the clouds are imported where they are used: they take seconds, in every worker.

_prefixes = count()


def fresh_opener(server: S3Server | CloudServer, client: S3Client = "obstore") -> Opener:
    url = server.url(f"conformance/{next(_prefixes)}")
    if isinstance(server, S3Server):
        s3 = import_module(f"tidelog.storage.{CLIENTS[client]}")
        return lambda: s3.open_s3_store(url, server.options)
    if server.scheme == "az":
        azure = import_module("tidelog.storage.azure")
        return lambda: azure.open_azure_store(url, server.options)
    gcs = import_module("tidelog.storage.gcs")
    return lambda: gcs.open_gcs_store(url, Effects(), server.options)


class TestS3Store(StoreConformance):
    @pytest.fixture
    def opener(self, s3_client: S3Client, s3_server: S3Server) -> Opener:
        return fresh_opener(s3_server, s3_client)


class TestS3StoreUnderRace(RaceConformance):
    """Only on a server whose check and write are one step: moto and ministack check, then write,
    and under load hand out two winners. `tidelog store check` is there to report such servers."""

    @pytest.fixture
    def opener(self, s3_client: S3Client, versitygw: S3Server) -> Opener:
        return fresh_opener(versitygw, s3_client)


class TestClouds(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, cloud: CloudServer) -> Opener:
        return fresh_opener(cloud)


class TestFileSystems(StoreConformance, RaceConformance):
    """On file systems that a program has made; of S3 on one that it has used itself."""

    @pytest.fixture(params=["versitygw", "fake_gcs"])
    def opener(self, request: pytest.FixtureRequest) -> Opener:
        server: S3Server | CloudServer = request.getfixturevalue(request.param)
        url = server.url(f"conformance/{next(_prefixes)}")
        filesystem = filesystem_on(server)
        if isinstance(server, S3Server):
            filesystem.pipe_file(f"{url}/by-the-program", b"x")
            filesystem.rm_file(f"{url}/by-the-program")
        return lambda: open_store(url, filesystem=filesystem)


def filesystem_on(server: S3Server | CloudServer) -> Any:
    if isinstance(server, CloudServer):
        gcsfs = import_module("gcsfs")
        return gcsfs.GCSFileSystem(endpoint_url=server.endpoint, token="anon")
    s3fs = import_module("s3fs")
    return s3fs.S3FileSystem(
        key=server.key,
        secret=server.secret,
        endpoint_url=server.endpoint,
        client_kwargs={"region_name": server.region},
    )


async def test_the_file_system_of_the_guide_leads_where_its_profile_says(
    moto: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = replace(moto, bucket="bucket").with_bucket()
    profile = {
        "aws_access_key_id": server.key,
        "aws_secret_access_key": server.secret,
        "endpoint_url": server.endpoint,
    }
    settings = "".join(f"{name} = {value}\n" for name, value in profile.items())
    (tmp_path / "config").write_text(f"[profile streams]\n{settings}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    program: dict[str, Any] = {}
    exec(BLOCKS["object-stores 0"], program)
    async with opened(lambda: program["store"]) as store:
        await store.create("checkpoints/1", b"x")
    with closing(server.client()) as client:
        answer = client.get_object(Bucket="bucket", Key="jobs/wordcount/checkpoints/1")
        assert answer["Body"].read() == b"x"


async def test_a_list_goes_on_after_a_full_page(
    s3_client: S3Client, moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    written = [f"many/{number:05d}" for number in range(25)]
    async with opened(fresh_opener(moto, s3_client)) as store:
        await fill(store, *written)
        assert await names(store, "many/") == written
        assert await names(store, "many/", written[2]) == written[3:]


def probe(server: S3Server) -> ProbeReport:
    async def main() -> ProbeReport:
        effects = Effects()
        url = server.url("probed")
        stores = [open_store(url, effects=effects, options=server.options) for _ in range(4)]
        try:
            return await probe_store(stores, effects, racers=16, rounds=5)
        finally:
            for store in stores:
                await store.close()

    return asyncio.run(main())


def failed(report: ProbeReport) -> set[str]:
    return {check.name for check in report.checks if not check.passed}


def leftovers(server: S3Server) -> int:
    with closing(server.client()) as client:
        count: int = client.list_objects_v2(Bucket=server.bucket, Prefix="probed/")["KeyCount"]
        return count


def test_an_honest_server_passes_and_is_left_clean(versitygw: S3Server) -> None:
    report = probe(versitygw)
    assert failed(report) == set()
    assert leftovers(versitygw) == 0
    assert {latency.operation for latency in report.latencies} == set(OPERATIONS)


def test_a_server_that_ignores_conditions_is_found_out(moto: S3Server) -> None:
    with proxy(moto.endpoint, Behaviour(ignore_conditions=True)) as endpoint:
        report = probe(replace(moto, endpoint=endpoint))
    assert failed(report) == {"refuse overwrite", "create race"}
    messages = " ".join(check.message for check in report.checks)
    assert "ignores If-None-Match" in messages
    assert "16 of 16 racing creates" in messages
