"""The page: what it says and draws, and that it needs nothing else."""

import re
from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser

import pytest
from msgspec import structs

from tests.support.bench_sessions import (
    QUANTILES,
    VARIANTS,
    cell,
    experiment,
    five,
    loaded,
    pair,
    trial,
)
from tidelog_bench.experiment import Bars, Cell, Experiment, OverTime, Plot, Points, Size
from tidelog_bench.experiments import experiments
from tidelog_bench.report.answer import Report, answer, answers
from tidelog_bench.report.page import page, published
from tidelog_bench.report.plots import Plotted, looks, median_pair, plots, svg
from tidelog_bench.session.records import FailureRecord, Record, SkipRecord

pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'tidelog[plots]'")
pytest.importorskip("jinja2", reason="the page needs jinja2: pip install 'tidelog[plots]'")

CURVE: Points = [(0.0, 10.0), (1.0, 30.0), (2.0, 20.0)]
FIVE = five([10, 11, 12, 13, 14], [20, 21, 22, 23, 24])


class Reader(HTMLParser):
    """Elements with attributes, and the text outside of the style sheet."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.style = tag == "style"

    def handle_data(self, data: str) -> None:
        if not self.style:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def read(
    records: Sequence[Record],
    asked: Sequence[Experiment] = (),
    planned: Sequence[Cell] = (),
    **changes: object,
) -> Reader:
    sessions = [loaded(records, planned, **changes)]
    reader = Reader()
    found = Report(sessions, answers(sessions, asked or [experiment()]), ["gone"])
    reader.feed(page(found))
    return reader


@cache
def usual() -> Reader:
    """The page on five pairs, which is drawn once."""
    return read(FIVE)


def test_it_says_where_the_numbers_come_from_and_what_they_say() -> None:
    text = usual().text
    for said in (
        "2026-11-22 03:00:00 UTC",
        "standard, 5 pairs",
        "A Processor, 2 cores, 8.0 GB, Linux 6",
        "0.25 to 4.25 when trials began",
        "python 3.12.1, tidelog 0.1.0",
        "0123456789ab, source feedc0de",
        "gone: not known to this version.",
        # The summary, the table of the cell, every pair.
        "How long durations take duration p99, ms on / off 0.545x 0.5 to 0.583 better",
        "duration p99 ms 12 10\N{EN DASH}14 22 20\N{EN DASH}24 0.545x 0.5\N{EN DASH}0.583 better",
        "on / off, duration p99: 0.5x, 0.524x",
    ):
        assert said in text
    assert "mean little" not in text
    one = read(pair(0, {"p99_ms": 1}, {"p99_ms": 2}), pairs=1, size=Size.QUICK).text
    assert "mean little. 1 pair: too few" in one and "small state and short runs" in one


def test_what_a_record_contains_cannot_break_the_page() -> None:
    hostile = "<script>alert(1)</script>\"'&"
    records: list[Record] = [
        *five([1] * 5, [2] * 5, of=cell(job=hostile)),
        trial(hostile, 0, {"p99_ms": 1.0}, cell(job="x")),
        SkipRecord(experiment="durations", variant="peer", reason=hostile),
        FailureRecord(experiment="durations", settings={}, variant=hostile, pair=0, error=hostile),
    ]
    found = read(records, [experiment(title=hostile, question=hostile)], session=hostile)
    assert "script" not in {name for name, _ in found.elements}
    assert found.text.count("alert(1)") >= 6


def test_it_needs_nothing_from_elsewhere_and_no_id_occurs_twice() -> None:
    values, curves = {"p99_ms": 1.0, "records_per_s": 7.0}, {"durations_ms": CURVE}
    found = read([r for n in range(5) for r in pair(n, values, values, None, curves)])
    kinds = {name for name, _ in found.elements}
    assert kinds.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base"})
    for name, attributes in found.elements:
        assert "src" not in attributes
        target = attributes.get("href")
        assert target is None or target.startswith("#") or name == "a"
        assert not any(key.startswith("on") for key in attributes)
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {a["href"] for _, a in found.elements if (a.get("href") or "").startswith("#")}
    assert {link[1:] for link in links if link} <= set(ids)
    (policy,) = (a["content"] for _, a in found.elements if a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")
    headers = [a for name, a in found.elements if name == "th"]
    assert headers and all(a.get("scope") for a in headers)
    figures = [a for name, a in found.elements if name == "figure"]
    assert figures and all(a.get("role") == "img" and a["aria-label"] for a in figures)


def test_published_figures_stand_beside_the_experiment_they_belong_to() -> None:
    found = read(FIVE, [experiment("checkpoints"), experiment("elsewhere")])
    assert "value state, p99.9, checkpoint duration: off 10 s, on 1 s" in found.text
    assert "word count, checkpoint duration: -79.5 % with a changelog" in found.text
    links = [a["href"] for name, a in found.elements if name == "a"]
    assert any((link or "").startswith("https://flink.apache.org/") for link in links)
    every = [figure for name in experiments() for figure in published(name)]
    assert len(every) > 20
    for figure in every:
        assert (
            figure["what"] and figure["source"]["setup"] and figure["source"]["url"][:4] == "http"
        )
        assert (figure["change"] is None) == bool(figure["off"] and figure["on"])
    assert published("no such experiment") == []


def test_a_session_without_everything_says_what_is_missing() -> None:
    known = experiment().cells(Size.STANDARD)
    records: list[Record] = [
        *FIVE[:8],
        SkipRecord(experiment="durations", variant="peer", reason="pip install peer"),
        FailureRecord(
            experiment="durations",
            settings=dict(known[0].settings),
            variant="on",
            pair=4,
            error="Trace\nOSError: full",
        ),
    ]
    text = read(records, planned=known).text
    assert "Incomplete; recorded are: 4 of 5 pairs" in text
    assert "Skipped here: peer : pip install peer" in text
    assert "Failed: on, pair 5" in text and "OSError: full" in text
    empty = read([], planned=known).text
    assert "Nothing has been measured." in empty and "0 of 5 pairs" in empty


def drawn(plot: Plot, records: Sequence[Record], **changes: object) -> list[Plotted]:
    return list(plots(answer(experiment(plots=(plot,), **changes), loaded(records))))


def test_a_drawing_has_no_colour_font_or_metadata_of_its_own_and_is_small() -> None:
    curve = [(at / 3, float(at * 7919 % 1000)) for at in range(300)]
    records = pair(0, {"p99_ms": 1}, {"p99_ms": 2}, None, {"durations_ms": curve})
    (found,) = drawn(OverTime("durations_ms", "Durations", "ms"), records)
    one, other = (svg(found.panels[0], name) for name in ("one", "other"))
    assert not re.search(r"#[0-9a-fA-F]{6}\b|rgb\(|font-family|<style|<metadata", one)
    assert {"var(--v0)", "var(--v1)", "var(--muted)"} <= set(re.findall(r"var\(--\w+\)", one))
    ids, others = (set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, other))
    assert ids.isdisjoint(others)
    assert set(re.findall(r'(?:href="|url\()#([\w-]+)', one)) <= ids
    assert len(one) < 40_000


def test_curves_are_those_of_the_median_pair_and_show_a_further_series_dotted() -> None:
    series = {"durations_ms": CURVE, "predicted_ms": [(0.0, 25.0), (2.0, 25.0)]}
    ratios = [(1, 10), (9, 10), (5, 10)]
    records = [
        record
        for number, (on, off) in enumerate(ratios)
        for record in pair(number, {"p99_ms": on}, {"p99_ms": off}, None, series)
    ]
    half = trial("on", 3, {"p99_ms": 5.0}, None, series)
    found = answer(experiment(), loaded([*records, half]))
    chosen = [(of.variant, of.pair) for of in median_pair(found.cells[0], found)]
    assert chosen == [("on", 2), ("off", 2)]
    (plotted,) = drawn(OverTime("durations_ms", "D", "ms", also="predicted_ms"), records)
    assert plotted.remark.endswith("Thin and dotted: predicted ms.")
    assert plotted.panels[0].words.startswith("on: 3 points over 2 s, from 10 to 30 ms; off:")
    assert svg(plotted.panels[0], "x").count("stroke-dasharray") >= 2
    assert drawn(OverTime("other", "Size", "MB"), records) == []


def test_bars_are_a_group_per_cell_or_a_panel_per_cell_with_a_group_per_figure() -> None:
    cells = [cell(job="word-count", key_bytes=size) for size in (16, 200)]
    records = [r for of in cells for r in pair(0, {"p99_ms": 1}, {"p99_ms": 2500}, of)]
    (found,) = drawn(Bars(("p99_ms",), "Durations", log=True), records)
    assert [panel.words for panel in found.panels] == [
        "key 16 bytes: on 1 ms, off 2,500 ms; key 200 bytes: on 1 ms, off 2,500 ms"
    ]
    assert "2,500" in svg(found.panels[0], "x")
    values = {name: float(at) for at, name in enumerate(QUANTILES, 1)}
    (several,) = drawn(Bars(QUANTILES, "Durations"), [trial("on", 0, values)])
    assert [panel.words for panel in several.panels] == [
        "duration p50: on 1 ms; duration p90: on 2 ms; duration p99: on 3 ms"
    ]
    assert drawn(Bars(("other_ms",), "Others"), records) == []


def test_variants_differ_in_colour_marker_and_dash_and_ours_is_always_the_first() -> None:
    found = looks(["off", "on", *(f"v{at}" for at in range(6))])
    assert found["on"] == looks(VARIANTS)["on"] == looks(["x", "on"])["on"]
    for trait in ("colour", "marker", "line"):
        assert len({getattr(look, trait) for look in found.values()}) == 8
    many = looks([f"v{at}" for at in range(16)]).values()
    assert len({(look.colour, look.marker) for look in many}) == 16


@pytest.mark.parametrize("known", experiments().values(), ids=lambda known: known.name)
def test_every_experiment_there_is_has_something_to_draw_in_each_plot(known: Experiment) -> None:
    figures = {figure.name: 1.0 for figure in known.figures}
    series: dict[str, Points] = {}
    for plot in known.plots:
        if isinstance(plot, OverTime):
            series |= dict.fromkeys((plot.series, plot.also or plot.series), CURVE)
        else:
            assert set(plot.figures) <= figures.keys()
    records = [
        structs.replace(trial(variant, 0, figures, of, series), experiment=known.name)
        for of in known.cells(Size.STANDARD)
        for variant in of.variants
    ]
    titles = [plotted.title for plotted in plots(answer(known, loaded(records)))]
    assert titles == [plot.title for plot in known.plots]
