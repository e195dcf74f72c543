"""The outbox to files, by the program of the docs: killed while programs add rows that overlap."""

import json
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

from tests.first_jobs.killed import kill_at, last_slot, start
from tests.first_jobs.programs import rows_of
from tests.support.depth import more_in_depth
from tests.support.documentation import BLOCKS, ROOT
from tests.support.postgres import query
from tests.unit.connectors.sinks.conftest import conninfo, postgres_server

__all__ = ["conninfo", "postgres_server"]

KILLS = more_in_depth(1, 6)


def create_table() -> str:
    text = (ROOT / "docs" / "guides" / "sources.md").read_text()
    return text.partition("```sql\n")[2].partition("```")[0]


class Shop(Thread):
    """Transactions of several connections, some of them rolled back, until it is closed."""

    def __init__(self, conninfo: str, seed: int) -> None:
        super().__init__()
        self._conninfo = conninfo
        self._rng = Random(seed)
        self.committed: Counter[str] = Counter()
        self.closing = False

    def run(self) -> None:
        connections = [import_module("psycopg").connect(self._conninfo) for _ in range(4)]
        added: dict[Any, list[str]] = {connection: [] for connection in connections}
        number = 0
        while not self.closing:
            connection = self._rng.choice(connections)
            for _ in range(self._rng.randrange(4)):
                number += 1
                connection.execute(
                    "INSERT INTO outbox (kind, payload) VALUES ('order', %s)",
                    (json.dumps({"number": number}),),
                )
                added[connection].append(str(number))
            self._end(connection, added, commits=self._rng.random() < 0.8)
            time.sleep(0.001)
        for connection in connections:
            self._end(connection, added, commits=True)
            connection.close()

    def _end(self, connection: Any, added: dict[Any, list[str]], *, commits: bool) -> None:
        if commits:
            connection.commit()
            self.committed.update(added[connection])
        else:
            connection.rollback()
        added[connection] = []


def test_every_row_is_in_the_files_once_and_gone_from_the_table(
    conninfo: str, tmp_path: Path
) -> None:
    address = "postgresql://tide@db.example/shop"
    assert address in BLOCKS["sources 0"]
    (tmp_path / "outbox.py").write_text(BLOCKS["sources 0"].replace(address, conninfo))
    query(conninfo, create_table())
    shop = Shop(conninfo, seed=KILLS)
    shop.start()
    try:
        checkpoints = tmp_path / "store" / "checkpoints"
        for kill in range(KILLS):
            process = start(tmp_path, "outbox:job", "--parallelism", str(1 + kill % 2))
            kill_at(process, checkpoints, last_slot(checkpoints) + 4)
    finally:
        shop.closing = True
        shop.join()
    process = start(tmp_path, "outbox:job")
    while len(rows_of(tmp_path / "events")) < shop.committed.total() or left(conninfo):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    found = Counter(str(row["payload"]["number"]) for row in rows_of(tmp_path / "events"))
    assert found == shop.committed


def left(conninfo: str) -> int:
    return int(query(conninfo, "SELECT count(*) FROM outbox")[0][0])
