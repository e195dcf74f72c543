"""Charts drawn: into a file by matplotlib, on a terminal by plotext.

Invariant: both libraries are loaded when a chart is drawn and not before; without them the error
says what to install.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.cost.plan.chart import Chart, duration_text
from tidelog.errors import ConfigError, optional_library

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS: Final = (".png", ".svg")
_COST: Final = "tab:blue"
_RESTORE: Final = "tab:orange"
_TICKS_S: Final = (1, 3, 10, 30, 60, 180, 600, 1_800, 3_600, 10_800, 43_200, 86_400)


def save(chart: Chart, path: Path) -> None:
    """Draw into a PNG or SVG file, by the path's ending; raises ConfigError."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"--plot {path}",
            expected=f"a file that ends with {' or '.join(FORMATS)}",
            found=path.suffix or "no ending",
            action="rename it",
        )
    with _needs("matplotlib"):
        # Heavy: only a plot pays for it.
        from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    cost = figure.add_subplot()
    restore = cost.twinx()
    _draw_curves(chart, cost, restore)
    _draw_targets(chart, cost, restore)
    _draw_mark(chart, cost, restore)
    handles = [line for axes in (cost, restore) for line in axes.get_legend_handles_labels()[0]]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9
    )
    try:
        figure.savefig(path, dpi=150)
    except OSError as cause:
        raise ConfigError(
            f"--plot {path}",
            expected="a file that can be written",
            found=cause.strerror or str(cause),
            action="choose another path",
        ) from cause


def _draw_curves(chart: Chart, cost: "Axes", restore: "Axes") -> None:
    cost.set_title(chart.title)
    cost.set_xscale("log")
    shown = [at for at in _TICKS_S if chart.intervals_s[0] <= at <= chart.intervals_s[-1]]
    cost.set_xticks(shown, [duration_text(at) for at in shown])
    cost.set_xticks([], minor=True)
    cost.set_xlabel("materialization interval")
    cost.set_ylabel(f"cost, {chart.currency} a month", color=_COST)
    restore.set_ylabel("restore time, seconds", color=_RESTORE)
    cost.plot(chart.intervals_s, chart.costs, color=_COST, marker=".", label="cost")
    restore.plot(
        chart.intervals_s, chart.restores_s, color=_RESTORE, marker=".", label="restore time"
    )
    cost.tick_params(axis="y", colors=_COST)
    restore.tick_params(axis="y", colors=_RESTORE)
    # From zero, so that a small difference looks small.
    cost.set_ylim(0, 1.1 * max(*chart.costs, chart.budget or 0.0))
    restore.set_ylim(0, 1.1 * max(*chart.restores_s, chart.restore_target_s or 0.0))
    cost.grid(axis="x", alpha=0.3)


def _draw_targets(chart: Chart, cost: "Axes", restore: "Axes") -> None:
    if chart.budget is not None:
        label = f"budget {chart.budget:g} {chart.currency}"
        cost.axhline(chart.budget, color=_COST, linestyle="--", linewidth=1, label=label)
    if chart.restore_target_s is not None:
        label = f"restore target {duration_text(chart.restore_target_s)}"
        restore.axhline(
            chart.restore_target_s, color=_RESTORE, linestyle="--", linewidth=1, label=label
        )


def _draw_mark(chart: Chart, cost: "Axes", restore: "Axes") -> None:
    mark = chart.mark
    if mark is None:
        return
    cost.axvline(mark.interval_s, color="0.4", linestyle=":", linewidth=1)
    cost.plot(mark.interval_s, mark.cost, "o", color=_COST, markersize=9)
    restore.plot(mark.interval_s, mark.restore_s, "o", color=_RESTORE, markersize=9)
    text = (
        f"{mark.label}: {duration_text(mark.interval_s)}\n"
        f"{mark.cost:.2f} {chart.currency} a month\nrestore {mark.restore_s:.1f} s"
    )
    left = chart.mark_is_late
    restore.annotate(
        text,
        xy=(mark.interval_s, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(-8 if left else 8, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        fontsize=9,
        bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "0.7", "alpha": 0.9},
    )


def draw(chart: Chart, width: int, height: int = 18) -> str:
    """Draw as text of `width` columns; raises ConfigError."""
    with _needs("plotext"):
        # Heavy: only a chart pays for it.
        import plotext  # noqa: PLC0415

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, height)
    plotext.title(chart.title)
    plotext.xscale("log")
    shown = [at for at in _TICKS_S if chart.intervals_s[0] <= at <= chart.intervals_s[-1]]
    plotext.xticks(shown, [duration_text(at) for at in shown])
    plotext.xlabel("materialization interval")
    cost_label = f"cost, {chart.currency} a month (left)"
    plotext.plot(
        chart.intervals_s, chart.costs, marker="c", label=cost_label, yside="left", color="blue"
    )
    plotext.plot(
        chart.intervals_s,
        chart.restores_s,
        marker="r",
        label="restore time, seconds (right)",
        yside="right",
        color="orange",
    )
    top = 1.1 * max(*chart.costs, chart.budget or 0.0)
    plotext.ylim(0, top, yside="left")
    plotext.ylim(0, 1.1 * max(*chart.restores_s, chart.restore_target_s or 0.0), yside="right")
    if chart.mark is not None:
        plotext.vline(chart.mark.interval_s)
        label = f" {chart.mark.label}: {duration_text(chart.mark.interval_s)} "
        side = "right" if chart.mark_is_late else "left"
        plotext.text(label, chart.mark.interval_s, top, yside="left", alignment=side)
    text: str = plotext.uncolorize(plotext.build())
    return text.rstrip()


def _needs(library: str) -> AbstractContextManager[None]:
    return optional_library(
        f"a plot by {library}",
        expected="the library to be installed",
        action="pip install 'tidelog[plots]', or leave the plot out",
    )
