"""Every program that the docs print runs as it is printed, or says elsewhere where it does."""

import asyncio
import logging
import sqlite3
import sys
from ast import literal_eval
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import TopicPartition

import tidelog
from tests.first_jobs.programs import add_rows, rows_of, run
from tests.support.documentation import BLOCKS, ROOT
from tidelog import FileSink, ForeachSink, Job, JsonLinesSource, PushSource, RateSource, open_store

RUN_ELSEWHERE = {
    **{f"cookbook {number}": "tests/first_jobs/test_cookbook.py" for number in range(8)},
    "cookbook 3": "tests/kafka/test_guide.py",
    "README 0": "tests/first_jobs/test_killed.py",
    "first-job 0": "tests/first_jobs/test_first_page.py",
    "own-loop 5": "tests/process/own_loop_service.py",
    "object-stores 0": "tests/wire/test_conforms.py",
    "kafka 0": "tests/kafka/test_guide.py",
    "kafka 1": "tests/kafka/test_guide.py",
    "kafka 2": "tests/kafka/test_guide.py",
    "sources 1": "tests/first_jobs/test_killed.py",
    "monitoring 0": "tests/unit/runtime/test_status_prometheus.py",
    "spark-plugin 0": "tests/spark/test_metrics.py",
    "operations 0": "tests/process/test_running_for_a_year.py",
    "verify 0": "tests/spark/test_documented_blocks.py",
    "sinks 1": "tests/unit/connectors/sinks/test_postgres_sink.py",
    "sinks 3": "tests/first_jobs/test_killed.py",
    "sinks 4": "tests/first_jobs/test_killed.py",
    "data-source 0": "tests/spark/test_documented_blocks.py",
    "index 0": "tests/first_jobs/test_first_page.py",
    "processor 2": "tests/spark/test_documented_blocks.py",
    "processor 4": "tests/spark/test_documented_blocks.py",
    "spark 0": "tests/spark/test_notebook.py",
    "spark-cluster 0": "tests/spark/job/test_guide.py",
    "spark-cluster 1": "tests/spark/test_documented_blocks.py",
    "spark-cluster 2": "tests/spark/test_documented_blocks.py",
    "spark-handover 0": "tests/spark/test_documented_blocks.py",
    "spark-handover 1": "tests/spark/job/test_topics.py",
    "spark-handover 2": "tests/spark/test_documented_blocks.py",
}
MINUTE_MS = 60_000


class Parcel(NamedTuple):
    """A type of the user's own."""

    weight: int


def names_of(block: str, **given: Any) -> dict[str, Any]:
    """What a printed program defines."""
    exec(BLOCKS[block], given)
    return given


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs read and write below the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_printed_program_is_run_somewhere() -> None:
    text = Path(__file__).read_text()
    here = {block for block in BLOCKS if f'names_of("{block}"' in text} | set(PRINTED)
    assert set(BLOCKS) == here | set(RUN_ELSEWHERE)
    assert not here & set(RUN_ELSEWHERE)
    assert [path for path in RUN_ELSEWHERE.values() if not (ROOT / path).is_file()] == []


def test_the_streak_processor_of_the_readme_counts_days_in_a_row(here: Path) -> None:
    days = ["2026-03-01", "2026-03-02", "2026-03-04"]
    add_rows(here / "visits" / "1.jsonl", [{"user": "ada", "day": day} for day in days])
    job = Job("streaks")
    visits = job.source(JsonLinesSource("visits")).key_by(lambda row: row.user)
    visits.transform_with_state(names_of("README 1")["Streak"]).sink(FileSink("out"))
    run(job, here / "store")
    assert [row["streak"] for row in rows_of(here / "out")] == [1, 2, 1]


def test_the_balance_of_the_guide_begins_at_nothing_embedded(here: Path) -> None:
    add_rows(
        here / "moves" / "1.jsonl", [{"account": "a", "cents": 5}, {"account": "a", "cents": 7}]
    )
    job = Job("balances")
    moves = job.source(JsonLinesSource("moves")).key_by(lambda row: row.account)
    moves.transform_with_state(names_of("processor 5")["Balance"]).sink(FileSink("out"))
    run(job, here / "store")
    assert [row["cents"] for row in rows_of(here / "out")] == [5, 12]


