"""`tidelog doctor` reports each check, leaves nothing behind, and fails on an unsafe store."""

import json
from pathlib import Path

import pytest

from tests.support.cli import files, tidelog
from tidelog.storage import access
from tidelog.storage.memory import MemoryStore


def test_a_local_directory_is_safe_and_left_as_it_was(tmp_path: Path) -> None:
    result = tidelog("doctor", tmp_path)
    assert result.exit_code == 0
    assert "is safe for jobs" in result.stdout and "create race" in result.stdout
    assert files(tmp_path) == {}


def test_json_has_checks_and_latencies(tmp_path: Path) -> None:
    document = json.loads(tidelog("doctor", tmp_path, "--json").stdout)
    assert document["passed"] is True and document["url"] == tmp_path.as_uri()
    assert {"name", "passed", "message"} == set(document["checks"][0])
    assert {"operation", "calls", "min_ms", "median_ms", "max_ms"} == set(document["latencies"][0])


def test_a_store_that_overwrites_is_not_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Overwriting(MemoryStore):
        async def create(self, name: str, data: bytes) -> None:
            await self.put(name, data)

    store = Overwriting()
    monkeypatch.setattr(access, "open_store", lambda *_, **__: store)
    result = tidelog("doctor", "memory://unsafe")
    assert result.exit_code == 1
    assert "refuse overwrite  FAILED" in result.stdout and "NOT safe" in result.stdout
