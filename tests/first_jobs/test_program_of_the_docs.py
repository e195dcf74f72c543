"""The program of docs/guides/sources.md runs a job as it is printed, and again."""

from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of
from tests.support.documentation import BLOCKS
from tidelog import Files, Job, JsonLines


def test_it_reads_rows_by_both_ways_to_name_a_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add_rows(tmp_path / "in" / "1.jsonl", [{"word": f"w{n}", "count": n} for n in range(9)])

    def run() -> Any:
        job = Job("copy")
        rows = job.source(JsonLines("in")).map(lambda row: (row.word, row["count"]))
        rows.sink(Files("out", fields=("word", "count")))
        names: dict[str, Any] = {"job": job}
        exec(BLOCKS["sources 2"], names)
        return names["result"]

    assert not run().already_complete
    found = [(row["word"], row["count"]) for row in rows_of(tmp_path / "out")]
    assert sorted(found) == [(f"w{n}", n) for n in range(9)]
    assert run().already_complete
    assert len(rows_of(tmp_path / "out")) == 9
