"""How long a restore takes, and what it asks of the store.

Invariants: bytes, then changes: in a real restore they overlap in part, and opening tables comes on
top; the rates are those the runtime's own replay trigger counts with. This is 0.8 to 1.4 times the
recorded restores: tests/unit/estimate/test_restoring.py.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.estimate.settings import Settings
from tidelog.estimate.usage import MONTH_S, Reads

_LISTS: Final = 5
"""Slots twice, before and after the take-over, then segments, tables and descriptors."""
_SLOTS: Final = 2
"""Slots that are read besides the retained checkpoints: the newest once more, and the start."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """What a restore of one process reads."""

    slots: float
    """Retained checkpoints: read one after the other, as are the descriptors they name."""
    descriptors: float
    """Of the checkpoint that is restored: read once more, side by side with the rest."""
    parts: float
    """Table files and log ranges."""
    bytes: float
    changes: float
    """To be replayed."""


def restore_s(fetch: Fetch, settings: Settings) -> float:
    """Seconds from a started process to running tasks."""
    link = settings.link
    serial = _LISTS + _SLOTS + fetch.slots + fetch.descriptors
    waiting = (serial + (fetch.descriptors + fetch.parts) / link.requests) * link.latency_s
    replay = fetch.changes / settings.materialize.replay_rate
    return waiting + fetch.bytes / link.bytes_per_s + replay


def reads(fetch: Fetch, settings: Settings) -> Reads:
    """What the restores of all processes ask for, a second."""
    per_s = settings.processes * settings.restores_per_month / MONTH_S
    gets = _SLOTS + fetch.slots + 2 * fetch.descriptors + fetch.parts
    return Reads(gets=per_s * gets, lists=per_s * _LISTS, bytes=per_s * fetch.bytes)
