"""How late records are: from when a record was due until a job had handled it.

Invariant: record n is due n / rate seconds after the start, whether or not the job takes it then;
so a job that stands still is charged for every record that waited meanwhile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

_SAMPLE: Final = 16
"""About as many records of a buffer are looked at."""


class Handled(NamedTuple):
    """Records that were handled at one moment, by their numbers."""

    moment_s: float
    first: int
    last: int
    sample: Sequence[int]
    """Some of the numbers, spread over all."""

    @classmethod
    def of(cls, moment_s: float, numbers: Sequence[int]) -> "Handled":
        step = max(1, len(numbers) // _SAMPLE)
        return cls(moment_s, min(numbers), max(numbers), numbers[::step])


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds; percentiles are nearest ranks."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    stop_ms: float
    """The longest time in which nothing was handled."""

    @classmethod
    def of(
        cls, handled: Sequence[Handled], rate: float, warm_up_s: float, start_s: float | None = None
    ) -> "Lateness":
        """Of the records that were due after the warm-up; raises ValueError when there are none.

        Without a start no record is taken to be handled before it was due, and one at once.
        """
        # Not above: the jobs of `just speed stops` run beside an earlier tidelog without it.
        from tidelog.runtime.status.distribution import percentile  # noqa: PLC0415

        if start_s is None:
            start_s = min(each.moment_s - each.first / rate for each in handled)
        counted = [each for each in handled if each.last >= warm_up_s * rate]
        late_s = sorted(_late_s(counted, rate, warm_up_s, start_s))
        if len(counted) < 2 or not late_s:
            raise ValueError(f"no record was handled that was due after {warm_up_s:.0f} s")
        moments = [each.moment_s for each in counted]
        stop_s = max(after - before for before, after in pairwise(moments))
        seconds = [percentile(late_s, share) for share in (0.5, 0.99, 0.999, 1.0)]
        return cls(*(each * 1e3 for each in (*seconds, stop_s)))


def _late_s(
    handled: Sequence[Handled], rate: float, warm_up_s: float, start_s: float
) -> Iterator[float]:
    for each in handled:
        for number in each.sample:
            if number >= warm_up_s * rate:
                yield max(0.0, each.moment_s - start_s - number / rate)
