"""`tidelog --log-level --log-format`: records on standard error, for every command."""

import json
from pathlib import Path
from typing import Any

from click.testing import Result

from tests.support.cli import lay_out, tidelog
from tests.support.jobs import contents, word_count
from tests.support.jobs import run as job
from tidelog.storage.memory import MemoryStore
from tidelog.storage.object_names import SEGMENTS


def run(text: Path, *logs: str) -> Result:
    place = text.parent
    paths = ["--input", text, "--store", place / "store", "--output", place / "out"]
    return tidelog(*logs, "run", "wordcount", *paths, "--table", "memory", "--json")


def documents(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_json_records_have_time_level_logger_event_and_fields(text: Path) -> None:
    done = run(text, "--log-level", "info", "--log-format", "json")
    assert done.exit_code == 0, done.output
    records = {record["event"]: record for record in documents(done.stderr)}
    started = records["generation_started"]
    assert (started["level"], started["logger"]) == ("info", "tidelog.checkpoint.slots")
    assert started["time"].endswith("+00:00")
    assert started["fields"] == {"job": "wordcount", "generation": 0}
    assert (
        started["message"] == "job 'wordcount' starts as generation 0, older generations are fenced"
    )
    assert records["checkpoint_completed"]["fields"]["seconds"] >= 0
    # Standard output holds results only.
    assert documents(done.stdout)[-1]["outcome"] == "finished"
    assert not any("logger" in document for document in documents(done.stdout))


def test_other_commands_show_their_records_too(tmp_path: Path) -> None:
    """`overhead` goes on without a segment that is gone, and says so."""
    store = MemoryStore()
    job(store, word_count())
    objects = dict(contents(store))
    del objects[max(name for name in objects if name.startswith(SEGMENTS))]
    place = lay_out(tmp_path / "store", objects)
    measured = tidelog("--log-level", "info", "overhead", place, "--engine", "local")
    assert "INFO tidelog.cost.measured.log: a segment is left out" in measured.stderr
