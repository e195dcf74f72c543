"""Commands in tests leave nothing in the user's cache."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def price_warnings_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands of a test note which warnings of prices they have printed."""
    cache = tmp_path / "price-warnings-cache"
    monkeypatch.setattr("tidelog.cli.estimate.prices.cache_directory", lambda: cache)
    return cache
