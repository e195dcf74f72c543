"""What `TimedRecords` has in memory of one bucket of time.

Invariant: of a whole bucket the records with the least numbers are in batches, later ones have rows
of their own, and the last ones are fresh; each of the three may be none.
"""

from dataclasses import dataclass, field
from itertools import islice

from tidelog.state.timed_batches import Placed
from tidelog.state.timed_rows import Entry, Held


@dataclass(slots=True)
class Bucket:
    """What of one bucket is in memory."""

    whole: bool
    rows_from: int | None
    """The first number of a record with a row of its own; None: none has. Of a bucket that is not
    whole all may have some: 0."""
    records: dict[bytes, list[Held]] = field(default_factory=dict)
    """By key group and encoded key, each list in order."""
    marked: set[int] = field(default_factory=set)
    """Numbers of marked records of a whole bucket."""
    fresh: dict[int, Placed] = field(default_factory=dict)
    """By number: those of a whole bucket that no flush has made rows yet."""
    batches: list[bytes] = field(default_factory=list)
    """The rows of a whole bucket that are batches."""
    batched: dict[bytes, int] = field(default_factory=dict)
    """By key group, how many records they have."""
    reads: dict[bytes, int] = field(default_factory=dict)
    """By key group, how often the rows of a single key were read."""
    loaded: set[bytes] = field(default_factory=set)
    """Key groups of which all records are in memory, of a bucket that is not whole."""
    large: dict[bytes, int] = field(default_factory=dict)
    """Places with more records than stay in memory, and how many were taken away since it was seen
    that they are: they are not read again and again to see it."""

    @property
    def held(self) -> int:
        """What it counts for in memory."""
        return sum([max(1, len(held)) for held in self.records.values()])

    def take_fresh(self, most: int) -> list[Placed]:
        """The first fresh records, which count as such no more."""
        if len(self.fresh) <= most:
            taken, self.fresh = list(self.fresh.values()), {}
            return taken
        return [self.fresh.pop(number) for number in list(islice(self.fresh, most))]

    def with_rows(self, entries: list[Entry]) -> list[Entry]:
        """Entries of this bucket, without those that have no rows of their own."""
        fresh, rows_from = self.fresh, self.rows_from
        if rows_from is None:
            return []
        if not fresh and not self.batches:
            return entries
        return [e for e in entries if e[2][1] >= rows_from and e[2][1] not in fresh]
