"""Which state store the queries of these tests run on, as Spark settings.

`TIDELOG_SPARK_STORE=stock` runs everything that does not look into the plug-in's own log on
Spark's RocksDB store instead: what fails there too is not the plug-in's fault.
"""

import os
from pathlib import Path

from tests.support.depth import more_in_depth
from tests.support.made_once import by_one_process
from tidelog.errors import ConfigError
from tidelog.spark.plugin.jar import plugin_jar
from tidelog.spark.plugin.settings import FIXED, settings
from tidelog.spark.plugin.toolchain import find_java, find_spark

VARIABLE = "TIDELOG_SPARK_STORE"
STOCK = "stock"
PLUGIN = "tidelog"

STOCK_V2 = {
    key: value
    for key, value in FIXED.items()
    if key.startswith("spark.sql.") and "FileManager" not in key
}
"""Spark's RocksDB store with changelogs and checkpoint ids: what the plug-in builds on."""


EAGER = {
    "spark.sql.streaming.minBatchesToRetain": "4",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "400ms",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    "spark.tidelog.snapshot.interval": "0s",
}
"""Snapshots, clean-up and purges after a few batches, so that short runs meet all of them."""

INTERPRETED: dict[str, str] = more_in_depth(
    {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}, {}
)
"""Each plan of these small queries takes longer to compile than to run."""


def missing() -> str | None:
    """Why Spark cannot run here; None if it can."""
    try:
        find_spark()
        find_java()
    except ConfigError as error:
        return str(error)
    return None


def chosen() -> str:
    """The store that the environment asks for."""
    return os.environ.get(VARIABLE, PLUGIN)


def store_settings(
    store: str | None = None, spark_home: Path | None = None, **options: str | int
) -> dict[str, str]:
    """The settings that make `store`, by default the chosen one, keep the state."""
    if (store or chosen()) == STOCK:
        return dict(STOCK_V2)
    with by_one_process("plugin"):
        jar = plugin_jar(spark_home)
    return settings(jar=jar, **options)  # type: ignore[arg-type]
