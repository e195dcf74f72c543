"""Colours, markers and dashes of variants.

Invariants: variants differ in three ways, so that no reader depends on colours; a drawing has
placeholders, which become the variables of the style sheet, light and dark.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

INK: Final = "#010203"
MUTED: Final = "#010204"
GRID: Final = "#010205"
_SLOT_COLOURS: Final = tuple(f"#0102{16 + at:02x}" for at in range(8))
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES: Final[tuple[tuple[float, ...], ...]] = (
    (),
    (5, 2),
    (1.5, 1.5),
    (7, 2, 1.5, 2),
    (3, 1),
    (9, 3),
    (4, 1.5, 1, 1.5, 1, 1.5),
    (2, 3),
)
_OURS: Final = ("on", "tidelog")

VARIABLES: Final = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    **{colour: f"var(--v{at})" for at, colour in enumerate(_SLOT_COLOURS)},
}


@dataclass(frozen=True, slots=True)
class Look:
    """How a variant is drawn."""

    slot: int
    """Number of its colour."""
    colour: str
    """A placeholder."""
    marker: str
    dash: tuple[float, ...]
    """Lengths of dashes and gaps; empty: solid."""

    @property
    def line(self) -> "str | tuple[float, tuple[float, ...]]":
        """For matplotlib."""
        return (0.0, self.dash) if self.dash else "-"


def looks(variants: Iterable[str]) -> dict[str, Look]:
    """The same look for what is measured in all experiments, others in their order."""
    names = list(variants)
    first = [name for name in names if name in _OURS][:1]
    ordered = [*first, *(name for name in names if name not in first)]
    shift = 0 if first else 1
    return {name: _look(at + shift) for at, name in enumerate(ordered)}


def _look(number: int) -> Look:
    slot = number % len(_SLOT_COLOURS)
    # After the last colour the markers move on, so that the ninth is not the first again.
    turn = number + number // len(_SLOT_COLOURS)
    return Look(
        slot,
        _SLOT_COLOURS[slot],
        _MARKERS[turn % len(_MARKERS)],
        _DASHES[turn % len(_DASHES)],
    )
