"""Where the time of a checkpoint went: phases that add up to its duration."""

import asyncio

import msgspec
import pytest

from tests.support.damage import checkpoint_in
from tests.support.jobs import config, contents, every_kind, filled, virtual_effects
from tidelog import Checkpoint, JobRunner, Savepoint
from tidelog.checkpoint.manifest import BarrierFacts
from tidelog.checkpoint.sizes import CheckpointSizes
from tidelog.runtime.checkpoints.completed import CheckpointPhases, completed
from tidelog.storage.memory import MemoryStore

NOTHING = CheckpointSizes(0, 0, 0, 0)


def with_barriers(*facts: BarrierFacts | None) -> Checkpoint:
    """A checkpoint of one operator whose subtasks saw the barrier like this."""
    entry = checkpoint_in(filled(), 9)
    replace = msgspec.structs.replace
    operator = entry.operators[0]
    subtasks = tuple(replace(operator.subtasks[0], barrier=fact) for fact in facts)
    return replace(entry, operators=(replace(operator, subtasks=subtasks),))


def test_the_subtask_that_the_barriers_passed_last_says_what_they_waited_for() -> None:
    entry = with_barriers(
        BarrierFacts(False, 900, 0), BarrierFacts(False, 200, 800), BarrierFacts(False, 0, 100)
    )
    found = completed(entry, None, (1.5, 1.75), 10, NOTHING)
    assert found.phases == CheckpointPhases(0.2, 0.8, 0.5, 0.25)
    assert (found.seconds, found.unaligned) == (1.75, False)


@pytest.mark.parametrize("facts", [(), (None,)])
def test_without_facts_of_barriers_all_but_the_manifest_is_making_it_durable(
    facts: tuple[None, ...],
) -> None:
    found = completed(with_barriers(*facts), None, (0.5, 0.75), 10, NOTHING)
    assert found.phases == CheckpointPhases(0.0, 0.0, 0.5, 0.25)


def test_milliseconds_that_were_rounded_up_make_no_phase_negative() -> None:
    entry = with_barriers(BarrierFacts(True, 3, 4))
    assert completed(entry, None, (0.0025, 0.003), 10, NOTHING).phases.start_delay_s == 0.0025
    assert completed(entry, None, (0.0065, 0.007), 10, NOTHING).phases.durable_s == pytest.approx(
        0.0
    )
    assert completed(entry, None, (0.0065, 0.007), 10, NOTHING).unaligned


def test_a_job_remembers_the_checkpoints_that_it_wrote() -> None:
    store = MemoryStore()
    runner = JobRunner(every_kind(), store, config(retain=100), virtual_effects())
    asyncio.run(runner.run())
    assert runner.incarnation is not None
    recent = list(runner.incarnation.driver.metrics.recent)
    objects = contents(store)
    assert len(recent) > 3
    for each in recent:
        entry = checkpoint_in(objects, each.slot)
        assert (each.checkpoint_id, each.created_ms) == (entry.checkpoint_id, entry.created_ms)
        assert each.generation == entry.author.generation
        assert each.manifest_bytes == len(objects[f"checkpoints/{each.slot:08}.json"])
        assert each.sizes.log_full_bytes >= each.sizes.log_incremental_bytes
    uploads = [new for each in recent for new in each.new_tables]
    named = {
        (operator.id, state.index, state.upto)
        for each in recent
        for operator, state in checkpoint_in(objects, each.slot).subtasks()
        if state.materialization is not None
    }
    assert {(new.operator, new.subtask, new.upto) for new in uploads} == named
    assert len(uploads) == len(named) > 2


def test_a_savepoint_of_rows_says_so() -> None:
    entry = checkpoint_in(filled(), 9)
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    for form in ("native", "canonical"):
        savepoint = Savepoint(**fields, name="before", savepoint_format=form)  # type: ignore[arg-type]
        found = completed(savepoint, None, (0.5, 0.75), 10, NOTHING)
        assert (found.savepoint, found.canonical) == ("before", form == "canonical")
