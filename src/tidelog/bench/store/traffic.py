"""What a store was asked for: totals until a moment, and what lies between two moments.

Invariant: traffic is additive but for its mean: that of two adjacent times is the sum of theirs.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """Within some seconds."""

    seconds: float
    requests: Mapping[str, float]
    """By kind: put, get, list, head, delete; on Hadoop's side copy and mkdirs too."""
    uploaded_bytes: float
    downloaded_bytes: float = 0.0
    stored_bytes: float = 0.0
    """The mean over the time."""

    @property
    def all_requests(self) -> float:
        """Of any kind."""
        return sum(self.requests.values())


@dataclass(frozen=True, slots=True)
class Totals:
    """Since a store was opened."""

    at: float
    """Seconds on the store's clock."""
    requests: Mapping[str, int]
    uploaded_bytes: int
    downloaded_bytes: int
    stored_byte_seconds: float

    def since(self, earlier: "Totals") -> Traffic:
        """What lies between an earlier moment and this one."""
        seconds = self.at - earlier.at
        stored = self.stored_byte_seconds - earlier.stored_byte_seconds
        return Traffic(
            seconds=seconds,
            requests={kind: n - earlier.requests[kind] for kind, n in self.requests.items()},
            uploaded_bytes=self.uploaded_bytes - earlier.uploaded_bytes,
            downloaded_bytes=self.downloaded_bytes - earlier.downloaded_bytes,
            stored_bytes=stored / seconds if seconds else 0.0,
        )
