"""Spark measures the same overhead as the engine of this process."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import lay_out
from tests.support.damage import last_segment
from tests.support.jobs import filled
from tests.unit.cost.measured.jobs import aggregated, windowed
from tests.unit.cost.measured.measuring import question
from tidelog.cost.measured.analysis import measure
from tidelog.cost.measured.engine import Engine
from tidelog.cost.measured.local import LocalEngine
from tidelog.cost.measured.report import Report
from tidelog.cost.measured.spark import SparkEngine
from tidelog.effects import Effects
from tidelog.errors import CorruptObjectError, TidelogError
from tidelog.storage import object_names
from tidelog.storage.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORES = {"aggregate": aggregated, "windows": lambda: windowed(5), "every kind": filled}


def measured(location: Path, spark: "SparkSession | None" = None) -> Report:
    effects = Effects()
    store = open_store(str(location), effects)
    engine: Engine = LocalEngine(store)
    if spark is not None:
        engine = SparkEngine(spark, effects, store.url)
    return asyncio.run(measure(store, engine, question()))


@pytest.mark.parametrize("name", STORES)
def test_both_engines_report_the_same(name: str, spark: "SparkSession", tmp_path: Path) -> None:
    location = lay_out(tmp_path, STORES[name]())
    local = measured(location)
    assert measured(location, spark) == replace(local, engine="spark")
    assert local.compared is (name != "every kind")
    assert any(each.windows is not None for each in local.operators) is (name == "windows")


def last_slot(objects: Mapping[str, bytes]) -> int:
    return max(slot for name in objects if (slot := object_names.slot_of(name)) is not None)


def test_damage_that_spark_meets_is_an_error_with_the_next_action(
    spark: "SparkSession", tmp_path: Path
) -> None:
    objects = dict(filled())
    name = last_segment(objects, last_slot(objects))
    whole = objects.pop(name)
    with pytest.raises(CorruptObjectError, match="tidelog inspect"):
        measured(lay_out(tmp_path / "missing", objects), spark)
    objects[name] = whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]
    with pytest.raises(TidelogError, match=f"{name} is damaged at byte"):
        measured(lay_out(tmp_path / "damaged", objects), spark)
