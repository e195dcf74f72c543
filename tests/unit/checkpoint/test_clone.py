"""A clone goes on from its checkpoint, and neither store ever needs the other."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.counting import (
    EXPECTED,
    POISON,
    WORDS,
    checkpoints,
    counting,
    finish,
    settings,
    start,
    usual,
)
from tests.support.cli import files, lay_out, restored_rows, tidelog
from tests.support.damage import Damage, damaged, flipped, missing, needs, truncated
from tests.support.faults import Failure, SteerableStore
from tests.support.jobs import contents, store_of
from tests.support.pipelines import (
    Outside,
    Portions,
    acted_on,
    config,
    effects,
    run,
    word_count,
    words,
)
from tidelog import Job, Savepoint, SinkContext, SinkWriter
from tidelog.catalog.audit import audit
from tidelog.catalog.clone import Clone, CloneResult
from tidelog.catalog.locate import CheckpointName
from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.errors import (
    ConfigError,
    CorruptObjectError,
    RestoreError,
    StoreUnreachableError,
    UserFunctionError,
)
from tidelog.ids import Slot
from tidelog.storage import object_names
from tidelog.storage.local import LocalStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.open import open_store
from tidelog.storage.port import ObjectStore

ALL = 300
NUMBERS = Portions({"numbers": list(range(ALL))}, portion=3, pause=0.1)
TEXT = words(2, 60)
SLOTS = checkpoints(usual())


def clone(
    origin: ObjectStore,
    target: ObjectStore,
    place: CheckpointName = None,
    *,
    keep_transactions: bool = False,
) -> CloneResult:
    made = Clone(origin, target, effects(), keep_transactions=keep_transactions)
    return asyncio.run(made.run(place))


def problems(store: ObjectStore) -> list[object]:
    return list(asyncio.run(audit(store, deep=True)).problems)


def objects_of(place: int) -> set[str]:
    return needs(usual(), place)


def saved_in(store: ObjectStore, form: SavepointFormat = "native", at: float = 9.2) -> int:
    """The slot of the savepoint `before-it` of a word count that then goes on to its end."""
    job, settings = word_count(TEXT, Outside()), config(retain=1)
    act = lambda runner: runner.savepoint("before-it", form)  # noqa: E731
    return int(acted_on(job, store, act, at=at, settings=settings)[1].slot)


def test_no_clone_is_made_where_another_store_has_its_log(tmp_path: Path) -> None:
    clone(
        store_of(usual()),
        open_store(str(tmp_path / "other"), effects=effects(), log_url=str(tmp_path / "log")),
    )
    before = files(tmp_path / "log")
    with pytest.raises(ConfigError, match=r"not the log of another store; .*the log of .*other"):
        clone(store_of(usual()), open_store(str(tmp_path / "log"), effects=effects()))
    assert files(tmp_path / "log") == before


@pytest.mark.parametrize("slot", SLOTS)
def test_a_clone_of_any_retained_slot_goes_on_from_it(slot: int) -> None:
    target = MemoryStore("memory://clone")
    cloned = clone(store_of(usual()), target, Slot(slot))
    assert cloned.checkpoint.slot == slot
    assert {n for n in contents(target) if object_names.slot_of(n) is None} == objects_of(slot)
    assert problems(target) == []
    assert finish(target).restored_checkpoint == slot


@pytest.mark.parametrize("slot", SLOTS)
def test_what_a_slot_restores_is_what_had_been_counted_then(slot: int, tmp_path: Path) -> None:
    """Positions and counts of one slot, read as rows: the counts of just what lies before them."""
    store = lay_out(tmp_path / "store", usual())
    result = tidelog(
        "restore", store, "--checkpoint", str(slot), "--to", tmp_path / "to", "--format", "jsonl"
    )
    assert result.exit_code == 0, result.output
    counts, positions = rows_of(tmp_path / "to")
    assert slot == SLOTS[0] or sum(positions.values()) > 0
    splits = {"left": [*WORDS, POISON], "right": WORDS}
    read = Counter(word for split, end in positions.items() for word in splits[split][:end])
    assert counts == read


def rows_of(directory: Path) -> tuple[Counter[str], dict[str, int]]:
    """(counts by word, positions by split)."""
    rows = restored_rows(directory)
    counts = {row["key"]: row["value"] for row in rows if row["state"] == "aggregate"}
    splits = {row["key"]: row["value"]["position"] for row in rows if row["state"] == "$splits"}
    return Counter(counts), splits


def test_the_origin_is_only_read() -> None:
    origin = SteerableStore(store_of(usual()))
    clone(origin, MemoryStore("memory://clone"), Slot(SLOTS[0]))
    assert {operation for operation, _ in origin.calls} <= {"get", "list"}


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_savepoint_is_found_by_its_name_below_a_damaged_slot(damage: Damage) -> None:
    store = MemoryStore("memory://saved")
    slot = saved_in(store, at=3.2)
    newest = max(name for name in contents(store) if name.startswith("checkpoints/"))
    hurt = store_of(damaged(contents(store), newest, damage))
    cloned = clone(hurt, MemoryStore("memory://clone"), "before-it")
    assert cloned.checkpoint.slot == slot
    with pytest.raises(CorruptObjectError, match=newest):
        clone(hurt, MemoryStore("memory://other"), "gone")


class TestOnOneDisk:
    """The stores share files."""

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Path:
        return lay_out(tmp_path / "origin", usual())

    def test_shared_objects_take_no_room(self, origin: Path, tmp_path: Path) -> None:
        cloned = clone(local(origin), local(tmp_path / "clone"))
        assert (cloned.shared, cloned.copied) == (len(objects_of(SLOTS[-1])), 0)
        for name in objects_of(SLOTS[-1]):
            assert (tmp_path / "clone" / name).samefile(origin / name)

    def test_a_clone_has_its_log_in_another_store(self, origin: Path, tmp_path: Path) -> None:
        target = open_store(
            str(tmp_path / "clone"), effects=effects(), log_url=str(tmp_path / "log")
        )
        cloned = clone(local(origin), target)
        segments = {n for n in objects_of(SLOTS[-1]) if n.startswith(object_names.SEGMENTS)}
        assert segments and all((tmp_path / "log" / name).is_file() for name in segments)
        assert cloned.copied == len(segments)
        assert problems(target) == []

    def test_the_clone_lives_on_when_its_origin_is_gone(self, origin: Path, tmp_path: Path) -> None:
        clone(local(origin), local(tmp_path / "clone"))
        for path in sorted(origin.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        finish(local(tmp_path / "clone"))

    def test_the_origin_stays_what_it_was_whatever_the_clone_deletes(
        self, origin: Path, tmp_path: Path
    ) -> None:
        clone(local(origin), local(tmp_path / "clone"))
        finish(local(tmp_path / "clone"), settings(retain=1))
        left = set(files(tmp_path / "clone"))
        assert objects_of(SLOTS[-1]) - left, "the clone was meant to delete something shared"
        assert files(origin) == dict(usual())
        finish(local(origin))

    def test_without_links_it_copies(
        self, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The slots need no links: their creation is looked at elsewhere.
        link = Path.hardlink_to

        def refuse(path: Path, target: Path) -> None:
            if path.suffix in (".sst", ".seg") or "materializations" in path.parts:
                raise OSError(18, "Invalid cross-device link")
            link(path, target)

        monkeypatch.setattr(Path, "hardlink_to", refuse)
        cloned = clone(local(origin), local(tmp_path / "clone"))
        assert (cloned.shared, cloned.copied) == (0, len(objects_of(SLOTS[-1])))
        finish(local(tmp_path / "clone"))


def local(directory: Path) -> LocalStore:
    return LocalStore(directory, effects(), durable=False)


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_clone_cut_short_has_no_checkpoint_and_the_next_try_finishes_it(nth: int) -> None:
    inner = MemoryStore("memory://clone")
    target = SteerableStore(inner)
    operation = "put" if nth <= 6 else "create"
    target.fail(Failure(operation, nth=nth if nth <= 6 else nth - 6))
    try:
        clone(store_of(usual()), target)
    except StoreUnreachableError:
        assert checkpoints(contents(inner)) == []
    else:
        assert nth > 8, "there are more writes than that"
    clone(store_of(usual()), inner)
    assert problems(inner) == []
    finish(inner)


def test_a_store_in_use_is_no_target() -> None:
    target = store_of(usual())
    before = contents(target)
    with pytest.raises(ConfigError, match="expected an empty store"):
        clone(store_of(usual()), target, Slot(SLOTS[0]))
    assert contents(target) == before


@pytest.mark.parametrize("harm", [missing, flipped, truncated])
def test_a_table_file_that_is_not_intact_stops_the_clone(harm: Damage) -> None:
    name = next(n for n in sorted(objects_of(SLOTS[-1])) if n.startswith(object_names.TABLES))
    target = MemoryStore("memory://clone")
    with pytest.raises((RestoreError, CorruptObjectError), match=name):
        clone(store_of(damaged(usual(), name, harm)), target)
    assert checkpoints(contents(target)) == []


class TestOutput:
    """What the checkpoint had pre-committed."""

    @pytest.fixture
    def outside(self) -> Outside:
        return Outside()

    @pytest.fixture
    def origin(self, outside: Outside) -> MemoryStore:
        """Broken off between a checkpoint and its commit."""
        store = MemoryStore("memory://origin")

        class BreaksOff(Outside):
            """As a process that is killed in its third commit."""

            def open(self, context: SinkContext) -> SinkWriter:
                writer = outside.open(context)
                commit = writer.commit

                def commit_or_break(transaction: bytes) -> None:
                    if len(outside.commits) == 2:
                        raise UserFunctionError("sink", found="the break", action="start again")
                    commit(transaction)

                writer.commit = commit_or_break  # type: ignore[method-assign]
                return writer

        with pytest.raises(UserFunctionError):
            self.start(store, BreaksOff())
        assert outside.records and outside.prepared
        return store

    def start(self, store: ObjectStore, sink: Outside) -> None:
        job = Job("copy")
        job.source(NUMBERS).map(lambda n: n, name="copy").sink(sink)
        start(job, store, settings(parallelism=1), seed=5)

    def test_it_is_the_origins_and_the_clones_output_begins_behind_it(
        self, origin: MemoryStore, outside: Outside
    ) -> None:
        target, elsewhere = MemoryStore("memory://clone"), Outside()
        clone(origin, target)
        self.start(target, elsewhere)
        self.start(origin, outside)
        assert sorted(outside.records) == list(range(ALL))
        behind = sorted(elsewhere.records)
        assert behind == list(range(ALL - len(behind), ALL))
        assert 0 < len(behind) < ALL

    def test_a_clone_that_goes_on_with_the_output_commits_it(
        self, origin: MemoryStore, outside: Outside
    ) -> None:
        target = MemoryStore("memory://clone")
        clone(origin, target, keep_transactions=True)
        self.start(target, outside)
        assert sorted(outside.records) == list(range(ALL))
        assert outside.prepared == {}


@pytest.mark.parametrize("form", ["native", "canonical"])
def test_a_savepoint_is_cloned_by_its_name(form: SavepointFormat) -> None:
    """A native one is a checkpoint like any other in the clone; a canonical one says what it is."""
    origin, target, sink = MemoryStore("memory://origin"), MemoryStore("memory://clone"), Outside()
    saved_in(origin, form)
    assert problems(origin) == []
    cloned = clone(origin, target, "before-it")
    assert isinstance(cloned.checkpoint, Savepoint) == (form == "canonical")
    assert problems(target) == []
    result = run(word_count(TEXT, sink), target, config(retain=1), seed=2)
    assert result.restored_checkpoint == cloned.checkpoint.slot
    assert sorted(sink.records) == sorted(Counter(TEXT.records).items())
    kept = checkpoints(contents(target))
    assert (cloned.checkpoint.slot in kept) == (form == "canonical")


def test_commands_that_read_a_checkpoint_take_the_name_of_a_savepoint(tmp_path: Path) -> None:
    origin = MemoryStore("memory://origin")
    slot = saved_in(origin)
    store = lay_out(tmp_path / "store", contents(origin))
    for named in ("before-it", str(slot)):
        to = tmp_path / named
        commands = [
            ("checkpoints", "show", store, named),
            ("restore", store, "--checkpoint", named, "--to", to, "--format", "jsonl"),
            ("verify", store, "--checkpoint", named, "--engine", "local"),
            ("log", store, "--checkpoint", named, "--limit", "1"),
        ]
        for command in commands:
            shown = tidelog(*command)
            assert shown.exit_code == 0, shown.output
    assert rows_of(tmp_path / "before-it") == rows_of(tmp_path / str(slot))
    assert sum(rows_of(tmp_path / str(slot))[0].values()) < len(TEXT.records)


def test_two_clones_and_their_origin_go_three_ways(tmp_path: Path) -> None:
    origin = lay_out(tmp_path / "origin", usual())
    for name, slot in [("a", SLOTS[0]), ("b", SLOTS[-1])]:
        assert tidelog("clone", f"{origin}@{slot}", tmp_path / name).exit_code == 0
    for directory in (tmp_path / "b", origin, tmp_path / "a"):
        sink = Outside()
        start(counting(sink), local(directory), settings(retain=1), seed=4)
        assert Counter(dict(sink.records)) == EXPECTED
