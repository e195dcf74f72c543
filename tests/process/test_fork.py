"""A running job is forked: both go on, and neither disturbs the other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import harness
from tests.process.harness import ROOT, Run, killed_at_last, wait_until
from tests.process.test_kill import write_words
from tests.wire.servers import S3Server

JOB = "tests.process.jobs:wordcount"
TRIES = 5


@pytest.mark.parametrize("remote", [False, True], ids=["one-disk", "to-s3"])
def test_a_job_and_its_fork_both_count_every_word_right(
    tmp_path: Path, s3: S3Server, remote: bool
) -> None:
    run = Run(tmp_path / "origin", JOB, ("--retain", "20"), env=s3.env)
    expected = write_words(run, 1_500)
    target = s3.url("forked") if remote else str(tmp_path / "fork" / "store")
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 5, process)
        forked = fork(f"{run.store}@latest", target, s3)
        assert ("0 objects of 0 B shared" in forked) == remote
        run.release()
        done = run.end(process)
        assert done.returncode == 0, done.stderr
    branch = Run(tmp_path / "fork", JOB, store=target, env=s3.env)
    branch.input = run.input
    branch.release()
    result = json.loads(branch.finish("--json").stdout.splitlines()[-1])
    assert f"slot {result['restored_slot']} of" in forked
    for each in (run, branch):
        assert {record["word"]: record["count"] for record in each.records()} == expected
    assert harness.tidelog("inspect", run.store, "--deep").returncode == 0


def fork(origin: str, target: str, s3: S3Server) -> str:
    """Fork; tried again when the slot went meanwhile, as the message says."""
    for _ in range(TRIES):
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", "fork", origin, target],
            cwd=ROOT,
            env={**os.environ, **s3.env},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
        assert "fork a newer slot" in done.stderr or "no such" in done.stderr, done.stderr
    raise AssertionError("every slot went before it was forked")
