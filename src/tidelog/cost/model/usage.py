"""What a job stores, sends and asks for: flows of objects, and requests.

Invariants: rates are means over a steady run of the whole job; every object that is written is
deleted once, so the mean of what is stored is rate x size x life (Little's law).
"""

from dataclasses import dataclass
from typing import Final

DAY_S: Final = 86_400.0
MONTH_S: Final = 730 * 3600.0
"""A month of 730 hours, a twelfth of a year."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Objects of one kind: how many are written, how large they are, how long they live."""

    kind: str
    per_s: float
    bytes: float
    life_s: float

    @property
    def stored(self) -> float:
        return self.per_s * self.life_s

    @property
    def stored_bytes(self) -> float:
        return self.stored * self.bytes

    @property
    def bytes_per_s(self) -> float:
        return self.per_s * self.bytes


@dataclass(frozen=True, slots=True)
class Reads:
    """Requests that write nothing, a second, and the bytes they bring."""

    gets: float = 0.0
    """GET and HEAD."""
    lists: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Everything a bill counts."""

    flows: tuple[Flow, ...]
    reads: Reads

    @property
    def puts_per_s(self) -> float:
        """PUT requests: objects written, and as many are deleted."""
        return sum(flow.per_s for flow in self.flows)

    @property
    def uploaded_per_s(self) -> float:
        """Bytes of all objects uploaded in a second."""
        return sum(flow.bytes_per_s for flow in self.flows)

    @property
    def stored_bytes(self) -> float:
        return sum(flow.stored_bytes for flow in self.flows)

    @property
    def stored_objects(self) -> float:
        return sum(flow.stored for flow in self.flows)