def test_a_loop_of_the_users_own_counts_each_order_once_over_restarts(here: Path) -> None:
    count_orders = names_of("README 2")["count_orders"]
    users = ["ada", "bob", "ada", "cyd", "ada"]

    def orders(after: int | None, until: int) -> Iterator[tuple[int, str]]:
        yield from list(enumerate(users))[0 if after is None else after + 1 : until]

    for until in (3, 3, 5):
        count_orders("store", partial(orders, until=until))
    with tidelog.open("store", checkpoint="latest") as view:
        assert [view.key(user).orders.get() for user in ("ada", "bob", "cyd")] == [3, 1, 1]


class Payment(NamedTuple):
    """What the worker of the guide expects of a message."""

    id: int
    account: str
    amount: int


class PaymentQueue:
    """Delivers again what was not acknowledged, and breaks off at some of the calls."""

    def __init__(self, messages: Sequence[Payment], broken: set[int]) -> None:
        self._waiting = list(messages)
        self._broken = broken
        self._calls = 0

    def receive(self) -> list[Payment]:
        self._call()
        return self._waiting[:3]

    def acknowledge(self, messages: Iterable[Payment]) -> None:
        self._call()
        self._waiting = [each for each in self._waiting if each not in messages]

    def _call(self) -> None:
        self._calls += 1
        if self._calls in self._broken:
            raise ConnectionError


def test_a_queue_worker_counts_each_message_once_though_it_breaks_off(here: Path) -> None:
    work = names_of("own-loop 6")["work"]
    amounts = [Payment(n, f"a{n % 3}", n) for n in range(20)]
    queue = PaymentQueue([*amounts, *amounts[::4]], broken={2, 3, 6, 9})
    for _ in range(4):
        with pytest.raises(ConnectionError):
            work(queue, "store")
    work(queue, "store")
    with tidelog.open("store", checkpoint="latest") as view:
        found = {f"a{n}": view.key(("account", f"a{n}")).balance.get() for n in range(3)}
    assert found == {f"a{n}": sum(m.amount for m in amounts if m.id % 3 == n) for n in range(3)}


def test_orders_meet_the_rates_that_are_known(here: Path) -> None:
    add_rows(here / "rates" / "1.jsonl", [{"currency": "EUR", "value": 2}])
    (here / "orders").mkdir()
    job = names_of("broadcast 0")["job"]
    order = {"user": "ada", "currency": "EUR", "amount": 5}

    def has_output() -> bool:
        # An order may come before its rate, and goes on without output then.
        add_rows(here / "orders" / "1.jsonl", [order])
        return bool(rows_of(here / "out"))

    run(job, here / "store", has_output)
    found = rows_of(here / "out")
    assert found and all(row == ["ada", 10] for row in found)


TRAFFIC = [(0, 5), (20, 7), (70, 1), (301, 9), (310, 9), (900, 4)]
"""Seconds and bytes of requests."""


PRINTED: dict[str, list[Any]] = {
    "event-time 0": [("a", 0, 5), ("a", 600_000, 1)],
    "windows 0": [("a", 35 / 6)],
    "windows 1": [("a", 0, 31), ("a", 600_000, 4)],
    "windows 2": [
        *[("a", -300_000, 7), ("a", 0, 9), ("a", 300_000, 9)],
        *[("a", 600_000, 4), ("a", 900_000, 4)],
    ],
    "windows 3": [
        *[("a", 0, 50_000, 2), ("a", 70_000, 100_000, 1)],
        *[("a", 301_000, 340_000, 2), ("a", 900_000, 930_000, 1)],
    ],
    "windows 6": [("a", [5, 7]), ("a", [1]), ("a", [9, 9]), ("a", [4])],
    "windows 7": [("a", 0, [9, 9]), ("a", 600_000, [4])],
    "windows 8": [0, 20_000, 70_000, 301_000, 900_000],
}
"""What programs print of this traffic of one server."""


@pytest.mark.parametrize("block", PRINTED)
def test_windows_and_reductions_print_what_comes_out(
    block: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"server": "a", "time_ms": at * 1000, "bytes": n} for at, n in TRAFFIC]
    add_rows(here / "logs" / "1.jsonl", rows)
    run(names_of(block)["job"], here / "store")
    assert list(map(literal_eval, capsys.readouterr().out.splitlines())) == PRINTED[block]


def test_windows_of_a_hundred_records_are_printed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"server": "a", "bytes": n} for n in range(250)]
    add_rows(here / "logs" / "1.jsonl", rows)
    run(names_of("windows 4")["job"], here / "store")
    assert capsys.readouterr().out.splitlines() == ["('a', 49.5)", "('a', 149.5)"]


