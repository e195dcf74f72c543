"""What of a view is wanted: the sum of options and of filters that Spark hands down.

Invariant: narrowing is a conjunction, so its order does not matter and it never brings rows back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.spark.source.intervals import EVERYTHING, Intervals


@dataclass(frozen=True)
class Wanted:
    """Rows are wanted whose values lie in these sets; a column that is not named takes any."""

    numbers: Mapping[str, Intervals] = field(default_factory=dict)
    texts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def with_numbers(self, column: str, numbers: Intervals) -> "Wanted":
        """Rows that also have a number of `numbers` in this column."""
        return Wanted({**self.numbers, column: self.of(column) & numbers}, self.texts)

    def with_texts(self, column: str, texts: frozenset[str]) -> "Wanted":
        """Rows that also have a text of `texts` in this column."""
        return Wanted(self.numbers, {**self.texts, column: self.texts.get(column, texts) & texts})

    def of(self, column: str) -> Intervals:
        """The numbers wanted in a column."""
        return self.numbers.get(column, EVERYTHING)

    def narrows(self, column: str) -> bool:
        """Whether not every value of the column is wanted, so that null is not."""
        return column in self.numbers or column in self.texts

    def has(self, **values: int | str) -> bool:
        """Whether a row with these values, by column, may be wanted."""
        return all(
            value in self.of(column)
            if isinstance(value, int)
            else column not in self.texts or value in self.texts[column]
            for column, value in values.items()
        )
