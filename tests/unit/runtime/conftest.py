"""What tests of running jobs share."""

import logging
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[dict[str, Any]]]:
    """The fields of each record of an event."""
    caplog.set_level(logging.DEBUG, "tidelog")

    def of(event: str) -> list[dict[str, Any]]:
        records = [r for r in caplog.records if getattr(r, "event", None) == event]
        return [dict(r.args) if isinstance(r.args, dict) else {} for r in records]

    return of
