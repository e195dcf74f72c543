"""Python iterables as sources.

Invariant: a position is how many records were read; replay makes a fresh iterator and skips them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from tidelog.errors import ConfigError, RestoreError
from tidelog.runtime.channels.buffers import next_values
from tidelog.runtime.operators.distinct import Distinct
from tidelog.runtime.source import Source, SplitReader

Records = Sequence[Any] | Callable[[], Iterable[Any]]
"""A sequence, or a function that makes an iterable over the same records every time."""

_READ_RECORDS: Final = 1024


class Replayable(Source):
    """The records of a list, tuple, range or other sequence, or of a function's iterables.

    A mapping from names to these gives several splits. `blocking` says that the iterators wait for
    I/O: each is read in a thread, and a record goes on as soon as it is there. Raises
    ConfigError for what cannot be read twice, as a generator.
    """

    def __init__(self, records: Records | Mapping[str, Records], *, blocking: bool = False) -> None:
        self._splits = dict(records) if isinstance(records, Mapping) else {"records": records}
        self.blocking = blocking
        for name, split in self._splits.items():
            if not isinstance(split, Sequence) and not callable(split):
                raise ConfigError(
                    f"split {name!r}",
                    expected="a sequence, or a function that makes a fresh iterable",
                    found=type(split).__name__,
                    action="pass a list, or `lambda: ...` around what makes the records",
                )

    def discover(self) -> list[str]:
        """The splits' names, in the order given."""
        return list(self._splits)

    def open(self, split: str, position: Any) -> "IterableReader":
        """Raises RestoreError when the records end before the position, or the split is gone."""
        if split not in self._splits:
            raise RestoreError(
                f"split {split!r}",
                expected=f"one of {list(self._splits)}",
                action="name the splits as before, or start without this checkpoint",
            )
        records = self._splits[split]
        iterator = iter(records() if callable(records) else records)
        made = callable(records)
        return IterableReader(split, iterator, position or 0, waits=self.blocking, made=made)


class IterableReader(SplitReader):
    """Reads one iterator; exceptions it raises pass through."""

    position: int

    def __init__(
        self,
        split: str,
        iterator: Iterator[Any],
        position: int,
        *,
        waits: bool = False,
        made: bool = False,
    ) -> None:
        """`made`: a function makes the records, so it may change what it has given."""
        self.trickles = waits
        self._distinct = Distinct() if made else None
        self._iterator = iterator
        self.position = position
        skipped = sum(1 for _ in islice(iterator, position))
        if skipped < position:
            raise RestoreError(
                f"split {split!r}",
                expected=f"at least {position} records, as many as were read before",
                found=f"{skipped}",
                action="make the iterable give the same records every time",
            )

    def read(self) -> list[Any] | None:
        """The next records; None when the iterator has ended."""
        # Waiting for a second record would hold back the first.
        records = next_values(self._iterator, 1 if self.trickles else _READ_RECORDS)
        if self._distinct is not None:
            self._distinct.check(records)
        self.position += len(records)
        return records or None

    def close(self) -> None:
        """Close a generator, so that its `finally` clauses run now."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()
