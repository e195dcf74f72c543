"""The operators' page in a real browser."""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import browser
from tests.support.damage import a_descriptor, damaged, flipped
from tests.support.depth import more_in_depth
from tests.support.jobs import filled
from tests.support.running import running_job
from tests.support.watching import MadeUpJob, document_of, done
from tests.unit.ui.test_query import checkpoint as checkpoint_of_a_query
from tests.unit.ui.test_query import document_of as query_document
from tests.unit.ui.test_watch import STATUS, completed
from tidelog.effects import Effects, loop_thread
from tidelog.ids import Slot
from tidelog.runtime.control.protocol import DIRECTORY_VARIABLE
from tidelog.storage.memory import MemoryStore
from tidelog.storage.object_names import checkpoint
from tidelog.ui.document import Document
from tidelog.ui.page import page, policy
from tidelog.ui.read import StoreReader
from tidelog.ui.server import PageServer, page_server
from tidelog.ui.watch import RefreshPace, Watcher

CHROMIUM = browser.installed()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

WIDTHS = more_in_depth((360, 900), (360, 700, 900, 1280, 1920))
COMPLAINTS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")


def live_document() -> Document:
    """A job with many operators of long names that runs, and a store with damage."""
    name, _ = a_descriptor(filled(), 9)
    objects = damaged(damaged(filled(), checkpoint(Slot(8)), flipped), name, flipped)
    operators = [
        {"id": f"an-operator-with-a-long-name-{number}", "parallelism": 3, "records_in": number}
        for number in range(9)
    ]
    failures = {"checkpoints": {"completed": 3, "last_failure": "a/" + "long/path" * 30}}
    status = {**STATUS, **failures, "operators": operators}
    # Older than what is stored, as when the clock was set back.
    points = tuple(completed(slot, checkpoint_id=slot + 100) for slot in range(10, 130))
    return document_of(objects, MadeUpJob(done(status, points)))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages as files: of a store alone, of one without a checkpoint, and of all there can be."""
    folder = tmp_path_factory.mktemp("pages")
    start = {checkpoint(Slot(4)): filled()[checkpoint(Slot(4))]}
    documents = {
        "store": document_of(filled()),
        "empty": document_of(start),
        "live": live_document(),
        "query": query_document(checkpoint_of_a_query().objects),
    }
    paths = {name: folder / f"{name}.html" for name in documents}
    for name, document in documents.items():
        paths[name].write_text(page(document))
    return paths


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    assert CHROMIUM is not None
    with browser.page(CHROMIUM, tmp_path_factory.mktemp("profile")) as found:
        yield found


def complaints(tab: browser.Page) -> list[Any]:
    return [event for kind in COMPLAINTS for event in tab.seen(kind)]


@pytest.mark.parametrize("name", ["store", "empty", "live", "query"])
def test_a_report_loads_nothing_and_complains_of_nothing(
    tab: browser.Page, reports: dict[str, Path], name: str
) -> None:
    tab.show(reports[name], 1280, "light")
    requests = [event["request"]["url"] for event in tab.seen("Network.requestWillBeSent")]
    addresses = [url for url in requests if not url.startswith("data:")]
    assert addresses == [reports[name].as_uri()]
    assert complaints(tab) == []


SECTIONS = ("Checkpoints", "Log and tables", "Materializations", "Operators", "A restore now")


@pytest.mark.parametrize("name", ["store", "empty", "live"])
def test_every_section_is_there_and_says_why_when_it_is_empty(
    tab: browser.Page, reports: dict[str, Path], name: str
) -> None:
    tab.show(reports[name], 1280, "light")
    titles = tab.evaluate("[...document.querySelectorAll('section > h2')].map(e => e.textContent)")
    assert titles == [*SECTIONS, "The bill of a day", "Slots"]
    bare = (
        "[...document.querySelectorAll('section')].filter(e => e.id !== 'figures'"
        " && !e.querySelector('.card, .empty')).map(e => e.id)"
    )
    assert tab.evaluate(bare) == []
    shown = tab.evaluate("document.querySelectorAll('figure.chart svg').length")
    assert (shown > 0) == (name != "empty")


def test_the_checkpoint_of_a_query_has_sections_of_its_own(
    tab: browser.Page, reports: dict[str, Path]
) -> None:
    tab.show(reports["query"], 1280, "light")
    titles = tab.evaluate("[...document.querySelectorAll('section > h2')].map(e => e.textContent)")
    assert titles == ["Batches", "State stores", "Every batch"]
    assert tab.evaluate("document.querySelectorAll('figure.chart svg').length") == 2
    assert tab.evaluate("document.querySelectorAll('#tide .stack').length") == 2
    assert tab.evaluate("document.querySelectorAll('#slots tbody tr').length") == 13


@pytest.mark.parametrize("name", ["store", "empty", "live", "query"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_never_scrolls_sideways(
    tab: browser.Page, reports: dict[str, Path], name: str, width: int
) -> None:
    tab.show(reports[name], width, "light")
    # With everything open that a reader can open.
    tab.evaluate("document.querySelectorAll('summary').forEach(e => e.click())")
    browser.assert_all_within_its_width(tab, scrolling=".box")


def test_texts_of_drawings_are_large_enough_and_within_them(
    tab: browser.Page, reports: dict[str, Path]
) -> None:
    for width in (360, 1280):
        tab.show(reports["live"], width, "light")
        sizes = (
            "[...document.querySelectorAll('.chart text')]"
            ".map(e => parseFloat(getComputedStyle(e).fontSize))"
        )
        assert min(tab.evaluate(sizes)) >= 10
        cut = tab.evaluate(
            "[...document.querySelectorAll('.chart text')].filter(e => {"
            "const inner = e.getBoundingClientRect();"
            "const outer = e.ownerSVGElement.getBoundingClientRect();"
            "return inner.left < outer.left - 1 || inner.right > outer.right + 1;"
            "}).map(e => e.textContent)"
        )
        assert cut == []


CONTRAST = """
(() => {
  const luminance = text => {
    const parts = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const probe = document.createElement('span');
  document.body.append(probe);
  const of = name => {
    probe.style.color = `var(--${name})`;
    return luminance(getComputedStyle(probe).color);
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  return Object.fromEntries(['paper', 'back'].flatMap(ground =>
    ['ink', 'muted', 'link', 'good', 'bad', 'warn', 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7']
      .map(name => [`${name} on ${ground}`, ratio(of(name), of(ground))])));
})()
"""


def test_light_and_dark_differ_and_both_have_contrast(
    tab: browser.Page, reports: dict[str, Path]
) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        tab.show(reports["live"], 1280, scheme)
        grounds.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        for name, ratio in tab.evaluate(CONTRAST).items():
            least = 3.0 if name.startswith("c") else 4.5
            assert ratio >= least, (scheme, name, ratio)
    assert len(grounds) == 2


def test_a_job_of_hundreds_of_subtasks_has_a_page_that_can_be_read(
    tab: browser.Page, tmp_path: Path
) -> None:
    document = document_of(filled())
    slot = document.slots[0]
    assert slot.operators is not None
    operator = slot.operators[-1]
    replace = msgspec.structs.replace
    subtasks = tuple(
        replace(operator.subtasks[0], index=at, materialized_bytes=1000 * at) for at in range(384)
    )
    large = replace(slot, operators=(replace(operator, subtasks=subtasks),))
    uploads = tuple(
        {"operator": operator.id, "subtask": at % 384, "table_bytes": at, "upto": at}
        | {"at_ms": document.at_ms + 100 * at}
        for at in range(1000)
    )
    slots = (large, *document.slots[1:])
    path = tmp_path / "large.html"
    path.write_text(page(replace(document, slots=slots, materialized=uploads)))
    for width in (360, 1280):
        tab.show(path, width, "light")
        section = "document.getElementById('materializations')"
        assert tab.evaluate(f"{section}.getBoundingClientRect().height") < 2000
        assert "The 16 largest of 384" in tab.evaluate(f"{section}.textContent")
        shown = tab.evaluate(f"{section}.querySelectorAll('circle').length")
        assert shown == len(uploads)
        overlapping = tab.evaluate(
            f"(() => {{ const boxes = [...{section}.querySelectorAll('text.y')]"
            ".map(e => e.getBoundingClientRect()).sort((a, b) => a.top - b.top);"
            " return boxes.some((box, at) => at && box.top < boxes[at - 1].bottom - 3); })()"
        )
        assert not overlapping


def test_damage_is_shown_with_what_to_do(tab: browser.Page, reports: dict[str, Path]) -> None:
    tab.show(reports["live"], 1280, "light")
    notices = tab.evaluate(
        "[...document.querySelectorAll('.notice.bad')].map(e => e.textContent).join()"
    )
    name, _ = a_descriptor(filled(), 9)
    assert "checkpoints/00000008.json" in notices and name in notices and "Next: " in notices
    slots = tab.evaluate("document.getElementById('slots').textContent")
    assert "damaged" in slots and "cannot be restored" in slots


def test_a_chart_tells_its_numbers_under_the_pointer_and_below(
    tab: browser.Page, reports: dict[str, Path]
) -> None:
    tab.show(reports["store"], 1280, "light")
    place = tab.evaluate(
        "(() => { const f = document.querySelector('#tide figure.chart');"
        " f.scrollIntoView(); const r = f.getBoundingClientRect();"
        " return [r.left + r.width - 20, r.top + 50]; })()"
    )
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    newest = document_of(filled()).checkpoints[-1]
    tip = tab.evaluate("document.querySelector('#tide .tip:not([hidden])').textContent")
    log_kib = newest["sizes"]["log_full_bytes"] / 1024
    assert f"Slot {newest['slot']}" in tip and f"{log_kib:.2f}\u00a0KiB" in tip
    tab.evaluate("document.querySelector('#tide summary').click()")
    rows = tab.evaluate("document.querySelectorAll('#tide details table tbody tr').length")
    assert rows == 3


@contextlib.contextmanager
def served(store: MemoryStore) -> Iterator[PageServer]:
    """The page of a store and its job, as `tidelog ui` serves it, in threads of this process."""
    effects, loop = Effects(), loop_thread()
    watching = Watcher(
        StoreReader(store, effects.clock), effects.clock, RefreshPace(slots_s=0.1, on_demand_s=0.0)
    )

    def document(on_demand: bool) -> bytes:
        async def both() -> Document:
            await watching.look_at_job()
            return await watching.document(on_demand=on_demand)

        made: Future[Document] = asyncio.run_coroutine_threadsafe(both(), loop)
        # A request under way when the server ends has no loop to answer it any more.
        return msgspec.json.encode(made.result(10))

    with page_server(0, page().encode(), policy(), document) as server:
        serving = asyncio.run_coroutine_threadsafe(
            effects.offload.wait(server.serve_forever, 0.01), loop
        )
        try:
            yield server
        finally:
            server.shutdown()
            serving.result()
            effects.offload.close()
            loop.call_soon_threadsafe(loop.stop)


def until(tab: browser.Page, condition: str) -> None:
    """Wait until a JavaScript expression holds."""
    for _ in range(600):
        if tab.evaluate(condition):
            return
        time.sleep(0.05)
    raise AssertionError(f"{condition}: {tab.evaluate('document.body.innerText')}")


class Served:
    """A page of a server where a test shows files."""

    def __init__(self, url: str) -> None:
        self._url = url

    def as_uri(self) -> str:
        return self._url


def test_the_page_is_live_while_a_job_runs_and_stays_when_it_ends(
    tab: browser.Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore("memory://browsed")
    with tempfile.TemporaryDirectory(prefix="tlc") as sockets:
        monkeypatch.setitem(os.environ, DIRECTORY_VARIABLE, sockets)
        with running_job(store, tmp_path), served(store) as server:
            tab.show(Served(server.url), 1280, "light")  # type: ignore[arg-type]
            until(tab, "document.querySelector('.pill.live')?.textContent === 'running'")
            count = "parseInt(document.querySelector('.tile .small').textContent)"
            before = tab.evaluate(count)
            until(tab, "document.querySelectorAll('#operators figure.chart path.curve').length > 0")
            tab.evaluate("document.querySelector('#operators summary').click()")
            until(tab, f"{count} > {before}")
            opened = "document.querySelector('#operators details').open"
            assert tab.evaluate(opened)  # What a reader opened stays open.
            assert tab.evaluate("document.querySelectorAll('#checkpoints rect.bar').length") > 0
        with served(store) as server:
            tab.show(Served(server.url), 1280, "light")  # type: ignore[arg-type]
            until(tab, "document.querySelector('.pill.state')?.textContent === 'not running here'")
            assert "No job answers" in tab.evaluate("document.getElementById('notices').innerText")
            assert complaints(tab) == []
            requests = {event["request"]["url"] for event in tab.seen("Network.requestWillBeSent")}
            own = {url for url in requests if url.startswith(server.url)}
            assert {url for url in requests - own if not url.startswith("data:")} == set()
        until(tab, "document.getElementById('lost')?.textContent.includes('does not answer')")
        assert tab.evaluate("document.querySelectorAll('.slots > *').length") > 0
