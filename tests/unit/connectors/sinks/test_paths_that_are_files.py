"""An output or a store below a file is refused with what is in the way."""

import asyncio
from pathlib import Path

import pytest

from tidelog import Effects, Files, Job, JobConfig, JobRunner, TextFiles, open_store
from tidelog.errors import StorageError


@pytest.mark.parametrize(
    ("output", "store"),
    [("file", "store"), ("file/deep", "store"), ("out", "file"), ("out", "file/s")],
)
def test_a_file_in_place_of_a_directory_is_told(tmp_path: Path, output: str, store: str) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n")
    (tmp_path / "file").write_text("in the way")
    job = Job("copy")
    lines = job.source(TextFiles(tmp_path / "in.txt"))
    lines.map(lambda line: {"line": line}).sink(Files(tmp_path / output))
    effects = Effects()
    opened = open_store(str(tmp_path / store), effects)
    runner = JobRunner(job, opened, JobConfig(parallelism=1), effects)
    with pytest.raises(StorageError) as refused:
        asyncio.run(runner.run())
    effects.offload.close()
    told = str(refused.value)
    assert str(tmp_path / "file") in told
    assert "found a file in one of them" in told and "choose another directory" in told
    assert (tmp_path / "file").read_text() == "in the way"
