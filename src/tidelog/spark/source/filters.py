"""Which rows of a view the options ask for.

Invariants: narrowing is a conjunction, so its order does not matter and it never brings rows back;
the spans of a set of numbers are closed, ascending, disjoint and never adjacent, so equal sets are
equal values.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1
"""The ends of Spark's longest integer."""

_SPAN: Final = re.compile(r"(\d+)(?:(-)(\d*))?")


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of numbers as spans (first, last), both included."""

    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int]]) -> Self:
        """The union of spans in any order; those that end before they start are empty."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(span for span in spans if span[0] <= span[1]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    @classmethod
    def between(cls, first: int = LOWEST, last: int = HIGHEST) -> Self:
        """All numbers from `first` to `last`, both included."""
        return cls.of([(first, last)])

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Numbers and spans such as `3`, `0,4-6` or `100-`; None for any other text."""
        matches = [_SPAN.fullmatch(part.strip()) for part in text.split(",")]
        spans = []
        for match in matches:
            if match is None:
                return None
            first = int(match[1])
            open_end = HIGHEST if match[2] else first
            spans.append((first, int(match[3]) if match[3] else open_end))
        return cls.of(spans) if all(first <= last for first, last in spans) else None

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.spans)

    def __and__(self, other: "Intervals") -> "Intervals":
        return Intervals.of(
            (max(first, a), min(last, b)) for first, last in self.spans for a, b in other.spans
        )

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, end) that are in the set, as (start, end) with the end excluded."""
        for first, last in (self & Intervals.between(start, end - 1)).spans:
            yield first, last + 1


EVERYTHING: Final = Intervals.between()


@dataclass(frozen=True)
class Filter:
    """Takes the rows whose values lie in these sets; a column that is not named may have any."""

    numbers: Mapping[str, Intervals] = field(default_factory=dict)
    texts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def of(self, column: str) -> Intervals:
        """The numbers that a column may have."""
        return self.numbers.get(column, EVERYTHING)

    def narrows(self, column: str) -> bool:
        """Whether not every value of the column passes; null then does not."""
        return column in self.numbers or column in self.texts

    def accepts(self, **values: int | str) -> bool:
        """Whether a row with these values, by column, passes as far as they tell."""
        return all(
            value in self.of(column)
            if isinstance(value, int)
            else column not in self.texts or value in self.texts[column]
            for column, value in values.items()
        )
