"""Spark measures the same overhead as the engine of this process."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.cli import lay_out, tidelog
from tests.support.damage import last_segment
from tests.support.jobs import filled
from tests.unit.cost.measured.jobs import windowed
from tidelog.storage import object_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measured(location: Path, engine: str) -> dict[str, Any]:
    """The document of `tidelog overhead`, on the session of these tests."""
    result = tidelog("overhead", location, "--engine", engine, "--json")
    document: dict[str, Any] = json.loads(result.stdout)
    assert document.pop("engine") == engine
    return document


def test_both_engines_report_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    location = lay_out(tmp_path, windowed(5))
    local = measured(location, "local")
    assert measured(location, "spark") == local
    assert any(each["windows"] is not None for each in local["operators"])


def last_slot(objects: Mapping[str, bytes]) -> int:
    return max(slot for name in objects if (slot := object_names.slot_of(name)) is not None)


def test_damage_that_spark_meets_is_an_error_with_the_next_action(
    spark: "SparkSession", tmp_path: Path
) -> None:
    objects = dict(filled())
    name = last_segment(objects, last_slot(objects))
    whole = objects.pop(name)
    command = ("overhead", "--engine", "spark")
    missing = tidelog(*command, lay_out(tmp_path / "missing", objects))
    assert missing.exit_code == 1 and "tidelog inspect" in missing.stderr
    objects[name] = whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]
    damaged = tidelog(*command, lay_out(tmp_path / "damaged", objects))
    assert damaged.exit_code == 1 and f"{name} is damaged at byte" in damaged.stderr
