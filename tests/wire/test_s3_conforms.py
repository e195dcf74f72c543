"""S3 servers, through real sockets, keep the port's promises."""

from itertools import count

import pytest

from tests.unit.storage.conformance import (
    Opener,
    RaceConformance,
    StoreConformance,
    fill,
    names,
    run,
)
from tests.wire.servers import S3Server
from tidelog.storage.port import ObjectStore
from tidelog.storage.s3 import open_s3_store

_prefixes = count()


def fresh_opener(server: S3Server) -> Opener:
    url = server.url(f"conformance/{next(_prefixes)}")
    return lambda: open_s3_store(url, server.options)


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


def test_a_list_goes_on_after_a_full_page(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    written = [f"many/{number:05d}" for number in range(25)]
    opener = fresh_opener(moto)

    async def scenario(store: ObjectStore) -> None:
        await fill(store, *written)
        assert await names(store, "many/") == written
        assert await names(store, "many/", written[2]) == written[3:]

    run(opener, scenario)
