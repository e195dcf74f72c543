"""The order in which files of tables arrive: any sequence of calls keeps to a plain model of it."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.property.profiles import looking
from tidelog.state.recovery.arrivals import Arrivals

FILES = st.integers(0, 20)


class ArrivalsMachine(RuleBasedStateMachine):
    """Tables are numbers, and so are files, of which several tables may lack the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals: Arrivals[int, int] = Arrivals()
        self.missing: dict[int, set[int]] = {}
        self.asked: dict[int, int] = {}
        """How often, of each file that waits."""
        self.fetching: set[int] = set()
        self.here: set[int] = set()
        self.tables = 0

    @rule(files=st.sets(FILES, min_size=1))
    def add(self, files: set[int]) -> None:
        files -= self.here | self.fetching
        if files:
            self.tables += 1
            table = self.tables
            self.arrivals.add(table, sorted(files))
            self.missing[table] = files
            for file in files:
                self.asked.setdefault(file, 0)

    @rule(files=st.dictionaries(FILES, st.integers(1, 5)))
    def ask(self, files: dict[int, int]) -> None:
        self.arrivals.asked(files)
        for file in files.keys() & self.asked.keys():
            self.asked[file] += files[file]

    @rule()
    def fetch(self) -> None:
        file = self.arrivals.next()
        if file is None:
            assert not self.asked
        else:
            assert self.asked[file] == max(self.asked.values())
            del self.asked[file]
            self.fetching.add(file)

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        if self.fetching:
            file = data.draw(st.sampled_from(sorted(self.fetching)))
            self.fetching.remove(file)
            self.here.add(file)
            complete = set()
            for table, missing in self.missing.items():
                missing.discard(file)
                if not missing:
                    complete.add(table)
            assert set(self.arrivals.arrived(file)) == complete
            for table in complete:
                del self.missing[table]

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.missing:
            table = data.draw(st.sampled_from(sorted(self.missing)))
            del self.missing[table]
            self.arrivals.leave(table)
            needed = set().union(*self.missing.values())
            self.asked = {file: asked for file, asked in self.asked.items() if file in needed}

    @invariant()
    def complete_when_nothing_is_missing(self) -> None:
        assert self.arrivals.is_complete == (not self.missing)


def test_files_arrive_once_and_tables_are_whole_once() -> None:
    run_state_machine_as_test(ArrivalsMachine, settings=looking(50, 40))


def test_the_file_that_most_reads_have_missed_comes_first_and_then_the_others_in_order() -> None:
    arrivals: Arrivals[str, str] = Arrivals()
    arrivals.add("table", ["a", "b", "c", "d"])
    arrivals.asked({"c": 1, "b": 3, "unknown": 9})
    assert [arrivals.next() for _ in range(5)] == ["b", "c", "a", "d", None]
