"""A state against what it should be, computed without it.

Invariants: both sides are compared as canonical text, so equal values are equal whatever types
they had; memory holds the expected side and a few differences, never the state.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import ConfigError

SHOWN: Final = 10
"""How many differing keys are told."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key and its values as JSON; None where there is none."""

    key: str
    state: str | None
    expected: str | None


@dataclass(frozen=True, slots=True)
class TruthResult:
    """A comparison; `differing` counts all keys, `differences` are up to SHOWN of them."""

    checkpoint: int
    operator: str
    state: str
    keys: int
    """In the state."""
    expected_keys: int
    differing: int
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Every key has its value, and there is no other key."""
        return self.differing == 0


@dataclass(slots=True)
class Comparison:
    """Compares the keys of a state with the expected ones, as they come."""

    expected: dict[str, str]
    """Taken apart while the state's keys come in."""
    expected_keys: int = field(init=False)
    keys: int = 0
    differing: int = 0
    _differences: list[Difference] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.expected_keys = len(self.expected)

    def take(self, values: Iterable[tuple[str, str]]) -> None:
        """Compare keys of the state, each of which comes once."""
        for key, value in values:
            self.keys += 1
            expected = self.expected.pop(key, None)
            if value != expected:
                self._differ(Difference(key, value, expected))

    def finish(self, checkpoint: int, operator: str, state: str) -> TruthResult:
        """The result, once all keys of the state were taken."""
        for key, expected in sorted(self.expected.items()):
            self._differ(Difference(key, None, expected))
        return TruthResult(
            checkpoint,
            operator,
            state,
            self.keys,
            self.expected_keys,
            self.differing,
            tuple(self._differences),
        )

    def _differ(self, difference: Difference) -> None:
        self.differing += 1
        if len(self._differences) < SHOWN:
            self._differences.append(difference)


def by_key(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Expected values by key; raises ConfigError for a key that comes twice."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(
                "the answer of --against",
                expected="every key once",
                found=f"key {key} with {found[key]} and with {value}",
                action="combine the values of a key in the function",
            )
        found[key] = value
    return found
