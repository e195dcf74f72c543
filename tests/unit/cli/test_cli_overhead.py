"""`tidelog overhead` on stores in directories: tables, JSON, options and errors."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import lay_out, tidelog
from tests.support.jobs import filled
from tests.unit.cost.measured.jobs import windowed

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "cli-json.md").read_text()
SECTION = DOCUMENT[DOCUMENT.index("## tidelog overhead") :].partition("\n## ")[0]
ESTIMATE = DOCUMENT[DOCUMENT.index("## tidelog estimate") :].partition("\n## ")[0]


def document(location: Path, *options: str | Path) -> dict[str, Any]:
    result = tidelog("overhead", location, "--engine", "local", "--json", *options)
    assert result.exit_code in (0, 1), result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def keys(found: object) -> Iterator[str]:
    if isinstance(found, Mapping):
        yield from found
        found = list(found.values())
    if isinstance(found, list):
        for item in found:
            yield from keys(item)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "store", windowed(5))


def test_every_field_is_documented(store: Path, tmp_path: Path) -> None:
    found = document(store)
    assert found["operators"][-1]["windows"]["ratio"] is not None
    bill = {key for each in found["bills"] for key in each}
    assert {key for key in bill if f"`{key}`" not in ESTIMATE} == set()
    assert {key for key in keys(found) if f"`{key}`" not in SECTION} - bill == set()
    little = document(lay_out(tmp_path / "little", filled()))
    assert set(keys(little)) <= set(keys(found))


def test_a_store_that_cannot_tell_exits_with_1_and_says_why(tmp_path: Path) -> None:
    result = tidelog("overhead", lay_out(tmp_path, filled()), "--engine", "local")
    assert result.exit_code == 1
    assert "expected two materializations or more" in result.stdout
    assert "Next: let them span 3 materialization intervals: `tidelog run ... --retain N`" in (
        result.stdout
    )
    assert result.stderr == ""
