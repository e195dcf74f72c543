"""Spark's filters, as far as reading can skip what they leave out.

Invariants: a filter that is taken is applied exactly; every other one is given back as the same
object, and Spark applies it.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tidelog.spark.source.intervals import Intervals
from tidelog.spark.source.views import View
from tidelog.spark.source.wanted import Wanted

_TEXTS: Final = frozenset({"operator"})


def push(filters: Iterable[Filter], view: View, wanted: Wanted) -> tuple[Wanted, list[Filter]]:
    """What is wanted once the filters are applied too, and the filters left to Spark."""
    left = []
    for each in filters:
        narrowed = _narrowed(each, view, wanted)
        if narrowed is None:
            left.append(each)
        else:
            wanted = narrowed
    return wanted, left


def _narrowed(each: Filter, view: View, wanted: Wanted) -> Wanted | None:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    column = path[0] if len(path) == 1 else ""
    if column not in view.narrowed_by:
        return None
    if column in _TEXTS:
        texts = _texts(each)
        return None if texts is None else wanted.with_texts(column, texts)
    numbers = _numbers(each)
    return None if numbers is None else wanted.with_numbers(column, numbers)


def _texts(each: Filter) -> frozenset[str] | None:
    match each:
        case EqualTo(_, str() as text):
            return frozenset({text})
        case In(_, texts) if all(isinstance(text, str) for text in texts):
            return frozenset(texts)
    return None


def _numbers(each: Filter) -> Intervals | None:
    found = None
    match each:
        case EqualTo(_, int() as number):
            found = Intervals.numbers([number])
        case In(_, numbers) if all(isinstance(number, int) for number in numbers):
            found = Intervals.numbers(numbers)
        case GreaterThan(_, int() as number):
            found = Intervals.between(first=number + 1)
        case GreaterThanOrEqual(_, int() as number):
            found = Intervals.between(first=number)
        case LessThan(_, int() as number):
            found = Intervals.between(last=number - 1)
        case LessThanOrEqual(_, int() as number):
            found = Intervals.between(last=number)
    return found
