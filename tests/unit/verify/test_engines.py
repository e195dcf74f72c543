"""Units come back the same from other processes, and errors come back whole."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import files, lay_out
from tests.support.damage import damaged, flipped
from tests.support.jobs import virtual_effects
from tests.unit.verify.stores import small, verdicts, verified
from tidelog import AccessDeniedError, open_store
from tidelog.effects import Effects
from tidelog.engines import LocalEngine, WorkerConfig, Workspace
from tidelog.storage.memory import MemoryStore
from tidelog.verify.results import UnitResult
from tidelog.verify.verification import VerifyReport, verify


def verified_by_processes(directory: Path, scratch: Path) -> VerifyReport:
    effects = Effects()
    store = open_store(str(directory), effects=effects)
    place = WorkerConfig(store.url, directory=str(scratch))
    engine = LocalEngine(store, effects, place, jobs=2)
    try:
        return asyncio.run(verify(store, engine))
    finally:
        effects.offload.close()


def test_processes_find_what_one_process_finds_and_leave_nothing_behind(tmp_path: Path) -> None:
    objects = damaged(small(), max(n for n in small() if n.startswith("tables/")), flipped)
    store = lay_out(tmp_path / "store", objects)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    there, here = verified_by_processes(store, scratch), verified(objects)
    assert there.problems == here.problems and here.problems
    assert there.checkpoints == here.checkpoints and there.unchecked == here.unchecked
    assert "unusable" in verdicts(there).values()
    assert files(store) == objects and list(scratch.iterdir()) == []


@dataclass(frozen=True)
class Failing:
    """A unit that meets an error which is no finding."""

    weight: int = 1

    async def run(self, workspace: Workspace) -> UnitResult:
        raise AccessDeniedError(
            "object x", expected="to read it", found="403", action="set credentials"
        )


def test_an_error_in_another_process_is_raised_as_it_was() -> None:
    effects = virtual_effects()
    engine = LocalEngine(MemoryStore(), effects, WorkerConfig("memory://engines"), jobs=2)
    with pytest.raises(AccessDeniedError, match="set credentials"):
        asyncio.run(engine.run([Failing(), Failing()], lambda done, total: None))
