"""The events that are logged: docs/reference/logging.md lists them as the code declares them.

Errors as users meet them.
"""

import ast
import logging
import pickle
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tidelog.errors import FencedError, StorageError
from tidelog.events import Event

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "logging.md"
LIBRARY = ROOT / "src" / "tidelog"


@cache
def calls() -> list[tuple[str, Event, ast.Call]]:
    """Every `Event.NAME.log(...)` of the library, with the module it stands in."""
    found = []
    for path in sorted(LIBRARY.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        text = path.read_text()
        if "Event." not in text:
            continue  # parsing it takes a while
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Attribute(value=ast.Name(id="Event"), attr=name), attr="log"
                    )
                ):
                    found.append((module, Event[name], node))
    return found


def row(event: Event) -> str:
    """An event's line in the page's table."""
    loggers = ", ".join(sorted({f"`{module}`" for module, other, _ in calls() if other is event}))
    message = re.sub(r"%\((\w+)( [^)]+)\)s", r"`{\1}`\2s", event.message)
    message = re.sub(r"%\((\w+)\)[.\d]*[a-z]", r"`{\1}`", message)
    level = logging.getLevelName(event.level).lower()
    return f"| `{event.name.lower()}` | {level} | {loggers} | {message} |"


def test_the_page_lists_every_event_as_the_code_declares_it() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows == [row(event) for event in Event]


@pytest.mark.parametrize("end", ["", ".", ". ", ".\n", " .\n\n", ".\t"])
def test_a_message_that_quotes_a_sentence_has_one_full_stop(end: str) -> None:
    error = StorageError("the store", found=f"It is away{end}", action=f"wait{end}")
    assert str(error) == "the store; found It is away. Next: wait (a retry is safe)."


def test_every_event_is_logged_somewhere() -> None:
    assert {event for _, event, _ in calls()} == set(Event)


def test_an_event_is_logged_with_its_fields() -> None:
    for module, event, call in calls():
        given = {keyword.arg for keyword in call.keywords} - {"exc_info"}
        assert given == event.fields, f"{module}: {event.name}"
        assert [ast.unparse(argument) for argument in call.args] == ["logger"], module


@pytest.mark.parametrize(("rows", "text"), [(1, "1 stored row"), (2_000, "2,000 stored rows")])
def test_a_number_has_the_form_of_its_noun_that_fits(
    rows: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    Event.STATE_MIGRATED.log(logging.getLogger("tidelog"), operator="count", rows=rows)
    [record] = caplog.records
    assert record.getMessage() == f"operator 'count': {text} migrated"
    assert record.args == {"operator": "count", "rows": rows}


def test_nothing_but_events_is_logged() -> None:
    other = re.compile(r"\blog(ger|ging)\.(debug|info|warning|error|exception|critical|log)\(")
    found = [p for p in LIBRARY.rglob("*.py") if other.search(p.read_text())]
    assert found == [LIBRARY / "events.py"]


def test_the_library_is_quiet_unless_logging_is_configured() -> None:
    script = (
        "import logging, tidelog\n"
        "from tidelog.events import Event\n"
        "Event.MATERIALIZATIONS_ON_TIME.log(logging.getLogger('tidelog.materialize'))\n"
        "Event.CHECKPOINT_NOT_DELETED.log(logging.getLogger('tidelog.checkpoint'), "
        "checkpoint=1, error='x')\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert (run.stdout, run.stderr) == (b"", b"")


def test_a_record_has_a_fixed_message_and_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tidelog.checkpoint.slots")
    Event.CHECKPOINT_NOT_DELETED.log(logger, checkpoint=7, error="the disk is read-only")
    record = caplog.records[-1]
    assert record.msg == Event.CHECKPOINT_NOT_DELETED.message
    assert record.args == {"checkpoint": 7, "error": "the disk is read-only"}
    assert vars(record)["event"] == "checkpoint_not_deleted"
    assert record.getMessage() == (
        "checkpoint 7, which nothing needs, was not deleted: the disk is read-only"
    )
    assert record.funcName == "test_a_record_has_a_fixed_message_and_the_fields"


def test_an_error_crosses_a_process_border_whole() -> None:
    error = FencedError(
        "generation 3", expected="to run", found="another", action="stop", retry_safe=False
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is FencedError and vars(copy) == vars(error) and str(copy) == str(error)
