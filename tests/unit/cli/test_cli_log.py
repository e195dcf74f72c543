"""`tidelog log` prints each change once, in order, and goes on with the job."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.damage import (
    Damage,
    a_segment,
    checkpoint_in,
    damaged,
    flipped,
    missing,
    truncated,
)
from tests.support.jobs import config, contents, filled, run, run_until_break, store_of, word_count
from tidelog import MaterializeConfig
from tidelog.cli.output import Output
from tidelog.cli.store.log import Change, MissingRange, Tail
from tidelog.cli.store.options import StoreCommand
from tidelog.ids import Slot
from tidelog.state.key_groups import encode_key, key_group
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore


def lines(store: Path, *options: str) -> list[dict[str, Any]]:
    result = tidelog("log", store, "--json", *options)
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("slot", [7, 8, 9])
def test_changes_are_exactly_those_after_the_materialization(slot: int, store: Path) -> None:
    found = lines(store, "--checkpoint", str(slot))
    for operator, state in checkpoint_in(filled(), slot).subtasks():
        where = operator.id, state.index
        of_subtask = [n["seqno"] for n in found if (n["operator"], n["subtask"]) == where]
        assert of_subtask == list(range(state.upto, state.seqno))


def test_a_change_is_decoded_and_options_narrow_the_output(store: Path) -> None:
    found = lines(store, "--operator", "process")
    change = next(line for line in found if line["state"] == "count")
    assert change["op"] == "put" and change["kind"] == "value" and change["checkpoint"] == 9
    assert set(change["value"]) == {"count"} and change["encoding"] == "decoded"
    found = lines(store, "--operator", "process", "--subtask", "1", "--limit", "3")
    assert [(line["operator"], line["subtask"]) for line in found] == [("process", 1)] * 3
    assert len(tidelog("log", store, "--limit", "4").stdout.splitlines()) == 4
    shown = tidelog("log", store, "--operator", "source", "--subtask", "0").stdout
    assert '  put  $splits  "right"  {"done":true,"position":400}\n' in shown


def test_an_operator_that_is_not_there_is_named_as_it_was_asked_for(store: Path) -> None:
    refused = tidelog("log", store, "--operator", "counts", "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stderr)["error"]["what"] == "operator counts"


class Growing(VirtualClock):
    """Each time one sleeps, a job writes the next objects into a store."""

    def __init__(self, store: MemoryStore, *growths: Mapping[str, bytes]) -> None:
        super().__init__()
        self._store = store
        self._growths = list(growths)

    async def sleep(self, seconds: float) -> None:
        for name, data in self._growths.pop(0).items() if self._growths else ():
            await self._store.put(name, data)


def printed(store: MemoryStore, *growths: Mapping[str, bytes]) -> list[Change | MissingRange]:
    """What --follow prints of a store that grows while it sleeps."""
    effects = in_virtual_time(1, Growing(store, *growths))
    tail = Tail(StoreCommand("", None, effects, store, Output(as_json=False)))

    async def read() -> list[Change | MissingRange]:
        return [line async for line in tail.lines(None, follow=True)]

    return asyncio.run(read())


@pytest.mark.parametrize("then", [[8, 9], [9]])
def test_follow_prints_every_change_once_and_names_gaps(then: list[int]) -> None:
    first = {n: data for n, data in filled().items() if object_names.slot_of(n) not in (8, 9)}
    later = [object_names.checkpoint(Slot(slot)) for slot in then]
    found = printed(store_of(first), *({name: filled()[name]} for name in later))
    # A slot that was never seen may have cut the log behind a materialization.
    assert then == [8, 9] or any(isinstance(line, MissingRange) for line in found)
    for operator, state in checkpoint_in(filled(), 9).subtasks():
        where = operator.id, state.index
        reached = None
        for line in found:
            if (line.operator, line.subtask) != where:
                continue
            first, end = (
                (line.skipped_from, line.skipped_to)
                if isinstance(line, MissingRange)
                else (line.seqno, line.seqno + 1)
            )
            assert reached in (None, first) and first < end
            reached = end
        assert reached == state.seqno


def test_follow_prints_every_change_of_subtasks_that_are_others_after_a_rescale() -> None:
    """Key groups 4 to 7 go from a subtask with few changes to the number of one with many."""
    groups = [key_group(encode_key(str(number)), 16) for number in range(400)]
    hot, cold = (
        [str(number) for number, group in enumerate(groups) if group in chosen]
        for chosen in (range(8, 16), range(4, 8))
    )
    store, log_alone = MemoryStore(), MaterializeConfig(enabled=False)
    first = word_count(hot + cold, breaks_at=len(hot))
    run_until_break(store, first, config(parallelism=2, materialize=log_alone))

    after = store_of(contents(store))
    run(after, word_count(hot + cold), config(parallelism=4, materialize=log_alone))
    found = printed(store, contents(after))
    assert not [line for line in found if isinstance(line, MissingRange)]
    rows = [line.row for line in found if isinstance(line, Change) and line.operator == "count"]
    assert {row.key for row in rows if row.state == "aggregate"} == {*hot, *cold}


@pytest.mark.parametrize("damage", [truncated, flipped, missing])
def test_a_damaged_segment_is_named(damage: Damage, tmp_path: Path) -> None:
    name = a_segment(filled(), 9)
    objects = damaged(filled(), name, damage)
    store = lay_out(tmp_path, objects)
    result = tidelog("log", store)
    assert result.exit_code == 1
    assert name in result.stderr and "Next: restore an older checkpoint" in result.stderr
    assert files(store) == objects
