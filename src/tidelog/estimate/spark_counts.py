"""The files and requests of Spark's state stores, as they were counted: `spark_counts.toml`.

Invariant: the data file fits these types to the letter, or loading it fails.
"""

from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import msgspec

from tidelog.estimate.estimate import Strategy

Count = Annotated[float, msgspec.Meta(ge=0)]


class FileClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One class of files of a checkpoint; counts are per occasion named by `per`."""

    name: str
    per: Literal[
        "partition-batch", "partition-snapshot", "partition-tick", "executor-batch", "query-batch"
    ]
    holds: Literal["log", "table"] | None = None
    bytes: Count = 0.0
    """Of one file, unless it holds log or table."""
    put: Count = 0.0
    get: Count = 0.0
    list: Count = 0.0
    atomic: bool = False
    """Written beside and renamed, where the file manager does that."""


class StoreCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All classes of one store."""

    strategy: Strategy
    source: str
    files: tuple[FileClass, ...]


class _Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stores: tuple[StoreCounts, ...]


@cache
def spark_counts() -> dict[Strategy, StoreCounts]:
    """What was counted, by strategy."""
    data = files("tidelog.estimate").joinpath("spark_counts.toml").read_bytes()
    stores = msgspec.toml.decode(data, type=_Counts).stores
    return {store.strategy: store for store in stores}
