"""A client's library that is newer than what was tested is logged once; the lock is not."""

import logging
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.unit.test_dependencies import LOCKED
from tidelog import ParquetSource
from tidelog.connectors.tested import TESTED


@pytest.mark.parametrize(("version", "times"), [("26.0.9", 0), ("26.1.0", 1), ("27.0.0.dev1", 1)])
def test_a_newer_library_is_logged_once(
    version: str,
    times: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: version)
    for _ in range(2):
        ParquetSource(tmp_path)
    said = [r for r in caplog.records if getattr(r, "event", "") == "library_not_tested"]
    assert [r.getMessage() for r in said if r.levelno == logging.WARNING] == times * [
        f"pyarrow {version} is newer than what tidelog was tested with, up to 26.0"
    ]


def test_what_is_locked_was_tested() -> None:
    locked = {}
    for line in LOCKED:
        requirement = Requirement(line.partition("--hash")[0].strip())
        [exact] = requirement.specifier
        locked[canonicalize_name(requirement.name)] = Version(exact.version)
    assert set(TESTED) <= set(locked)
    for name, tested in TESTED.items():
        assert locked[name].release[:2] <= tested, name
