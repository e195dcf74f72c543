"""A running job is cloned: both go on, and neither disturbs the other."""

import json
from pathlib import Path

import pytest

from tests.process.harness import Run, killed_at_last, wait_until
from tests.process.test_kill import LINES, write_words
from tests.support.cli import tidelog
from tests.support.depth import more_in_depth
from tests.wire.servers import S3Server

JOB = "tests.process.jobs:wordcount"
TRIES = 5


@pytest.mark.parametrize("place", more_in_depth(["one disk"], ["one disk", "S3"]))
def test_a_job_and_its_clone_both_count_every_word_right(
    tmp_path: Path, place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "clone" / "store")
    if place == "S3":
        moto: S3Server = request.getfixturevalue("moto")
        target = moto.url("cloned")
        for name, text in moto.env.items():
            monkeypatch.setenv(name, text)
    run = Run(tmp_path / "origin", JOB, ("--retain", "20"))
    expected = write_words(run, LINES)
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 5, process)
        cloned = clone(f"{run.store}@latest", target)
        assert ("0 objects of 0 B shared" in cloned) == (place == "S3")
        run.release()
        done = run.end(process)
        assert done.returncode == 0, done.stderr
    branch = Run(tmp_path / "clone", JOB, store=target)
    branch.input = run.input
    branch.release()
    result = json.loads(branch.finish_here("--json").stdout.splitlines()[-1])
    assert f"checkpoint {result['restored_checkpoint']} of" in cloned
    for each in (run, branch):
        assert each.counts() == expected
    assert tidelog("inspect", run.store, "--deep").exit_code == 0


def clone(origin: str, target: str) -> str:
    """Clone; tried again when the checkpoint went meanwhile, as the message says."""
    for _ in range(TRIES):
        done = tidelog("clone", origin, target)
        if done.exit_code == 0:
            return done.stdout
        assert "clone a newer checkpoint" in done.stderr or "no such" in done.stderr, done.stderr
    raise AssertionError("every checkpoint went before it was cloned")
