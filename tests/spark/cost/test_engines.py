"""Spark measures the same overhead as the engine of this process."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.cli import lay_out, tidelog
from tests.unit.cost.measured.jobs import left_by, windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measured(location: Path, engine: str) -> dict[str, Any]:
    """The document of `tidelog overhead`, on the session of these tests."""
    result = tidelog("overhead", location, "--engine", engine, "--json")
    document: dict[str, Any] = json.loads(result.stdout)
    assert document.pop("engine") == engine
    return document


def test_both_engines_report_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    location = lay_out(tmp_path, left_by(windows, 5))
    local = measured(location, "local")
    assert measured(location, "spark") == local
    assert any(each["windows"] is not None for each in local["operators"])
