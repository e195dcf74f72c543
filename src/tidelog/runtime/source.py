"""The source port: replayable splits with positions.

Invariants: a split read again from a position gives the same records after it; positions are
values of any type that state keeps; a reader is used by one task.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


class SplitReader(ABC):
    """Reads one split."""

    position: Any
    """Where the next `read` goes on; stored in every checkpoint. A read without records may move
    it, too."""
    at_end: bool = False
    """The next `read` would return None. A reader that knows saves a task one more turn for it."""
    delay_s: float = 0.0
    """Seconds to wait for the next `read` of an endless split after an empty one."""
    behind: bool = False
    """There are records, and an empty `read` says only that they are not here yet: the split is not
    idle, and others wait for it as long as they are to keep in step."""
    read_bytes: int | None = None
    """Bytes of the source that the last `read` has turned into records; None: the records that a
    thread has read are measured."""
    unread: int | None = None
    """What waits behind the position as far as the last `read` knows: bytes of a file, messages of
    a topic; None: not known."""
    trickles: bool = False
    """A blocking `read` waits for a record and returns it at once, alone: it is called many times
    in a row, and what it returned so far goes on while it waits."""

    @abstractmethod
    def read(self) -> list[Any] | None:
        """The next records; an empty list when there are none yet, None at the end."""

    def notify(self, listener: Callable[[], None]) -> None:
        """Call this, in the event loop, when an empty `read` would have something after all.

        Readers that do not are asked again after `delay_s`.
        """

    def pause(self) -> None:
        """Other splits are read for a while: release what is scarce, such as an open file."""

    def close(self) -> None:
        """Release resources."""


class Source(ABC):
    """Finds splits and opens them."""

    blocking: bool = False
    """Splits are opened and read in threads, and may wait there as long as they like: barriers and
    other splits go on meanwhile."""
    prompt: bool = False
    """Reads of a blocking source wait for nothing but storage: a thread reads one split after the
    other, and a split whose turn in it has not come does not count as idle."""
    rediscover_s: float | None = None
    """Look for new splits this often; None: once, the input is bounded."""
    at_once: int | None = None
    """So many splits are read in turn by a task, and another one begins when one of them has ended,
    for readers that take much memory; None: all. Splits that wait hold the watermark back.
    """
    splits_grow: bool = False
    """Splits have no end: those that an earlier run has read to their end are read on."""

    skipped: int = 0
    """Records that could not be read and were left out, as the user wished, in this process."""
    has_end: bool = False
    """All splits have an end that comes by itself: a table that is read from it can be awaited."""
    position_format: int = 1
    """Format of its positions: raise it when releases of the source before this one cannot read
    them. A start that would go back to one of those is refused before it changes anything."""
    new_split_position: Any = None
    """Where splits begin that appear after the source has begun; None: where the first ones do."""

    @abstractmethod
    def discover(self) -> Iterable[str]:
        """Names of all splits there are now, in reading order."""

    @abstractmethod
    def open(self, split: str, position: Any) -> SplitReader:
        """Read a split from a position; None is its start."""

    def check_begun(self, split: str, position: Any) -> None:
        """An earlier run has begun this split and got so far, maybe to its end: raises RestoreError
        where the source is divided otherwise now, so that records would come twice or not at all.
        Called once for each such split, before it is opened.
        """

    def would_read(self, file: Path) -> bool:
        """Whether a file of this path would be read, once it is there."""
        return False

    def checkpointed(self, positions: Mapping[str, Any]) -> None:
        """A completed checkpoint holds these positions of splits, those that have moved since the
        one before: the outside system may be notified. Must not block.
        """

    def close(self) -> None:
        """No split is read any more: release what they share. May block, and be followed by `open`
        in another run.
        """
