"""The operators' page in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import browser
from tests.support.damage import a_descriptor, damaged, flipped
from tests.support.jobs import filled
from tests.support.watching import MadeUpJob, document_of, done
from tests.unit.ui.test_document import STATUS, completed
from tests.unit.ui.test_query import checkpoint as checkpoint_of_a_query
from tests.unit.ui.test_query import document_of as query_document
from tidelog.ids import Slot
from tidelog.storage.object_names import checkpoint
from tidelog.ui.document import Document
from tidelog.ui.page import page

CHROMIUM = browser.installed()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

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
    points = tuple(completed(slot, attempt=slot + 100) for slot in range(10, 130))
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
    with browser.page(CHROMIUM, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("name", ["store", "empty", "live", "query"])
def test_a_report_loads_nothing_and_complains_of_nothing(
    tab: browser.Page, reports: dict[str, Path], name: str
) -> None:
    tab.show(reports[name])
    requests = [event["request"]["url"] for event in tab.seen("Network.requestWillBeSent")]
    addresses = [url for url in requests if not url.startswith("data:")]
    assert addresses == [reports[name].as_uri()]
    assert [event for kind in COMPLAINTS for event in tab.seen(kind)] == []


SECTIONS = ("Checkpoints", "Log and tables", "Materializations", "Operators", "A restore now")


@pytest.mark.parametrize("name", ["store", "empty", "live"])
def test_every_section_is_there_and_says_why_when_it_is_empty(
    tab: browser.Page, reports: dict[str, Path], name: str
) -> None:
    tab.show(reports[name])
    titles = tab.evaluate("[...document.querySelectorAll('section > h2')].map(e => e.textContent)")
    assert titles == [*SECTIONS, "The bill of a day", "Retained checkpoints"]
    bare = (
        "[...document.querySelectorAll('section')].filter(e => e.id !== 'figures'"
        " && !e.querySelector('.card, .empty')).map(e => e.id)"
    )
    assert tab.evaluate(bare) == []
    shown = tab.evaluate("document.querySelectorAll('figure.chart svg').length")
    assert (shown > 0) == (name != "empty")
