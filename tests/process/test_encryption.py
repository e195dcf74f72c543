"""An encrypted store does whatever a plain one does, and shows nothing to who has not its key."""

import json
from collections import Counter
from pathlib import Path

import boto3
import pytest

from tests.process import harness
from tests.process.harness import Run
from tests.process.test_kill import LINES, killed_often, write_words
from tests.support.cli import tidelog
from tests.wire.servers import S3Server
from tidelog.checkpoint.local_copies import copied

SECRET_WORD = b"caf\xc3\xa9"
"""In every line of the input."""


def new_key(directory: Path, name: str = "state.key") -> str:
    path = str(directory / name)
    made = tidelog("key", "new", path)
    assert made.exit_code == 0, made.stderr
    return path


def start(directory: Path, *options: str, job: str = "tests.process.jobs:wordcount") -> Run:
    return Run(directory, job, options)


def stored_files(*directories: Path) -> list[Path]:
    found = [path for each in directories for path in each.rglob("*") if path.is_file()]
    assert found
    return found


def test_a_killed_encrypted_job_counts_right_and_leaves_no_word_readable(tmp_path: Path) -> None:
    key, log, kept = new_key(tmp_path), tmp_path / "log", tmp_path / "kept"
    options = ("--encryption-key", key, "--log-store", str(log), "--local-recovery", str(kept))
    # So that log, tables, and descriptors are all there.
    run = start(tmp_path, *options, "--upload-inline-bytes", "0", "--parallelism", "2")
    expected = write_words(run, LINES)
    killed_often(run, lambda: None)
    assert run.counts() == expected
    files = stored_files(Path(run.store), log, kept)
    folders = {path.parent.name for path in files}
    assert {"checkpoints", "segments", "keys"} <= folders
    assert any(copied(str(path.relative_to(next(kept.iterdir())))) for path in kept.rglob("*.s*"))
    for path in files:
        content = path.read_bytes()
        assert SECRET_WORD not in content
        assert path.parent.name == "keys" or content.startswith(b"TDLGCRPT"), path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str, Counter[str]]:
    """An encrypted store whose job has ended, its key, and the right counts."""
    directory = tmp_path_factory.mktemp("encrypted")
    key = new_key(directory)
    run = start(directory, "--encryption-key", key)
    expected = write_words(run, 300)
    run.release()
    run.finish_here()
    return run, key, expected


COMMANDS = {
    "inspect": ("--deep",),
    "verify": ("--engine", "local"),
    "checkpoints list": (),
    "log": (),
    "gc": (),
    "store check": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_with_the_key_and_says_what_it_needs_without(
    finished: tuple[Run, str, Counter[str]], tmp_path: Path, command: str
) -> None:
    run, key, _ = finished
    before = {path: path.read_bytes() for path in stored_files(Path(run.store))}
    asked = (*command.split(), run.store, *COMMANDS[command])
    assert (done := tidelog(*asked, "--encryption-key", key)).exit_code == 0, done
    if command != "store check":  # which looks at the store alone, not at what is in it
        refused = tidelog(*asked)
        assert refused.exit_code == 2 and "--encryption-key" in refused.stderr, refused
        other = tidelog(*asked, "--encryption-key", new_key(tmp_path))
        assert other.exit_code == 2 and "found another key" in other.stderr, other
    assert {path: path.read_bytes() for path in stored_files(Path(run.store))} == before


def test_a_start_without_the_key_or_with_another_one_fences_nobody(
    finished: tuple[Run, str, Counter[str]], tmp_path: Path
) -> None:
    run, _, _ = finished
    before = {path: path.read_bytes() for path in stored_files(Path(run.store))}
    plain = start(run.directory)
    assert "no encryption key was given" in plain.end(plain.start()).stderr
    other = start(run.directory, "--encryption-key", new_key(tmp_path))
    assert "found another key" in other.end(other.start()).stderr
    assert {path: path.read_bytes() for path in stored_files(Path(run.store))} == before


def test_a_clone_encrypts_a_plain_store_and_gives_an_encrypted_one_another_key(
    tmp_path: Path,
) -> None:
    first, second = new_key(tmp_path, "first.key"), new_key(tmp_path, "second.key")
    run = start(tmp_path)
    expected = write_words(run, 300)
    with harness.killed_at_last(run.start()) as process:
        harness.wait_until(lambda: run.slots() >= 4, process)
    stores = [run.store, str(tmp_path / "once"), str(tmp_path / "twice")]
    for origin, target, old, new in ((0, 1, "none", first), (1, 2, first, second)):
        keys = ("--encryption-key", new, "--origin-key", old, "--keep-output")
        done = tidelog("clone", f"{stores[origin]}@latest", stores[target], *keys)
        assert done.exit_code == 0, done.stderr
    run.release()
    run.store, run.options = stores[2], ("--encryption-key", second)
    run.finish_here()
    assert run.counts() == expected
    assert not any(SECRET_WORD in path.read_bytes() for path in stored_files(Path(run.store)))


def test_the_key_can_be_in_a_key_management_service(
    tmp_path: Path, moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in moto.env.items():
        monkeypatch.setenv(name, text)
    kms = boto3.client("kms")
    key, other = (kms.create_key()["KeyMetadata"]["Arn"] for _ in range(2))
    run = start(tmp_path, "--encryption-key", f"aws-kms:{key}")
    expected = write_words(run, 50)
    run.release()
    run.finish_here()
    assert run.counts() == expected
    verify = ("verify", run.store, "--engine", "local", "--json", "--encryption-key")
    passed = tidelog(*verify, f"aws-kms:{key}")
    assert json.loads(passed.stdout)["passed"], passed
    wrong = tidelog(*verify, f"aws-kms:{other}")
    assert wrong.exit_code == 2 and key in wrong.stdout + wrong.stderr, wrong
    absent = tidelog(*verify, "aws-kms:alias/none")
    assert absent.exit_code == 2 and "NotFoundException" in absent.stdout + absent.stderr, absent
