"""One unit checked by a process of its own: it opens the store, checks, and leaves nothing behind.

Invariant: what is not a finding comes back as the error it is, whole, whatever process it was in.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tidelog.effects import Effects
from tidelog.errors import ConfigError, TidelogError
from tidelog.storage.open import open_store
from tidelog.verify.bench import Bench, Unit, UnitResult


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where units are checked; it can be pickled."""

    url: str
    """Of the store, as every process can open it."""
    options: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None
    """Where tables are built; None: the system's temporary directory."""


def work(unit: Unit, place: Workplace) -> UnitResult | TidelogError:
    """Check a unit; an error that is no finding is returned."""
    try:
        return asyncio.run(_work(unit, place))
    except TidelogError as error:
        return error


async def _work(unit: Unit, place: Workplace) -> UnitResult:
    effects = Effects()
    with closing(effects.offload), scratch(place.directory) as directory:
        store = open_store(place.url, effects, options=place.options)
        try:
            return await unit.check(Bench(store, effects, directory))
        finally:
            await store.close()


@contextmanager
def scratch(parent: str | None) -> Iterator[Path]:
    """An empty directory, removed in the end; raises ConfigError where there can be none."""
    try:
        directory = TemporaryDirectory(prefix="tidelog-verify-", dir=parent)
    except OSError as cause:
        raise ConfigError(
            f"directory {parent or 'for temporary files'}",
            expected="one that can be written to, with room for the tables of a few partitions",
            found=cause.strerror or str(cause),
            action="choose another --work-dir",
        ) from cause
    with directory as path:
        yield Path(path)
