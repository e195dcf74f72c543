"""Where the control sockets of a test are."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.runtime.control.protocol import DIRECTORY_VARIABLE


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path: those of sockets are limited to about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="tlc") as made:
        chosen = Path(made) / "sockets"
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(chosen))
        yield chosen
