"""What a Spark application of a trial is: its machine, its store, its settings.

Invariants: a run is described by its job alone; all stores of a pair get the same settings, but
for those that choose the store.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.bench.measurement import Trial
from tidelog.bench.spark.counted import SCHEME, counted_settings
from tidelog.bench.spark.jar import benchmark_jar
from tidelog.bench.spark.stores import store_settings
from tidelog.bench.store.manners import NONE, Manners
from tidelog.spark import plugin_jar, settings
from tidelog.spark.settings import SNAPSHOT_PERIOD

SNAPSHOT_EVERY: Final = 10
"""Batches between two snapshots of a state store: Spark's default."""
_INTERVALS: Final = 4
_STREAMING: Final = "spark.sql.streaming"


@dataclass(frozen=True, slots=True)
class Job:
    """One application; times in milliseconds."""

    store: str
    threads: int
    """For tasks, whatever the machine has."""
    partitions: int
    latency_ms: float
    """Median of a PUT; 0: a store that answers at once."""
    mb_per_s: float
    """Of all transfers of the application together, if there is latency."""
    maintenance_ms: int
    seed: int
    jvm: str = ""
    """Further options of the JVM."""
    trigger_ms: int = 0
    """Time between the starts of two batches; 0: as fast as it goes."""
    snapshot_interval_ms: int | None = None
    """The least time between two snapshots below the plug-in. None: four maintenance intervals, as
    the defaults of Spark and the plug-in have it; 0: as often as without the plug-in.
    """

    @classmethod
    def of(cls, trial: Trial) -> "Job":
        """The job that a trial's settings, variant and seed say."""
        given = trial.settings
        return cls(
            store=trial.variant,
            threads=int(given["threads"] or 1),
            partitions=int(given["partitions"] or 1),
            latency_ms=float(given["latency_ms"] or 0),
            mb_per_s=float(given["mb_per_s"] or 0),
            maintenance_ms=int(given["maintenance_ms"] or 0),
            jvm=str(given.get("jvm") or ""),
            seed=trial.seed,
            trigger_ms=int(given.get("trigger_ms") or 0),
        )

    def settings(self, directory: Path) -> dict[str, str]:
        """All settings of the application's session."""
        chosen = store_settings(self.store, self._plugin)
        return self._machine(directory) | self._streaming() | chosen

    def _machine(self, directory: Path) -> dict[str, str]:
        return {
            "spark.master": f"local[{self.threads}]",
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraClassPath": str(benchmark_jar()),
            "spark.driver.extraJavaOptions": self.jvm,
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            **{f"spark.hadoop.{key}": value for key, value in self._store().items()},
        }

    def _store(self) -> dict[str, str]:
        if self.latency_ms == 0:
            return counted_settings(NONE)
        return counted_settings(Manners(self.latency_ms, self.mb_per_s, self.seed))

    def _streaming(self) -> dict[str, str]:
        return {
            SNAPSHOT_PERIOD: str(SNAPSHOT_EVERY),
            "spark.sql.shuffle.partitions": str(self.partitions),
            f"{_STREAMING}.stateStore.maintenanceInterval": f"{self.maintenance_ms}ms",
            # The one format that all stores know: four state stores for every partition.
            f"{_STREAMING}.join.stateFormatVersion": "2",
            f"{_STREAMING}.numRecentProgressUpdates": "100000",
        }

    def _plugin(self) -> dict[str, str]:
        interval_ms = self.snapshot_interval_ms
        if interval_ms is None:
            interval_ms = _INTERVALS * self.maintenance_ms
        return settings(
            jar=plugin_jar(notify=lambda _: None),
            snapshot_every=SNAPSHOT_EVERY,
            snapshot_interval=f"{interval_ms}ms",
            put_schemes=f"s3a,{SCHEME}",
        )
