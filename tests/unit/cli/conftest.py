"""What tests of commands share."""

from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import filled


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of a job with every kind of state: checkpoints in the slots 7 to 9."""
    return lay_out(tmp_path / "store", filled())


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Words to count."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("low tide high tide\n")
    return tmp_path / "text"
