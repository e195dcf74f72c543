"""The page: what it says and draws, and that it needs nothing else.

What the records of a session answer to an experiment.
"""

from collections.abc import Sequence
from html.parser import HTMLParser

import pytest
from msgspec import structs

from tests.support.bench_sessions import five, loaded, pair, trial
from tests.support.bench_toy import cell, experiment
from tidelog_bench.experiment import Better, Cell, Experiment, Figure, Ratio, Size
from tidelog_bench.experiments import experiments
from tidelog_bench.report.answer import Answer, Report, answer, answers
from tidelog_bench.report.numbers import Verdict, ratios, verdict
from tidelog_bench.report.shown import page, plots
from tidelog_bench.session.records import FailureRecord, Record, SkipRecord

pytest.importorskip("jinja2", reason="the page needs jinja2: pip install 'tidelog[plots]'")


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
    values = {"p99_ms": 1.0, "records_per_s": 7.0}
    found = read([r for n in range(5) for r in pair(n, values, values)])
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


@pytest.mark.parametrize("known", experiments().values(), ids=lambda known: known.name)
def test_every_experiment_there_is_has_something_to_draw_in_each_plot(known: Experiment) -> None:
    figures = {figure.name: 1.0 for figure in known.figures}
    for plot in known.plots:
        assert set(plot.figures) <= figures.keys()
    records = [
        structs.replace(trial(variant, 0, figures, of), experiment=known.name)
        for of in known.cells(Size.STANDARD)
        for variant in of.variants
    ]
    assert list(plots(answer(known, loaded(records)))) == [plot.title for plot in known.plots]


SHORT = cell(job="word-count", key_bytes=16)
LONG = cell(job="word-count", key_bytes=200)


def answered(records: Sequence[Record], planned: Sequence[object] = ()) -> Answer:
    return answer(experiment(), loaded(records, planned))  # type: ignore[arg-type]


def test_a_headline_spans_all_cells_and_says_where_they_disagree() -> None:
    records = [*five([1] * 5, [2] * 5, of=SHORT), *five([4] * 5, [2, 2, 2, 2, 8], of=LONG)]
    (line,) = answered(records).headlines
    assert (line.ratio, line.figure.name) == ("on / off", "p99_ms")
    assert (line.median, line.min, line.max) == (1.25, 0.5, 2.0)
    assert (line.kind, line.says) == ("mixed", "1 better, 1 within noise")
    (alike,) = answered(records[:10] + five([1] * 5, [3] * 5, of=LONG)).headlines
    assert (alike.kind, alike.says) == ("better", "better in all 2 cells")
    # There is none where nothing can be divided.
    assert answered([trial("on", 0, {"p99_ms": 1.0})]).headlines == []
    assert answered(pair(0, {"p99_ms": 1.0}, {"p99_ms": 0.0})).headlines == []


SLOW, FAST = [20.0, 21.0, 22.0, 23.0, 24.0], [10.0, 11.0, 12.0, 13.0, 23.9]


@pytest.mark.parametrize(
    ("on", "off", "better", "said"),
    [
        (FAST, SLOW, "lower", Verdict.BETTER),
        (SLOW, FAST, "lower", Verdict.WORSE),
        (FAST, SLOW, "higher", Verdict.WORSE),
        (SLOW, FAST, "higher", Verdict.BETTER),
        (FAST, SLOW, "neither", Verdict.DIFFERENT),
        ([*FAST[:4], 24.1], SLOW, "lower", Verdict.NOISE),  # one pair on the other side of 1
        ([*FAST[:4], 24.0], SLOW, "lower", Verdict.NOISE),  # one pair that is exactly even
        (SLOW, SLOW, "lower", Verdict.EQUAL),
    ],
)
def test_five_pairs_on_one_side_of_one_are_beyond_noise(
    on: list[float], off: list[float], better: Better, said: Verdict
) -> None:
    records, figure = five(on, off), Figure("p99_ms", "duration", "ms", better)
    found = ratios(records, [Ratio("on", "off")])["on / off"]["p99_ms"]
    assert verdict(found, figure) is said
    four = ratios(records[:8], [Ratio("on", "off")])["on / off"]["p99_ms"]
    assert verdict(four, figure) is Verdict.FEW
