"""The trace of a run: what happened, in order.

Invariant: equal traces have equal digests; a line holds nothing that differs between two runs of
one seed (no address, no path of this machine, no real time).
"""

import hashlib
from collections import deque
from collections.abc import Callable


class Trace:
    """Hashes every event, keeps the last ones, and hands each to `listener`."""

    def __init__(
        self, now: Callable[[], float], listener: Callable[[str], None] | None = None
    ) -> None:
        self.events = 0
        self.last: deque[str] = deque(maxlen=60)
        self._now = now
        self._hash = hashlib.blake2b(digest_size=16)
        self._listener = listener

    def add(self, who: str, what: str) -> None:
        line = f"{self._now():11.6f} {who:4} {what}"
        self.events += 1
        self.last.append(line)
        self._hash.update(line.encode() + b"\n")
        if self._listener is not None:
            self._listener(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