def test_windows_take_late_records_for_an_hour(here: Path) -> None:
    late = [(60, 50), (80, 2), (10, 8)]
    rows = [
        {"server": "a", "time_ms": minute * MINUTE_MS, "bytes": n}
        for minute, n in [(0, 1), (30, 3), *[(30, 0)] * 20_000, *late, *[(80, 0)] * 20_000, (1, 6)]
    ]
    add_rows(here / "logs" / "1.jsonl", rows)
    run(names_of("windows 5")["job"], here / "store")
    sums = [tuple(row) for row in rows_of(here / "sums")]
    assert [value for _, start, value in sums if start == 0] == [1]
    assert [value for _, start, value in sums if start == 10 * MINUTE_MS] == [8]
    assert rows_of(here / "late") == [{"server": "a", "time_ms": MINUTE_MS, "bytes": 6}]


def test_late_records_go_to_their_side_output(here: Path) -> None:
    minutes = [30, *[1] * 20_000]
    rows = [{"server": "a", "time_ms": minute * MINUTE_MS} for minute in minutes]
    add_rows(here / "logs" / "1.jsonl", rows)
    run(names_of("event-time 1")["job"], here / "store")
    counted = sum(count for _, _, count in rows_of(here / "counts"))
    late = rows_of(here / "late")
    assert late and counted + len(late) == 20_001


def test_a_silent_device_is_found_by_the_processor(here: Path) -> None:
    times = [0, 10_000, 100_000, 120_000]
    readings = [{"device": "a", "time_ms": time, "value": 1.0} for time in times]
    add_rows(here / "readings" / "1.jsonl", readings)
    names = names_of("processor 3")
    found: list[Any] = []
    names["outages"].sink(ForeachSink(found.append))
    run(names["job"], here / "store")
    assert [(row.device, row.silent_ms) for row in found] == [("a", 90_000)]


def test_an_unpaid_cart_gives_a_reminder_after_an_hour(here: Path) -> None:
    hour = 3_600_000
    events = [
        {"user": "ada", "ms": 0, "kind": "put", "pieces": 2},
        {"user": "bob", "ms": 10, "kind": "put", "pieces": 1},
        {"user": "ada", "ms": 20, "kind": "put", "pieces": 3},
        {"user": "bob", "ms": 30, "kind": "paid"},
        {"user": "ada", "ms": 2 * hour, "kind": "put", "pieces": 7},
        {"user": "eve", "ms": 9 * hour, "kind": "paid"},
    ]
    add_rows(here / "events" / "1.jsonl", events)
    run(names_of("processor 0")["job"], here / "store")
    found = rows_of(here / "reminders")
    assert found == [{"user": "ada", "pieces": 5}, {"user": "ada", "pieces": 7}]


def test_a_processor_keeps_a_map_a_list_and_a_reduction(here: Path) -> None:
    visits = [
        {"user": "ada", "device": f"d{n % 3}", "page": f"/{n}", "seconds": n * 7 % 50}
        for n in range(30)
    ]
    add_rows(here / "visits" / "1.jsonl", visits)
    job = Job("devices")
    by_user = job.source(JsonLinesSource("visits")).key_by(lambda row: row.user)
    by_user.transform_with_state(names_of("processor 1")["Devices"]).sink(FileSink("out"))
    run(job, here / "store")
    pages = [f"/{n}" for n in range(20, 30)]
    longest = max(visit["seconds"] for visit in visits)
    assert rows_of(here / "out")[-1] == ["ada", ["d0", "d1", "d2"], pages, longest]


