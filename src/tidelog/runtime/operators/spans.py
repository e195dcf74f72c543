"""Spans of windows, and when windows of a span fire. Pure."""

from dataclasses import dataclass
from typing import Final

from tidelog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Firing:
    """When windows emit, and what becomes of late records."""

    late: str | None = None
    """The side output of late records; None: they are dropped."""
    lateness_ms: int = 0
    """For so long after its end a window still takes records, and fires again."""
    updates: bool = False
    """Windows are emitted after each buffer that changes them, and not at their end."""

    def __str__(self) -> str:
        """The arguments of a window that differ from the default."""
        given = {
            "allowed_lateness=": self.lateness_ms,
            "late=": self.late,
            "emit='updates'": self.updates,
        }
        return ", ".join(name for name, value in given.items() if value)

    @property
    def once(self) -> bool:
        """Whether each window is emitted once, and needed no more after that."""
        return not (self.lateness_ms or self.updates)


ONCE: Final = Firing()


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """Size and slide in milliseconds; tumbling when they are equal."""

    size_ms: int
    slide_ms: int

    def __post_init__(self) -> None:
        """Raises ConfigError for spans that cannot work."""
        if not 0 < self.slide_ms <= self.size_ms:
            raise ConfigError(
                "window",
                expected="0 < slide <= size",
                found=f"size {self.size_ms} ms, slide {self.slide_ms} ms",
                action="change one of them",
            )

    @property
    def tumbling(self) -> bool:
        """Whether each window is one slice, which no other window has."""
        return self.slide_ms == self.size_ms

    def slice_of(self, time_ms: int) -> int:
        """Start of the slice that holds a time: no window starts or ends between the two."""
        into_slide, last_end = time_ms % self.slide_ms, self.size_ms % self.slide_ms
        return time_ms - into_slide + (last_end if into_slide >= last_end else 0)

    def slices_before_next(self, start: int) -> tuple[int, ...]:
        """Starts of the slices of a window that the next window does not have."""
        last_end = self.size_ms % self.slide_ms
        return (start, start + last_end) if last_end else (start,)

    def starts(self, time_ms: int, passed_ms: int) -> range:
        """Starts of the windows of a time that end after `passed_ms`."""
        return range(self.first_after(time_ms, passed_ms), time_ms + 1, self.slide_ms)

    def last_end(self, time_ms: int) -> int:
        """The last time of the last window that has this time."""
        return time_ms - time_ms % self.slide_ms + self.size_ms - 1

    def next_end(self, passed_ms: int) -> int:
        """The last time of the first window that ends after `passed_ms`."""
        return self.first_after(passed_ms, passed_ms) + self.size_ms - 1

    def first_after(self, slice_ms: int, passed_ms: int) -> int:
        """Start of the first window with this slice that ends after `passed_ms`."""
        too_early = max(slice_ms, passed_ms + 1) - self.size_ms
        return too_early - too_early % self.slide_ms + self.slide_ms
