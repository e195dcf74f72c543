"""docs/reference/cli-json.md is complete: no command prints a field it does not name."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from tests.support.cli import lay_out, tidelog
from tests.support.damage import damaged, flipped
from tests.support.jobs import filled
from tidelog.checkpoint.invariants import Invariant
from tidelog.metrics import METRIC
from tidelog.runtime.status.series import SERIES
from tidelog.runtime.status.status import JobStatus

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "cli-json.md").read_text()
USER_FIELDS = {"letter", "times", "share", "count", "at", "length", "word"}


def keys(document: object) -> Iterator[str]:
    """All keys of a JSON document."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from keys(value)
    elif isinstance(document, list):
        for item in document:
            yield from keys(item)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["checkpoints", "list"], []),
        (["checkpoints", "show"], ["7"]),
        (["inspect"], ["--deep"]),
        (["log"], ["--slot", "7"]),
        (["sweep"], []),
        (["doctor"], []),
        (["restore"], ["--slot", "7", "--to", "{to}"]),
    ],
)
def test_every_field_is_documented(command: list[str], options: list[str], tmp_path: Path) -> None:
    hurt = damaged(filled(), "checkpoints/00000008.json", flipped)
    # A sweep prints nothing but an error for a damaged store.
    store = lay_out(tmp_path / "store", filled() if command == ["sweep"] else hurt)
    options = [option.format(to=tmp_path / "to") for option in options]
    result = tidelog(*command, store, *options, "--json")
    lines = result.stdout.splitlines() if command == ["log"] else [result.stdout]
    found = {key for line in lines for key in keys(json.loads(line))} - USER_FIELDS
    assert found
    assert {key for key in found if f"`{key}`" not in DOCUMENT} == set()


def fields_without_a_series(kind: type) -> Iterator[str]:
    """The fields of a dataclass and of those within that docs/reference/metrics.md has not."""
    hints = get_type_hints(kind)
    for each in fields(kind):  # type: ignore[arg-type]
        inner = [p for p in (hints[each.name], *get_args(hints[each.name])) if is_dataclass(p)]
        if METRIC not in each.metadata:
            yield from [each.name, *fields_without_a_series(inner[0])] if inner else [each.name]


def test_every_field_of_a_status_is_documented() -> None:
    run = DOCUMENT[DOCUMENT.index("## tidelog run") :]
    found = set(fields_without_a_series(JobStatus)) - {"at_s"}
    rooms = {series.room for series in SERIES}
    assert {"last_failure", "aligned_edges", "dropped_state", "subtask"} <= found
    named = set(re.findall(r"`[a-z_.]*?([a-z_]+)`", run)) | rooms
    assert found - named == set()


def test_every_invariant_is_documented() -> None:
    for invariant in Invariant:
        assert f"| `{invariant}` |" in DOCUMENT
