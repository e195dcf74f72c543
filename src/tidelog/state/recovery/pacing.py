"""How long a request for a part of a file may take, and how many bytes reads may ask for: pure.

One of a thousand requests takes a second, and a buffer waits for the slowest of hundreds. So what
is slow is asked for again, but not where all requests are slow: there the link is, or the machine.
"""

from collections.abc import Iterator
from typing import Final

LEAST_S: Final = 0.08
_MOST_S: Final = 5.0
_LATE: Final = 8
"""When more than one of so many requests is late, all get twice the time, ..."""
_IN_TIME: Final = 64
"""... and half of it when less than one of so many is, ..."""
_WINDOW: Final = 256
"""... judged by so many of them."""
_ATTEMPTS: Final = (1, 1, 4)
"""So many times as long each attempt may take; one more has no limit."""

_READS: Final = 0.13
"""What reads may fetch until all files are here, as a share of these: that much later they are
whole."""
_SOONER: Final = 1.5
"""The more of the files is here, the fewer reads miss something. With 1 reads would be allowed the
same share at all times, with 2 it would last for the same number of records."""
_FIRST_SHARE: Final = 1 / 32
"""What reads may fetch before, of the bytes of all files, ..."""
FIRST_BYTES: Final = (1 << 20, 32 << 20)
"""... and at least and at most."""


def bytes_for_reads(total: int, arrived: int) -> int:
    """So many bytes reads may have fetched, of files that have so many, when so many have come.

    A part that a read needs comes again with its file. So what is read early makes all of it
    late, and then a record takes a tenth of the time.
    """
    missing = 1 - arrived / total if total else 0.0
    share = _READS * (1 - max(0.0, missing) ** _SOONER)
    least, most = FIRST_BYTES
    return int(min(max(least, total * _FIRST_SHARE), most) + total * share)


class Patience:
    """Follows how many requests were late."""

    def __init__(self) -> None:
        self.seconds = LEAST_S
        self._asked = self._late = 0

    def attempts(self) -> Iterator[float | None]:
        """The seconds for each attempt at a request; None: no limit."""
        for times in _ATTEMPTS:
            yield self.seconds * times
        while True:
            yield None

    def seen(self, asked: int, late: int) -> None:
        """So many requests were made, and so many of them were not answered in time."""
        self._asked += asked
        self._late += late
        if self._asked < _WINDOW:
            return
        if self._late * _LATE > self._asked:
            self.seconds = min(2 * self.seconds, _MOST_S)
        elif self._late * _IN_TIME < self._asked:
            self.seconds = max(self.seconds / 2, LEAST_S)
        self._asked = self._late = 0