def test_a_program_takes_a_savepoint_and_stops_its_job(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job("numbers")
    job.source(RateSource(1000)).sink(ForeachSink(lambda rows: None))
    url = str(here / "store")
    upgrade = names_of("savepoints 0")["upgrade"]
    upgrade.__globals__["open_store"] = lambda _: open_store(url)
    asyncio.run(upgrade(job))
    assert int(capsys.readouterr().out) > 0
    assert len(list((here / "store" / "checkpoints").iterdir())) >= 3


def test_counts_go_to_sqlite(here: Path) -> None:
    check_counts(names_of("sinks 0"), "counts", here)


def test_newest_counts_go_to_a_table_with_one_row_for_each_key(here: Path) -> None:
    check_counts(names_of("sinks 2"), "newest", here)


def check_counts(names: dict[str, Any], table: str, here: Path) -> None:
    (here / "texts").mkdir()
    (here / "texts" / "one.txt").write_text("the tide rises\nthe tide falls\n")
    run(names["job"], here / "store")
    with sqlite3.connect(here / "tides.db") as database:
        newest = f"SELECT word, max(n) FROM {table} GROUP BY word ORDER BY word"
        expected = [("falls", 1), ("rises", 1), ("the", 2), ("tide", 2)]
        assert database.execute(newest).fetchall() == expected


def test_amounts_of_a_csv_file_are_added_up(here: Path) -> None:
    (here / "orders").mkdir()
    orders = 'order_id,amount,country\n1,2.5,"P\nT"\n2,4,ES\n3,1.5,"P\nT"\n'
    (here / "orders" / "1.csv").write_text(orders)
    run(names_of("sources 0")["job"], here / "store")
    totals = rows_of(here / "totals")
    assert sorted((row["country"], row["amount"]) for row in totals) == [("ES", 4), ("P\nT", 4)]


def test_topics_are_pushed_from_where_they_were_left(here: Path) -> None:
    stored = {"orders": ["a", "b", "c"], "returns": ["d"]}

    async def subscribe(split: str, position: int) -> Any:
        for offset, message in list(enumerate(stored[split]))[position:]:
            yield offset, message
        await asyncio.Event().wait()  # for more

    topics: type[PushSource] = names_of("sources 2", subscribe=subscribe)["Topics"]

    def pushed(until: int) -> list[Any]:
        found: list[Any] = []
        job = Job("topics")
        job.source(topics()).sink(ForeachSink(found.append))
        run(job, here / "store", lambda: len(found) >= until)
        return sorted(found)

    assert pushed(4) == ["a", "b", "c", "d"]
    stored["orders"] += ["e", "f"]
    assert pushed(2) == ["e", "f"]


def test_a_program_runs_a_job_whose_rows_are_named_in_both_ways_and_runs_it_again(
    here: Path,
) -> None:
    add_rows(here / "in" / "1.jsonl", [{"word": f"w{n}", "count": n} for n in range(9)])
    for already_complete in (False, True):
        job = Job("copy")
        rows = job.source(JsonLinesSource("in")).map(lambda row: (row.word, row["count"]))
        rows.sink(FileSink("out", fields=("word", "count")))
        assert names_of("sources 3", job=job)["result"].already_complete == already_complete
        found = [(row["word"], row["count"]) for row in rows_of(here / "out")]
        assert sorted(found) == [(f"w{n}", n) for n in range(9)]


def test_a_program_hears_the_events_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    library = logging.getLogger("tidelog")
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(library, "level", library.level)
    names_of("logging 0")
    assert library.getEffectiveLevel() == logging.INFO and logging.root.handlers


def test_types_of_the_users_own_are_named_by_the_job() -> None:
    assert names_of("unaligned 0", Job=Job, Parcel=Parcel)["job"].record_types == (Parcel,)


def test_a_loop_of_ones_own_counts_each_order_once(here: Path) -> None:
    file = here / "orders.csv"
    file.write_text("ann,books,3.5\nbob,bikes,100\n")
    count_orders = names_of("own-loop 0")["count_orders"]
    for _ in range(2):
        count_orders(str(here / "store"), file)
    with file.open("a") as lines:
        lines.write("ann,books,1\nann,bikes,2\n")
    count_orders(str(here / "store"), file)
    with tidelog.open(str(here / "store"), state=names_of("own-loop 0")["STATES"]) as db:
        assert db.position == {"orders.csv": file.stat().st_size}
        assert [db.key(user).orders.get() for user in ("ann", "bob")] == [3, 1]
        assert dict(db.key("ann").spent.items()) == {"bikes": 2.0, "books": 4.5}


def test_output_of_a_loop_of_ones_own_is_there_once(here: Path) -> None:
    number_orders = names_of("own-loop 1")["number_orders"]
    orders = list(enumerate(["ann", "bob", "ann"]))
    for _ in range(2):
        number_orders(str(here / "store"), orders, tidelog.FileSink(str(here / "out")))
    numbered = [(row["user"], row["number"]) for row in rows_of(here / "out")]
    assert sorted(numbered) == [("ann", 1), ("ann", 2), ("bob", 1)]


def test_a_report_reads_a_savepoint_while_the_program_goes_on(here: Path) -> None:
    url, states = str(here / "store"), names_of("own-loop 0")["STATES"]
    spenders = names_of("own-loop 2")["spenders"]
    with tidelog.open(url, state=states) as db:
        for user, amount in (("ann", 3.5), ("bob", 100.0), ("eve", 7.0)):
            db.key(user).orders.set(1)
            db.key(user).spent.set("books", amount)
        db.savepoint("night")
        db.key("ann").spent.set("bikes", 90.0)
        assert list(spenders(url, "night", 7)) == [("bob", 100.0), ("eve", 7.0)]


class TwoRebalances:
    """A consumer whose group gives it two partitions, takes one away and gives it back."""

    def __init__(self, messages: dict[int, list[bytes]]) -> None:
        self.messages, self.offsets = messages, dict[int, int]()
        self.polls = 0

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        [self.topic] = topics
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.offsets |= {each.partition: max(each.offset, 0) for each in partitions}

    def poll(self, timeout: float) -> Any:
        self.polls += 1
        match self.polls:
            case 1:
                self.on_assign(self, [TopicPartition(self.topic, p) for p in self.messages])
            case 4:
                self.on_revoke(self, [TopicPartition(self.topic, 0)])
                del self.offsets[0]
            case 6:
                self.on_lost(self, [TopicPartition(self.topic, 1)])
                del self.offsets[1]
                self.on_assign(self, [TopicPartition(self.topic, p) for p in (0, 1)])
        for partition, offset in self.offsets.items():
            if offset < len(self.messages[partition]):
                self.offsets[partition] += 1
                return Message(self.topic, partition, offset, self.messages[partition][offset])
        raise KeyboardInterrupt

    def close(self) -> None:
        self.on_revoke(self, [TopicPartition(self.topic, p) for p in self.offsets])


class Message:
    def __init__(self, topic: str, partition: int, offset: int, key: bytes) -> None:
        self.topic, self.error = lambda: topic, lambda: None
        self.partition, self.offset, self.key = lambda: partition, lambda: offset, lambda: key


def test_a_consumer_group_counts_each_message_once(here: Path) -> None:
    messages = {0: [b"ann", b"bob", b"ann", b"ann"], 1: [b"eve", b"eve", b"joe"]}
    program = names_of("own-loop 4")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            program["count_orders"](TwoRebalances(messages), str(here / "store"), "orders")
    with tidelog.open_partitions(str(here / "store"), program["STATES"]) as app:
        app.assign([0, 1])
        assert [app[p].position for p in app] == [{"orders": 4}, {"orders": 3}]
        found = [app[0].key(b"ann"), app[0].key(b"bob"), app[1].key(b"eve"), app[1].key(b"joe")]
        assert [key.orders.get() for key in found] == [3, 1, 2, 1]


@pytest.fixture
def threads_that_take_turns_often() -> Iterator[None]:
    """Two requests meet between a read and a write in every run, not in one of many."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_that_take_turns_often")
def test_a_service_counts_requests_that_come_at_once(here: Path) -> None:
    def ask(path: str, method: str = "GET") -> bytes:
        request = Request(f"http://127.0.0.1:{server.server_port}{path}", method=method)
        with urlopen(request) as answer:
            return bytes(answer.read())

    states = {"hits": tidelog.ValueState(int)}
    for before in (0, 100):
        with (
            tidelog.open(str(here / "store"), state=states) as db,
            names_of("own-loop 3")["counting_server"](db) as server,
        ):
            serving = Thread(target=server.serve_forever)
            serving.start()
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: ask("/1", "POST"), range(100)))
            hits = int(ask("/1"))
            server.shutdown()
            serving.join()
            assert hits == before + 100


def test_the_programs_of_the_joins_page_join(here: Path) -> None:
    orders = [
        {"order": "o1", "ms": 1_000, "currency": "chf", "amount": 10},
        {"order": "o2", "ms": 2_000, "currency": "chf", "amount": 20},
    ]
    add_rows(here / "orders" / "1.jsonl", orders)
    add_rows(here / "payments" / "1.jsonl", [{"order": "o1", "ms": 61_000, "cents": 1_000}])
    rates = [{"currency": "chf", "ms": ms, "euros": ms // 500} for ms in (500, 1_500, 9_000)]
    add_rows(here / "rates" / "1.jsonl", rates)
    add_rows(here / "users" / "1.jsonl", [{"user": "u1", "name": "Ada"}])
    add_rows(here / "visits" / "1.jsonl", [{"user": "u1", "page": "/"}])
    run(names_of("joins 0")["job"], here / "store-0")
    assert sorted(map(tuple, rows_of(here / "paid"))) == [("o1", 1_000), ("o2", None)]
    run(names_of("joins 1")["job"], here / "store-1")
    assert rows_of(here / "near") == [["o1", 1_000]]
    run(names_of("joins 2")["job"], here / "store-2")
    assert sorted(map(tuple, rows_of(here / "euros"))) == [("o1", 10), ("o2", 60)]
    run(names_of("joins 3")["job"], here / "store-3")
    assert rows_of(here / "named") in ([["/", "Ada"]], [["/", "?"]])
