"""How many batches of a query are run, and the run.

Invariant: the batches before those that count are as many for every store.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.bench.measurement import Trial
from tidelog.bench.spark.application import Application, last_batch
from tidelog.bench.spark.stretch import Stretch

_AT_LEAST: Final = 3


@dataclass(frozen=True, slots=True)
class Batches:
    """`warm` batches, then `batches` that count; fewer, but three, if they take `limit_s`."""

    warm: int
    batches: int
    limit_s: float

    @classmethod
    def of(cls, trial: Trial) -> "Batches":
        """As the trial's settings have it."""
        given = trial.settings
        return cls(
            warm=int(given["warm"] or 1),
            batches=int(given["batches"] or 1),
            limit_s=float(given["limit_s"] or 0),
        )

    def measure(self, application: Application, name: str, checkpoint: Path) -> Stretch:
        """Run a query from an empty checkpoint."""
        first, last = self.warm, self.warm + self.batches - 1
        with application.query(name, checkpoint, last) as query:
            application.await_batch(query, first - 1)
            if not application.await_batch(query, last, self.limit_s):
                # The batch that runs is the last: a query that is stopped within one says much.
                last = min(last, max(last_batch(query) + 1, first + _AT_LEAST - 1))
                application.end_after(last)
                application.await_batch(query, last)
            reported = query.recentProgress
        return Stretch(
            progress=[one for one in reported if first <= one["batchId"] <= last],
            marks=[application.counts_at(batch) for batch in range(first - 1, last + 1)],
            cpu_ms=application.cpu_ms_at(last) - application.cpu_ms_at(first - 1),
        )
