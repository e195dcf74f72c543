"""From a panel to the text of an SVG element.

Invariants: the element has no size of its own, no colour but variables of the page, no font, no
id that another one has, and does not depend on anything outside the page.
"""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import optional_library
from tidelog_bench.report.numbers import number
from tidelog_bench.report.plots.palette import GRID, INK, MUTED, VARIABLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Panel:
    """Something to be drawn in any width."""

    title: str
    """Which cell or group of cells; empty when there is only one."""
    draw: "Callable[[Axes], None]"
    words: str
    """The alternative text of the image."""
    height: float
    """Height of the image in pixels."""


@dataclass(frozen=True, slots=True)
class Plotted:
    """A plot with its panels."""

    title: str
    panels: tuple[Panel, ...]
    remark: str = ""
    """How to read it."""


_SETTINGS: Final[Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": MUTED,
    "axes.labelsize": 11,
    "axes.linewidth": 0.8,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": MUTED,
    "axes.titlesize": 11,
    "figure.dpi": 72,
    "font.family": "sans-serif",
    "font.size": 11,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "tidelog",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.major.width": 0.8,
    "xtick.minor.size": 0,
    "ytick.color": MUTED,
    "ytick.left": False,
    "ytick.minor.size": 0,
}
_FEW: Final = 6.0
"""Highest by lowest value; below this a log scale gets the ticks of a linear one."""
_MANY: Final = 1e3
_SVG: Final = "{http://www.w3.org/2000/svg}"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_LONG_NUMBER: Final = re.compile(r"-?\d+\.\d{2,}")
_CURVED: Final = re.compile("[CQ]")
_FAMILY: Final = re.compile(r"\s*font-family:[^;]*;?")
_FONT: Final = re.compile(r"font: ?([^;]*?\b)?([\d.]+px) [^;]*")


def matplotlib_or_error() -> AbstractContextManager[None]:
    """Raises ConfigError that says what to install."""
    return optional_library(
        "the page of a report",
        expected="matplotlib, which draws its plots",
        action="pip install 'tidelog[plots]', or read the summary with --terminal",
    )


def svg(panel: Panel, width: float, name: str, title: str) -> str:
    """Draw a panel so many pixels wide; `name` must be the only one of the page."""
    with matplotlib_or_error():
        # Heavy: only a page pays for it.
        from matplotlib import rc_context  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_SETTINGS):
        figure = Figure(figsize=(width / 72, panel.height / 72), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr, call-arg]
        axes = figure.add_subplot()
        panel.draw(axes)
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return _cleaned(file.getvalue(), name, title, panel.words)


def plain_numbers(axis: Any, *, log: bool = False) -> None:
    """Tick labels as in the tables; on a log scale as many as its decades have room for."""
    from matplotlib.ticker import (  # noqa: PLC0415
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
    )

    if log:
        low, high = axis.get_view_interval()
        decades = high / max(low, 1e-12)
        subs = (1.0, 2.0, 5.0) if decades < _MANY else (1.0,)
        few = MaxNLocator(5) if decades < _FEW else LogLocator(subs=subs, numticks=8)
        axis.set_major_locator(few)
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, at: number(value)))


def _cleaned(data: bytes, name: str, title: str, words: str) -> str:
    root = ET.fromstring(data)
    for parent in list(root.iter()):
        for child in list(parent):
            kind = child.tag.rpartition("}")[2]
            if kind in ("metadata", "style") or child.get("style") == "fill: none":
                parent.remove(child)
    used = set(re.findall(rb'#([\w-]+)[")]', data))
    for element in root.iter():
        _clean(element, name, {identity.decode() for identity in used})
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {
        "class": "plot",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-words",
    }
    for at, (kind, key, text) in enumerate((("title", "title", title), ("desc", "words", words))):
        child = ET.Element(kind, {"id": f"{name}-{key}"})
        child.text = text
        root.insert(at, child)
    return re.sub(r">\s+<", "><", ET.tostring(root, encoding="unicode"))


def _clean(element: ET.Element, name: str, used: set[str]) -> None:
    element.tag = element.tag.removeprefix(_SVG)
    element.tail = None
    link = element.attrib.pop(_LINK, None)
    if link is not None:
        element.set("href", f"#{name}-{link.removeprefix('#')}")
    identity = element.attrib.pop("id", None)
    if identity in used:
        element.set("id", f"{name}-{identity}")
    for key, value in element.attrib.items():
        element.set(key, _attribute(key, value).replace("url(#", f"url(#{name}-"))


def _attribute(key: str, value: str) -> str:
    if key in ("id", "href", "viewBox"):
        return value
    if key == "style":
        return _style(value)
    value = " ".join(_LONG_NUMBER.sub(_shorter, value).split())
    # After M and L, further points need no letter; half of a curve would be that letter.
    return value.replace(" L ", " ") if key == "d" and not _CURVED.search(value) else value


def _style(style: str) -> str:
    for placeholder, variable in VARIABLES.items():
        style = style.replace(placeholder, variable)
    style = _FAMILY.sub("", style)
    return _FONT.sub(r"font-size: \2", style)


def _shorter(match: re.Match[str]) -> str:
    return f"{float(match[0]):.1f}".removesuffix(".0")
