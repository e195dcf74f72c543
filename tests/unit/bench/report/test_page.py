"""The page: what it says, and that it needs nothing else."""

import re
from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser

import pytest

from tests.support.bench_sessions import cell, experiment, five, pair, session, trial
from tidelog_bench.experiment import Experiment
from tidelog_bench.measurement import Cell, Size
from tidelog_bench.report.chapter import LoadedSession, chapters
from tidelog_bench.report.page.page import page
from tidelog_bench.session.records import FailureRecord, Record, SkipRecord

pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'tidelog[plots]'")


class Reader(HTMLParser):
    """Elements with attributes, and the text outside of the style sheet."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def read(
    records: Sequence[Record],
    experiments: Sequence[Experiment] = (),
    planned: Sequence[Cell] = (),
    **changes: object,
) -> Reader:
    first = session(**changes)  # type: ignore[arg-type]
    told = [LoadedSession(first, [first, *records], {"checkpoints": planned})]
    reader = Reader()
    reader.feed(page(told, chapters(told, experiments or [experiment()]), ["gone"]))
    assert reader.open == []
    return reader


FIVE = five([10, 11, 12, 13, 14], [20, 21, 22, 23, 24])


@cache
def usual() -> Reader:
    """The page on five pairs, which is drawn once."""
    return read(FIVE)


def test_it_says_where_the_numbers_come_from() -> None:
    text = usual().text
    for said in (
        "2026-11-22 03:00:00 UTC",
        "standard, 5 pairs",
        "Seed 7",
        "A Processor, 2 cores, 8.0 GB, Linux 6",
        "0.25 to 4.25 when trials began",
        "python 3.12.1, tidelog 0.1.0",
        "0123456789ab, source feedc0de",
        "gone: not known to this version.",
    ):
        assert said in text


def test_the_summary_has_the_headline_ratio_with_its_verdict() -> None:
    text = usual().text
    assert "How long durations take duration p99, ms on / off 0.545x 0.5 to 0.583" in text
    assert "▲ better" in text


def test_medians_spans_ratios_and_every_pair_are_in_tables() -> None:
    text = usual().text
    assert "on 12 10\N{EN DASH}14 off 22 20\N{EN DASH}24" in text
    assert "on / off 0.545x 0.5\N{EN DASH}0.583 ▲ better" in text
    assert "Medians and ratios, min and max below" in text
    assert "on / off, 1 0.5x on / off, 2 0.524x" in text


def test_what_a_record_contains_cannot_break_the_page() -> None:
    hostile = "<script>alert(1)</script>\"'&"
    of = cell(job=hostile)
    records: list[Record] = [
        *five([1] * 5, [2] * 5, of=of),
        trial(hostile, 0, {"p99_ms": 1.0}, cell(job="x")),
        SkipRecord("checkpoints", "peer", hostile),
        FailureRecord("checkpoints", {}, hostile, 0, hostile),
    ]
    found = read(records, [experiment(title=hostile, question=hostile)], session=hostile)
    assert "script" not in {name for name, _ in found.elements}
    assert found.text.count("alert(1)") >= 6


def test_it_needs_nothing_from_elsewhere_and_no_id_occurs_twice() -> None:
    found = read(FIVE, [experiment("checkpoint-duration"), experiment("overhead")])
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


def test_published_figures_stand_beside_the_experiment_they_belong_to() -> None:
    found = read(FIVE, [experiment("checkpoint-duration"), experiment("elsewhere")])
    assert found.text.count("Published") == 1
    assert "value state, p99.9 10 s 1 s" in found.text
    assert "word count \N{MINUS SIGN}79.5 %" in found.text
    links = [a["href"] for name, a in found.elements if name == "a"]
    assert any((link or "").startswith("https://flink.apache.org/") for link in links)


def test_a_quick_session_says_that_its_numbers_mean_little() -> None:
    one = pair(0, {"p99_ms": 1}, {"p99_ms": 2})
    assert (
        "has one pair of each cell, small state and short runs"
        in read(one, pairs=1, size=Size.QUICK).text
    )
    assert "mean little" not in usual().text


def test_a_session_without_everything_says_what_is_missing() -> None:
    known = experiment().measurement.cells(Size.STANDARD)
    records: list[Record] = [
        *FIVE[:8],
        SkipRecord("checkpoints", "peer", "pip install peer"),
        FailureRecord("checkpoints", dict(known[0].settings), "on", 4, "Trace\nOSError: full"),
    ]
    text = read(records, planned=known).text
    assert "Incomplete; recorded are: 4 of 5 pairs" in text
    assert "Skipped here: peer : pip install peer" in text
    assert "Failed: on, pair 5" in text and "OSError: full" in text
    empty = read([], planned=known).text
    assert "Nothing has been measured." in empty
    assert "0 of 5 pairs" in empty


def test_every_table_has_headers_and_every_drawing_a_name() -> None:
    found = read(FIVE, [experiment("checkpoint-duration")])
    headers = [a for name, a in found.elements if name == "th"]
    assert headers and all(a.get("scope") for a in headers)
    drawings = [a for name, a in found.elements if name == "svg" and a.get("class") == "plot"]
    assert drawings and all(a.get("role") == "img" and a["aria-labelledby"] for a in drawings)
    assert ("html", {"lang": "en"}) in found.elements
    assert any(a.get("name") == "viewport" for _, a in found.elements)


def test_drawings_are_few_bytes() -> None:
    """300 points of two variants in each of four cells stay far below a megabyte."""
    cells = [cell(key_bytes=size) for size in (16, 32, 64, 128)]
    curve = [(at / 3, float(at * 7919 % 1000)) for at in range(300)]
    records = [
        record
        for number in range(5)
        for of in cells
        for record in pair(number, {"p99_ms": 1}, {"p99_ms": 2}, of, {"durations_ms": curve})
    ]
    first = session()
    told = [LoadedSession(first, [first, *records], {})]
    text = page(told, chapters(told, [experiment()]), [])
    assert len(text) < 400_000
    assert len(re.findall("<svg", text)) > 6
