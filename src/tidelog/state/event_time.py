"""Event time of one subtask, by key group.

Invariant: the event time of a key group never goes back, also over a rescale. A subtask that takes
over key groups of several others begins with the least of their watermarks, because records between
that and the greater ones may still come; but in the key groups of those that were further timers
have fired up to the greater ones, and what is late there stays late.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tidelog.checkpoint.manifest import AheadOfWatermark

UNKNOWN: Final = -(1 << 63)
"""Event time before any watermark: no record is late."""
MAX_WATERMARK: Final = (1 << 63) - 1
"""The watermark at the end of a bounded input."""
LATEST: Final = 1 << 62
"""The latest time of a record, and -LATEST the earliest: starts and ends of windows and sessions
then have 64 bits, too."""


@dataclass(slots=True)
class EventTime:
    """How far event time is; `ahead` has the key groups that are further than the watermark."""

    watermark: int = UNKNOWN
    ahead: dict[int, int] = field(default_factory=dict)

    @classmethod
    def restored(cls, watermark: int | None, ahead: Iterable[AheadOfWatermark]) -> "EventTime":
        watermark_of_group: dict[int, int] = {}
        for part in ahead:
            groups = range(part.first_key_group, part.last_key_group + 1)
            watermark_of_group.update(dict.fromkeys(groups, part.watermark))
        return cls(UNKNOWN if watermark is None else watermark, watermark_of_group)

    def advance(self, time: int) -> None:
        """The watermark moved on."""
        self.watermark = max(self.watermark, time)
        if self.ahead:
            self.ahead = {g: time for g, time in self.ahead.items() if time > self.watermark}

    def of(self, group: bytes) -> int:
        """Event time of a key group, as row keys have it: records at or below it are late."""
        if not self.ahead:
            return self.watermark
        return self.ahead.get(int.from_bytes(group, "big"), self.watermark)

    def stored(self) -> tuple[AheadOfWatermark, ...]:
        """The key groups that are ahead, for a checkpoint: neighbours of one time are one part."""
        parts: list[AheadOfWatermark] = []
        for group, time in sorted(self.ahead.items()):
            first = group
            if parts and (parts[-1].last_key_group, parts[-1].watermark) == (group - 1, time):
                first = parts.pop().first_key_group
            parts.append(AheadOfWatermark(first, group, time))
        return tuple(parts)
