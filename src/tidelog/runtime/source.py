"""The source port: what a source of your own implements.

A `Source` names its splits (files, partitions, tables), and opens a `SplitReader` for each. A task
calls `read` of its readers in turn, and stores `position` after the records of each read in the
job's checkpoints. After a restart `open` gets the position of the restored checkpoint.

A source that only has records pushed to it is a `PushSource`, and one of Python iterables an
`IterableSource`: they need none of this.

Invariants: a split that is opened at a position gives the same records after it as before;
positions are values of any type that state stores; each reader is used by one task, and by one
thread at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


class SplitReader(ABC):
    """Reads one split. Needed are `position` and `read`; all else has a default."""

    position: Any
    """Where the next `read` continues: after the records that `read` has returned. Set it before
    `read` returns. A read that returns no records may move it, too."""
    at_end: bool = False
    """The next `read` would return None. Setting it early saves the task one call."""
    delay_s: float = 0.0
    """Seconds until the next `read` after one that returned no records; 0: a tenth of a second."""
    has_lag: bool = False
    """The split has records that have not arrived here yet, although `read` returned none. Such a
    split does not become idle: event time waits for it."""
    unread: int | None = None
    """How much of the split is after the position: bytes of a file, messages of a topic. For the
    metric `tidelog_unread_input`; None: not known."""
    read_bytes: int | None = None
    """Bytes of input that the last `read` consumed; None: the task estimates it from the records.
    A thread stops reading ahead when it has read about a MiB."""
    reads_single_records: bool = False
    """Each `read` of a blocking source waits for one record and returns it. The thread then calls
    `read` again and again, and hands over what it has while the next call waits. Other readers are
    called once, and again when the task has taken the records."""

    @abstractmethod
    def read(self) -> list[Any] | None:
        """The next records, some thousand at most; an empty list if there are none now; None at
        the end of the split. What it raises stops the job.
        """

    def set_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` in the event loop when records arrive after a `read` that returned none.

        It may be set again at any time. A reader that never calls it is read after `delay_s`.
        """

    def pause(self) -> None:
        """The split is not read for a while: release what is scarce, such as an open file."""

    def close(self) -> None:
        """Release everything; nothing is called afterwards."""


class Source(ABC):
    """Names the splits and opens them. Needed are `discover` and `open`."""

    blocking: bool = False
    """`open` and `read` may wait: they are called in threads. Otherwise they are called in the
    event loop, and must return at once."""
    reads_without_waiting: bool = False
    """Of a blocking source: `read` waits for its storage, and never for new records. So one thread
    reads many splits, one after the other, and discoveries may come less often where they take
    long."""
    rediscover_s: float | None = None
    """Call `discover` again after so many seconds; None: once, and the job ends with the splits."""
    max_active_splits: int | None = None
    """A task reads at most so many splits in turn, and begins another one when one of them ends;
    for readers that take much memory. Splits that have not begun hold the watermark back. None:
    all splits are read in turn."""
    resumes_ended_splits: bool = False
    """A split that ended in an earlier run is opened again at its last position: it may have become
    longer, such as a file or a topic. Otherwise it is never opened again."""

    skipped: int = 0
    """Records that were left out because they could not be read, since the process started."""
    has_end: bool = False
    """All splits have an end that comes by itself: a table that is read from it can be awaited, and
    other sources of the job that have read all of their input wait for this one before they end."""
    position_format: int = 1
    """The format of the positions. Raise it when earlier releases of the source cannot read them: a
    job that would go back to such a release is refused before it changes anything."""
    new_split_position: Any = None
    """The position at which a split is opened that appears after the source began."""

    @abstractmethod
    def discover(self) -> Iterable[str]:
        """The names of all splits there are now, in the order in which to read them."""

    @abstractmethod
    def open(self, split: str, position: Any) -> SplitReader:
        """A reader that continues at a position; None: at the start of the split."""

    def check_position(self, split: str, position: Any) -> None:
        """Raise RestoreError if the split cannot continue at a stored position, because the input
        is now divided into splits in another way.

        Called at a restart for each split that has a position, before it is opened, and for those
        that have ended as well.
        """

    def has_more(self, split: str, position: Any) -> bool:
        """Whether a split that ended in an earlier run has grown since, and is opened again.

        Called at a start, in a thread, for each ended split that is still discovered. What it
        raises stops the job: for example that the split was written anew. By default all of them
        are opened where `resumes_ended_splits` is set, and none otherwise.
        """
        return self.resumes_ended_splits

    def would_read(self, file: Path) -> bool:
        """Whether the source reads a file of this path if there is one: no sink may write it."""
        return False

    def on_checkpoint_complete(self, positions: Mapping[str, Any]) -> None:
        """A checkpoint is durable with these positions; only splits that moved since the last one
        are among them. Acknowledge them to the outside system. Called in the event loop.
        """

    def close(self) -> None:
        """No split is read any more: release what readers share. May wait; `open` may follow."""
