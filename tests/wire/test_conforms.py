"""Stores of S3, Google Cloud and Azure, through real sockets, keep the port's promises.

The probe, against servers that keep their promises and servers that do not.
"""

import asyncio
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from itertools import count

import pytest

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
from tidelog.storage.probe import ProbeReport, probe_store
from tidelog.storage.config import S3Client

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
    def opener(self, client: S3Client, s3_server: S3Server) -> Opener:
        return fresh_opener(s3_server, client)


class TestS3StoreUnderRace(RaceConformance):
    """Only on a server whose check and write are one step: moto and ministack check, then write,
    and under load hand out two winners. `tidelog store check` is there to report such servers."""

    @pytest.fixture
    def opener(self, client: S3Client, versitygw: S3Server) -> Opener:
        return fresh_opener(versitygw, client)


class TestClouds(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, cloud: CloudServer) -> Opener:
        return fresh_opener(cloud)


async def test_a_list_goes_on_after_a_full_page(
    client: S3Client, moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    written = [f"many/{number:05d}" for number in range(25)]
    async with opened(fresh_opener(moto, client)) as store:
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
