"""Google Cloud Storage and Azure Blob Storage, through real sockets, keep the port's promises."""

from importlib import import_module
from itertools import count

import pytest

from tests.unit.storage.conformance import Opener, RaceConformance, StoreConformance
from tests.wire.servers import CloudServer
from tidelog.effects import Effects

# Libraries of the clouds are imported where they are used: they take seconds, in every worker.

_prefixes = count()


def fresh_opener(server: CloudServer) -> Opener:
    url = server.url(f"conformance/{next(_prefixes)}")
    if server.scheme == "az":
        azure = import_module("tidelog.storage.azure")
        return lambda: azure.open_azure_store(url, server.options)
    gcs = import_module("tidelog.storage.gcs")
    return lambda: gcs.open_gcs_store(url, Effects(), server.options)


class TestClouds(StoreConformance, RaceConformance):
    @pytest.fixture
    def opener(self, cloud: CloudServer) -> Opener:
        return fresh_opener(cloud)
