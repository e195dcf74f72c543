"""A panel: one pair of axes, what is drawn on it, and what it says in words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Panel:
    """Something to be drawn in any width."""

    title: str
    """Which cell or group of cells; empty when there is only one."""
    draw: "Callable[[Axes], None]"
    words: str
    """The same for those who do not see it."""
    height: float
    """Pixels."""


@dataclass(frozen=True, slots=True)
class Plotted:
    """A plot with its panels."""

    title: str
    panels: tuple[Panel, ...]
    remark: str = ""
    """How to read it."""
