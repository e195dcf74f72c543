"""Stores of S3, Google Cloud and Azure, through real sockets, keep the port's promises."""

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
from tests.wire.servers import CloudServer, S3Server
from tidelog.effects import Effects
from tidelog.storage.s3 import open_s3_store

# Libraries of the clouds are imported where they are used: they take seconds, in every worker.

_prefixes = count()


def fresh_opener(server: S3Server | CloudServer) -> Opener:
    url = server.url(f"conformance/{next(_prefixes)}")
    if isinstance(server, S3Server):
        return lambda: open_s3_store(url, server.options)
    if server.scheme == "az":
        azure = import_module("tidelog.storage.azure")
        return lambda: azure.open_azure_store(url, server.options)
    gcs = import_module("tidelog.storage.gcs")
    return lambda: gcs.open_gcs_store(url, Effects(), server.options)


class TestS3Store(StoreConformance):
    @pytest.fixture
    def opener(self, s3_server: S3Server) -> Opener:
        return fresh_opener(s3_server)


class TestS3StoreUnderRace(RaceConformance):
    """Only on a server whose check and write are one step: moto and ministack check, then write,
    and under load hand out two winners. `tidelog doctor` is there to report such servers."""

    @pytest.fixture
    def opener(self, versitygw: S3Server) -> Opener:
        return fresh_opener(versitygw)


class TestClouds(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, cloud: CloudServer) -> Opener:
        return fresh_opener(cloud)


async def test_a_list_goes_on_after_a_full_page(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    written = [f"many/{number:05d}" for number in range(25)]
    async with opened(fresh_opener(moto)) as store:
        await fill(store, *written)
        assert await names(store, "many/") == written
        assert await names(store, "many/", written[2]) == written[3:]
