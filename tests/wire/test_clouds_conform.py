"""Google Cloud Storage and Azure Blob Storage, through real sockets, keep the port's promises."""

from itertools import count

import pytest

from tests.unit.storage.conformance import Opener, RaceConformance, StoreConformance
from tests.wire.servers import CloudServer
from tidelog.effects import Effects
from tidelog.storage.azure import open_azure_store
from tidelog.storage.gcs import open_gcs_store

_prefixes = count()


def fresh_opener(server: CloudServer) -> Opener:
    url = server.url(f"conformance/{next(_prefixes)}")
    if server.scheme == "az":
        return lambda: open_azure_store(url, server.options)
    return lambda: open_gcs_store(url, Effects(), server.options)


class TestClouds(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, cloud: CloudServer) -> Opener:
        return fresh_opener(cloud)
