"""`tidelog run` says what is wrong and what to do next, in a message and an exit code."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import Result

from tests.faults.counting import EXPECTED, Objects, checkpoints, manifest, newest, newest_without
from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import (
    Damage,
    a_descriptor,
    a_table_file,
    damaged,
    flipped,
    missing,
    truncated,
)
from tests.support.depth import more_in_depth
from tests.support.output_files import output_lines

JOBS = "tests.faults.command_jobs"


def refused(result: Result, exit_code: int) -> str:
    """The message of a command that ended as it should."""
    assert result.exit_code == exit_code, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


class Site:
    """The directories of a job on the command line."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = directory / "store"
        self.output = directory / "out"

    def run(self, job: str, *options: str) -> Result:
        return tidelog(
            *("run", f"{JOBS}:{job}", "--store", self.store, "--output", self.output),
            *("--work-dir", self.directory / "work", "--parallelism", "2", "--retain", "100"),
            *("--checkpoint-interval", "40ms", "--materialize-interval", "100ms", *options),
        )

    def finish(self, *options: str) -> None:
        done = self.run("mended", *options)
        assert done.exit_code == 0, done.output
        records = list(map(json.loads, output_lines(self.output)))
        assert Counter({record["word"]: record["count"] for record in records}) == EXPECTED
        assert len(records) == len(EXPECTED)


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    """A store whose job broke off."""
    site = Site(tmp_path_factory.mktemp("broken"))
    message = refused(site.run("broken"), 1)
    assert "check" in message and "cannot count poison" in message
    return files(site.store)


def victim(objects: Objects, part: str) -> str:
    slot = newest(objects)
    if part == "manifest":
        return manifest(slot)
    return a_descriptor(objects, slot)[0] if part == "descriptor" else a_table_file(objects, slot)


@pytest.mark.parametrize(
    ("part", "damage"),
    # test_damage.py tries every damage of every part.
    more_in_depth(
        [("manifest", flipped), ("descriptor", truncated), ("table file", missing)],
        [
            *(("manifest", damage) for damage in (truncated, flipped)),
            *(("descriptor", damage) for damage in (truncated, flipped, missing)),
            *(("table file", damage) for damage in (truncated, flipped, missing)),
        ],
    ),
)
def test_damage_is_named_and_the_option_it_names_brings_the_job_back(
    part: str, damage: Damage, broken_off: Objects, tmp_path: Path
) -> None:
    name = victim(broken_off, part)
    site = Site(tmp_path)
    lay_out(site.store, damaged(broken_off, name, damage))
    message = refused(site.run("mended"), 1)
    assert name in message
    assert "restore an older checkpoint (`tidelog inspect URL --deep` says which)" in message
    assert "`tidelog run ... --restore-checkpoint NUMBER`" in message
    slots = checkpoints(broken_off)
    older = slots[-2] if part == "manifest" else newest_without(broken_off, name)
    site.finish("--restore-checkpoint", str(older))


def test_a_store_that_is_a_file_is_named(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.store.write_text("no directory")
    assert str(site.store) in refused(site.run("mended"), 1)
    site.store.unlink()
    site.finish()


OPTIONS: list[tuple[list[str], str]] = [
    *(
        (["--checkpoint-interval", text], "option checkpoint.interval (option --checkpoint-interva")
        for text in ("5", "0s", "-1s", "1e9s", "")
    ),
    (["--materialize-interval", "soon"], "expected a time with its unit, such as 250 ms or 2 min"),
    (["--checkpoint-timeout", "ten"], "found 'ten'"),
    (["--report-interval", "1"], "no duration"),
    (["--parallelism", "0"], "--parallelism"),
    (["--parallelism", "129"], "set --key-groups (JobConfig.key_groups) to 129 or more"),
    (["--retain", "0"], "--retain"),
    (["--restore-checkpoint", "-1"], "--restore-checkpoint"),
    (["--restore-checkpoint", "latest"], "--restore-checkpoint"),
    (["--tolerable-failures", "-1"], "checkpoint.tolerable_failures"),
    (["--materialize-tolerable-failures", "-1"], "materialize.tolerable_failures"),
    (["--table", "paper"], "--table"),
    (["--mode", "sometimes"], "--mode"),
    (["--metrics-port", "65536"], "--metrics-port"),
    (["--endpoint", "http://127.0.0.1:9"], "only remote stores have options"),
    (["--no-such-option"], "--no-such-option"),
]


@pytest.mark.parametrize(("options", "says"), OPTIONS)
def test_a_wrong_option_is_named_and_nothing_started(
    options: list[str], says: str, tmp_path: Path
) -> None:
    assert says in refused(Site(tmp_path).run("mended", *options), 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("job", "exit_code", "says"),
    [
        ("nosuch", 2, "wordcount, sessions, outages, module:attribute or file.py:attribute"),
        ("nosuch:job", 2, "no module 'nosuch'"),
        (f"{JOBS}:missing", 2, "found only broken, mended, nothing, raising in it"),
        (f"{JOBS}:number", 2, "found 7"),
        (f"{JOBS}:nothing", 2, "its function has no `return`"),
        (f"{JOBS}:raising", 1, "RuntimeError: no luck"),
        (f"{JOBS}:mended", 2, "--output"),
        ("wordcount", 2, "--input"),
    ],
)
def test_what_is_no_job_is_named(job: str, exit_code: int, says: str, tmp_path: Path) -> None:
    assert says in refused(tidelog("run", job, "--store", tmp_path / "store"), exit_code)
    assert list(tmp_path.iterdir()) == []
