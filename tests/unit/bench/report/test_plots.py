"""Plots: what they draw, in which colours, and what they say in words."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest
from msgspec import structs

from tests.support.bench_sessions import QUANTILES, VARIANTS, cell, experiment, pair, trial
from tidelog_bench.experiment import Against, Bars, Distribution, Experiment, Figure, OverTime, Plot
from tidelog_bench.experiments import experiments
from tidelog_bench.measurement import Points, Size
from tidelog_bench.report.answer import answer
from tidelog_bench.report.page.figures import plots
from tidelog_bench.report.plots.canvas import Plotted, svg
from tidelog_bench.report.plots.over_time import median_pair
from tidelog_bench.report.plots.palette import looks
from tidelog_bench.session.records import Record

pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'tidelog[plots]'")

CURVE: Points = [(0.0, 10.0), (1.0, 30.0), (2.0, 20.0)]
CELLS = [cell(job=job, key_bytes=size) for job in ("word-count", "window") for size in (16, 200)]


def drawn(plot: Plot, records: Sequence[Record], **changes: object) -> list[Plotted]:
    found = answer(experiment(plots=(plot,), **changes), records)
    return list(plots(found, looks(found.variants)))


def everywhere(on: float, off: float, figure: str = "p99_ms") -> list[Record]:
    return [
        record
        for number in range(3)
        for of in CELLS
        for record in pair(number, {figure: on + number}, {figure: off + number}, of)
    ]


def test_a_drawing_has_no_colour_font_or_size_of_its_own_and_no_id_of_another() -> None:
    plot = Against("p99_ms", "key_bytes", "Durations", log_x=True, log_y=True)
    (found,) = drawn(plot, everywhere(10, 1000))
    one, other = (svg(found.panels[0], 340, name, "Durations") for name in ("one", "other"))
    assert not re.search(r"#[0-9a-fA-F]{6}\b|rgb\(|font-family|<style|<metadata|xmlns", one)
    assert {"var(--v0)", "var(--v1)", "var(--muted)", "var(--grid)"} <= set(
        re.findall(r"var\(--\w+\)", one)
    )
    root = ET.fromstring(one)
    assert root.get("viewBox") == "0 0 340 250"
    assert {"width", "height"}.isdisjoint(root.attrib)
    assert one.replace("one-", "other-") == other
    ids = re.findall(r'\bid="([^"]+)"', one)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([\w-]+)', one)) <= set(ids)


def test_a_drawing_is_named_and_told_in_words() -> None:
    (found,) = drawn(Bars("p99_ms", "Durations"), pair(0, {"p99_ms": 1}, {"p99_ms": 2500}))
    root = ET.fromstring(svg(found.panels[0], 340, "x", "Durations & more"))
    title, words = root[0], root[1]
    assert (title.tag, title.text) == ("title", "Durations & more")
    assert (words.tag, words.text) == ("desc", "all: on 1 ms, off 2,500 ms")
    assert root.get("aria-labelledby") == f"{title.get('id')} {words.get('id')}"


def test_against_has_a_panel_for_each_of_the_other_settings() -> None:
    (found,) = drawn(Against("p99_ms", "key_bytes", "Durations"), everywhere(10, 1000))
    assert [panel.title for panel in found.panels] == ["job word-count", "job window"]
    assert found.panels[0].words == "on: 11 at 16, 11 at 200; off: 1,001 at 16, 1,001 at 200 (ms)"
    assert found.remark == "Medians; bars from min to max."


def test_against_leaves_out_cells_without_the_setting() -> None:
    bare = trial("on", 0, {"p99_ms": 1.0}, cell(job="word-count"))
    assert drawn(Against("p99_ms", "key_bytes", "Durations"), [bare]) == []


def test_against_one_place_only_becomes_bars() -> None:
    records = pair(0, {"p99_ms": 1}, {"p99_ms": 2}, cell(job="word-count", key_bytes=16))
    (found,) = drawn(Against("p99_ms", "key_bytes", "Durations"), records)
    assert found.panels[0].words == "all: on 1 ms, off 2 ms"
    both = (Bars("p99_ms", "By cell"), Against("p99_ms", "key_bytes", "By key length"))
    told = answer(experiment(plots=both), records)
    assert [each.title for each in plots(told, looks(told.variants))] == ["By cell"]


def test_curves_are_those_of_the_median_pair() -> None:
    of = CELLS[0]
    ratios = [(1, 10), (9, 10), (5, 10)]
    records = [
        record
        for number, (on, off) in enumerate(ratios)
        for record in pair(number, {"p99_ms": on}, {"p99_ms": off}, of, {"a": CURVE})
    ]
    half = trial("on", 3, {"p99_ms": 5.0}, of, {"a": CURVE})
    found = answer(experiment(), [*records, half])
    assert [(t.variant, t.pair) for t in median_pair(found.cells[0], found)] == [
        ("on", 2),
        ("off", 2),
    ]


def test_curves_show_further_series_dotted_and_say_so() -> None:
    plot = OverTime("size_mb", "Size", "MB", also=("predicted_mb",))
    series = {"size_mb": CURVE, "predicted_mb": [(0.0, 25.0), (2.0, 25.0)]}
    records = pair(0, {"p99_ms": 1}, {"p99_ms": 2}, None, series)
    (found,) = drawn(plot, records)
    assert found.remark == "Thin and dotted: predicted mb."
    assert found.panels[0].words.startswith("on: 3 points over 2 s, from 10 to 30 MB; off:")
    text = svg(found.panels[0], 340, "x", "Size")
    assert text.count("stroke-dasharray") >= 2
    assert drawn(OverTime("other", "Size", "MB"), records) == []


def test_a_distribution_names_quantiles_without_what_they_share() -> None:
    values = {name: float(at) for at, name in enumerate(QUANTILES, 1)}
    (found,) = drawn(Distribution(QUANTILES, "Durations"), [trial("on", 0, values)])
    assert found.panels[0].words == "on: p50 1 ms, p90 2 ms, p99 3 ms"


def test_many_cells_take_several_panels_of_bars() -> None:
    records = [
        record
        for size in range(1, 15)
        for record in pair(0, {"p99_ms": size}, {"p99_ms": 0}, cell(key_bytes=size))
    ]
    (found,) = drawn(Bars("p99_ms", "Durations", log=True), records)
    words = "; ".join(panel.words for panel in found.panels)
    assert len(found.panels) == 3
    assert re.findall(r"on (\d+) ms", words) == [str(size) for size in range(1, 15)]
    assert all("<svg" in svg(panel, 340, "x", "x") for panel in found.panels)


def test_cost_per_day_is_drawn_wherever_it_is_a_figure() -> None:
    cost = Figure("dollars_per_day", "cost", "$ a day")
    records = pair(0, {"dollars_per_day": 3}, {"dollars_per_day": 12})
    found = drawn(Bars("p99_ms", "Durations"), records, figures=(cost,))
    assert [(each.title, each.panels[0].words) for each in found] == [
        ("Cost per day", "all: on 3 $ a day, off 12 $ a day")
    ]
    assert [e.title for e in drawn(Bars(cost.name, "Mine"), records, figures=(cost,))] == ["Mine"]


def test_variants_differ_in_colour_marker_and_dash_and_ours_is_always_the_first() -> None:
    found = looks(["off", "on", *(f"v{at}" for at in range(6))])
    assert found["on"] == looks(VARIANTS)["on"] == looks(["x", "on"])["on"]
    for trait in ("colour", "marker", "dash"):
        assert len({getattr(look, trait) for look in found.values()}) == 8
    many = looks([f"v{at}" for at in range(16)]).values()
    assert len({(look.colour, look.marker) for look in many}) == 16


def reading(experiment: Experiment) -> tuple[dict[str, float], dict[str, Points]]:
    """All figures and series that an experiment shows."""
    figures = {figure.name: 1.0 for figure in experiment.figures}
    series: dict[str, Points] = {}
    for plot in experiment.plots:
        match plot:
            case OverTime():
                series |= dict.fromkeys((plot.series, *plot.also), CURVE)
            case Distribution():
                figures |= dict.fromkeys(plot.figures, 1.0)
            case Against() | Bars():
                figures[plot.figure] = 1.0
    return figures, series


@pytest.mark.parametrize("known", experiments().values(), ids=lambda known: known.name)
def test_every_experiment_there_is_has_something_to_draw_in_each_plot(known: Experiment) -> None:
    figures, series = reading(known)
    records = [
        structs.replace(trial(variant, 0, figures, of, series), measurement=known.measurement.name)
        for of in known.measurement.cells(Size.STANDARD)
        for variant in of.variants
    ]
    found = answer(known, records)
    titles = [plotted.title for plotted in plots(found, looks(found.variants))]
    assert {plot.title for plot in known.plots} <= set(titles)
    sizes = (cell for size in Size for cell in known.measurement.cells(size))
    variants = {variant for each in sizes for variant in each.variants}
    assert {name for ratio in known.ratios for name in (ratio.over, ratio.under)} <= variants
