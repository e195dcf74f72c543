"""The file system `counted://`: local files with the manners of S3, every request counted.

Invariant: equal manners are the same latencies and bandwidth as those of `ModelledStore`.
"""

from typing import Final

from tidelog.bench.measurement import Points
from tidelog.bench.store.manners import Manners

SCHEME: Final = "counted"
_CLASS: Final = "tidelog.benchmark.CountedFileSystem"


def counted_settings(manners: Manners) -> dict[str, str]:
    """What Hadoop has to know; before each name Spark wants `spark.hadoop.`."""
    prefix = f"fs.{SCHEME}"
    return {
        f"{prefix}.impl": _CLASS,
        f"{prefix}.latency.ms": str(manners.latency_ms),
        f"{prefix}.mb.per.s": str(manners.mb_per_s),
        f"{prefix}.connection.mb.per.s": str(manners.connection_mb_per_s),
        f"{prefix}.seed": str(manners.seed),
    }


def uploads(lines: str) -> Points:
    """Of `Requests.uploadedOverTime`: (seconds on the clock of `msAt`, bytes in a 0.1 s)."""
    fields = (line.split() for line in lines.splitlines())
    return [(int(ms) / 1e3, float(size)) for ms, size in fields]
