"""What records of a key can be reduced to, on a keyed stream and in its windows.

Invariant: each reduction is a value of every record and a function that combines two values, so
what it keeps is one value, however many records there are.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from tidelog.errors import require
from tidelog.runtime.operators.answers import Watched
from tidelog.runtime.operators.operator import Operator, OperatorFactory
from tidelog.runtime.operators.order import Greatest, greatest, least
from tidelog.runtime.operators.stateless import Finished
from tidelog.runtime.user_code import check_plain
from tidelog.state.meaning import REDUCTION
from tidelog.state.registry import Definition
from tidelog.state.schema.types import declared

S = TypeVar("S")
Keyed = tuple[OperatorFactory, Definition | None]
"""An operator with state by key, and the only state that it has, where that is known."""


class OperatorOptions(TypedDict, total=False):
    """What every reduction takes besides."""

    emit_updates: bool
    value_type: Any
    migrate: Callable[[Any], Any] | None
    name: str


class Reductions(ABC, Generic[S]):
    """The reductions; each emits the fields of key and window, and the value after them.

    On a keyed stream that is (key, value) for every key at the end of the data or, with
    `emit_updates`, after every buffer for the keys that it changed. In windows it is when
    `window(..., emit=...)` says, and `emit_updates` is its "updates".

    Values are of any type that state keeps (docs/reference/values.md): what was put is what
    `combine` gets. After a restart a value of a type that the checkpoint does not have is refused;
    numbers go for one type. `value_type`, an annotation such as `int | str`, declares all that
    there may be; `migrate` makes one of these of a stored value that is not. `name` is that of the
    operator; without it, that of the function.
    """

    _default_name: str | None = None
    """The name of the operator where none is given; None: that of the function."""

    @abstractmethod
    def _combining(
        self, value_of: Callable[[Any], Any], combine: Callable[[Any, Any], Any], *, updates: bool
    ) -> Keyed:
        """The operator that combines values."""

    @abstractmethod
    def _then(self, name: str, operator: OperatorFactory, **fields: Any) -> S:
        """The stream after one more operator."""

    def aggregate(
        self,
        value_of: Callable[[Any], Any],
        combine: Callable[[Any, Any], Any],
        **options: Unpack[OperatorOptions],
    ) -> S:
        """Combine a value of every record per key; `combine` is associative."""
        return self._reduced("aggregate", value_of, combine, options, kind=None)

    def reduce(self, function: Callable[[Any, Any], Any], **options: Unpack[OperatorOptions]) -> S:
        """Combine the records of a key: two become one, of the same type."""
        return self._reduced("reduce", lambda record: record, function, options, kind=None)

    def count(self, **options: Unpack[OperatorOptions]) -> S:
        """How many records there are."""
        return self._reduced("count", lambda _: 1, operator.add, options)

    def sum(self, value_of: Callable[[Any], Any], **options: Unpack[OperatorOptions]) -> S:
        """The sum of the values."""
        return self._reduced("sum", value_of, operator.add, options)

    def min(self, value_of: Callable[[Any], Any], **options: Unpack[OperatorOptions]) -> S:
        """The least of the values; NaN is greater than all others."""
        return self._reduced("min", value_of, least, options)

    def max(self, value_of: Callable[[Any], Any], **options: Unpack[OperatorOptions]) -> S:
        """The greatest of the values; NaN is greater than all others."""
        return self._reduced("max", value_of, greatest, options)

    def mean(self, value_of: Callable[[Any], Any], **options: Unpack[OperatorOptions]) -> S:
        """The mean of the values. A list of their sum and their number is kept, and is what
        `value_type` and `migrate` are for.
        """

        def added(first: list[Any], second: list[Any]) -> list[Any]:
            return [first[0] + second[0], first[1] + second[1]]

        def quotient(value: list[Any]) -> Any:
            return value[0] / value[1]

        check_plain(value_of, "mean")
        return self._reduced("mean", lambda r: [value_of(r), 1], added, options, quotient)

    def top(self, n: int, *, by: Callable[[Any], Any], **options: Unpack[OperatorOptions]) -> S:
        """The list of the `n` records that are greatest `by` a value, the greatest first.

        NaN is greater than all other values. Of equal ones that which came first goes first, where
        slices or sessions become one that of the oldest. `value_type` is that of the list.
        """
        fits = isinstance(n, int) and n >= 1
        require("the number of records in top(n)", repr(n), fits, "an int, 1 or more")
        check_plain(by, "top")
        merged, kind = Greatest(n, by).merged, f"top {n}"
        return self._reduced("top", lambda record: [record], merged, options, kind=kind)

    def _reduced(
        self,
        function: str,
        value_of: Callable[[Any], Any],
        combine: Callable[[Any, Any], Any],
        options: OperatorOptions,
        result: Callable[[Any], Any] | None = None,
        kind: str | None = "",
    ) -> S:
        """What a function of this class makes of the records; emitted is the `result` of that.

        `kind` is what stored values are, by default the function's name; None: the user's own.
        """
        check_plain(value_of, function)
        check_plain(combine, function)
        unknown = ", ".join(options.keys() - OperatorOptions.__annotations__.keys())
        expected = "emit_updates, value_type, migrate or name; others are arguments of window(...)"
        require(f"arguments of {function}(...)", unknown, not unknown, expected)
        migrate, option = options.get("migrate"), f"{function}(..., value_type=...)"
        types = declared(options.get("value_type"), option, migrate, keys=False)
        updates = options.get("emit_updates", False)
        # What tidelog combines itself never is None.
        watched = Watched(combine) if kind is None else combine
        factory, state = self._combining(value_of, watched, updates=updates)
        name = options.get("name", self._default_name or function)
        operator = factory if result is None else partial(_with_result, factory, result)
        meaning = {} if kind is None else {REDUCTION: kind or function}
        return self._then(
            name, operator, keyed=True, value_types=types, state=state, meaning=meaning
        )


def _with_result(factory: OperatorFactory, result: Callable[[Any], Any]) -> Operator:
    return Finished(factory(), lambda fields: (*fields[:-1], result(fields[-1])))
