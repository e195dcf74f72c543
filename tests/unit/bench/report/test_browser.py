"""The page in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import browser
from tests.support.bench_sessions import cell, experiment, loaded, pair, trial
from tidelog_bench.experiment import Figure
from tidelog_bench.report.answer import Report, answers
from tidelog_bench.report.page import page
from tidelog_bench.session.records import FailureRecord, Record

pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'tidelog[plots]'")
CHROMIUM = browser.installed()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

CURVE = [(at / 3, float(at * 7919 % 1000)) for at in range(200)]
CELLS = [cell(job=job, key_bytes=size) for job, size in (("word count", 16), ("window", 200))]
FIGURES = tuple(Figure(f"f{at}_ms", f"a figure with a long name {at}", "ms") for at in range(12))
BROKEN = FailureRecord(
    experiment="durations",
    settings={},
    variant="off",
    pair=3,
    error="Trace\nOSError: /a" + "/long/path" * 30,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all kinds of plots, wide tables, long words and a failure."""
    values = {figure.name: 1e6 for figure in FIGURES} | {"p99_ms": 7.0, "records_per_s": 1e6}
    records: list[Record] = [
        record
        for of in CELLS
        for number in range(5)
        for record in pair(number, values, values, of, {"durations_ms": CURVE})
    ]
    many = [trial("a-variant-" * 8, 0, values, CELLS[0]), BROKEN]
    sessions = [loaded([*records, *many], session="a-session-with-a-name-" * 5)]
    shown = [
        experiment(title="A long title " * 9, figures=FIGURES, main=("f0_ms",)),
        experiment("x" * 70),
    ]
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(Report(sessions, answers(sessions, shown), [])))
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    assert CHROMIUM is not None
    with browser.page(CHROMIUM, tmp_path_factory.mktemp("profile")) as found:
        yield found


def test_nothing_is_loaded_and_nothing_is_complained_about(tab: browser.Page, file: Path) -> None:
    tab.show(file, 1280, "light")
    requests = [event["request"]["url"] for event in tab.seen("Network.requestWillBeSent")]
    assert requests == [file.as_uri()]
    for kind in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
        assert tab.seen(kind) == []


@pytest.mark.parametrize("width", [360, 820, 1280])
def test_the_page_never_scrolls_sideways(tab: browser.Page, file: Path, width: int) -> None:
    tab.show(file, width, "light")
    browser.assert_all_within_its_width(tab, scrolling=".box, pre")


def test_text_of_drawings_is_large_enough_on_a_phone(tab: browser.Page, file: Path) -> None:
    tab.show(file, 360, "light")
    heights = tab.evaluate(
        "[...document.querySelectorAll('figure text')].map(e => parseFloat(getComputedStyle(e)"
        ".fontSize) * e.ownerSVGElement.getBoundingClientRect().width"
        " / e.ownerSVGElement.viewBox.baseVal.width)"
    )
    assert heights and min(heights) >= 8


CONTRAST = """
(() => {
  const luminance = text => {
    const parts = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  const ratio = text => {
    const both = [luminance(text), paper].sort((a, b) => b - a);
    return (both[0] + 0.05) / (both[1] + 0.05);
  };
  const probe = document.createElement('span');
  document.body.append(probe);
  return Object.fromEntries(['ink', 'muted', 'link', 'good', 'bad',
    'v0', 'v1', 'v2', 'v3', 'v4', 'v5', 'v6', 'v7'].map(name => {
      probe.style.color = `var(--${name})`;
      return [name, ratio(getComputedStyle(probe).color)];
    }));
})()
"""


def test_light_and_dark_differ_and_both_have_contrast(tab: browser.Page, file: Path) -> None:
    papers = set()
    for scheme in ("light", "dark"):
        tab.show(file, 1280, scheme)
        papers.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        contrast = tab.evaluate(CONTRAST)
        for name, ratio in contrast.items():
            assert ratio >= (3.0 if name.startswith("v") else 4.5), (scheme, name, ratio)
    assert len(papers) == 2


def test_print_is_light_even_from_a_dark_screen(tab: browser.Page, file: Path) -> None:
    tab.show(file, 1280, "dark")
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    tab.call("Emulation.setEmulatedMedia", media="print", features=[dark])
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    folded = "document.querySelector('details ul').getBoundingClientRect().height"
    assert tab.evaluate(folded) > 0
    tab.call("Emulation.setEmulatedMedia", media="screen")
