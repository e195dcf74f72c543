"""What tidelog keeps of a job in the checkpoint of its query, beside what Spark has there.

Invariants: what a query has taken over is written before its first batch is planned, and not
changed after that batch is committed; from then on it needs nothing of the job's store. Documents
are not encrypted, as the rest of a checkpoint of Spark.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.errors import ConfigError, ObjectNotFoundError, RestoreError
from tidelog.ids import CheckpointId, Generation, Slot
from tidelog.spark.checkpoint.checkpoint import COMMITS, OFFSETS, listed_batches, store_url
from tidelog.spark.checkpoint.commits import Offsets, read_offsets
from tidelog.spark.handover.sources import QuerySources
from tidelog.spark.operators.layout import OPERATORS, Descriptions, QueryOperators
from tidelog.spark.source.parts import ReadSession, connected
from tidelog.state.objects.values import ObjectEncoding
from tidelog.storage.document import FORMAT_VERSION, open_document, seal_document
from tidelog.storage.open import PLAIN, StoreAccess
from tidelog.storage.port import ObjectStore

HANDOVER: Final = "tidelog-handover.json"
SOURCES: Final = "tidelog-sources.json"
RETURN: Final = "tidelog-return.json"

T = TypeVar("T")


class SplitPosition(NamedTuple):
    """How far a job has read a split of a source."""

    is_ended: bool
    position: Any = None
    latest: int | None = None
    """The greatest event time that was read there, where that is known."""


Positions = Mapping[str, SplitPosition]
"""By the name of the split, ascending."""


class Handover(msgspec.Struct, frozen=True):
    """The checkpoint that a query began with, without its rows."""

    store: str
    """URL of the job's store."""
    checkpoint: Slot
    job: str
    operators: tuple[OperatorState, ...]
    """Their states, key groups and watermarks; where their rows are stored is left out."""
    splits: Mapping[str, Mapping[str, bytes]] = {}
    """By source what was stored of each split, encoded."""
    generation: Generation | None = None
    """The start that the query is for the job's sinks; None: the job itself may go on."""
    checkpoint_id: CheckpointId = CheckpointId(0)
    """Of the checkpoint: what the query's batches are called for the job's sinks is above it."""
    transactions: tuple[bytes, ...] | None = ()
    """What checkpoints of the job name, which outputs remember, for the job returns to them; None:
    one of these could not be read.
    """
    format: int = FORMAT_VERSION

    def operator(self, name: str) -> OperatorState:
        """The operator of a name; raises ConfigError where the job had none."""
        for operator in self.operators:
            if operator.id == name:
                return operator
        raise self._none(f"operator {name!r}", [operator.id for operator in self.operators])

    def positions(self, source: str) -> Positions:
        """How far each split of a source is read; raises ConfigError where the job had none."""
        if source not in self.splits:
            raise self._none(f"source {source!r}", self.splits)
        positions: dict[str, SplitPosition] = {}
        decode = ObjectEncoding(f"positions of source {source!r}").decode
        for split, data in sorted(self.splits[source].items()):
            positions[split] = SplitPosition(*decode(data))
        return positions

    def _none(self, what: str, names: Iterable[str]) -> ConfigError:
        return ConfigError(
            what,
            expected=f"one that checkpoint {self.checkpoint} of {self.store} has: "
            f"{', '.join(sorted(map(repr, names)))}",
            found="none of that name",
            action="name one of them",
        )


def without_rows(operator: OperatorState) -> OperatorState:
    """The operator without references to stored rows."""
    subtasks = tuple(
        SubtaskState(
            subtask.index,
            subtask.first_key_group,
            subtask.last_key_group,
            subtask.seqno,
            subtask.table,
            start=subtask.seqno,
            watermark=subtask.watermark,
            advancing=subtask.advancing,
            ahead=subtask.ahead,
            finished=subtask.finished,
        )
        for subtask in operator.subtasks
    )
    return msgspec.structs.replace(operator, subtasks=subtasks)


class Return(msgspec.Struct, frozen=True):
    """Where a query's job is, when it runs embedded again."""

    savepoint: str
    format: int = FORMAT_VERSION


class QueryDirectory:
    """The checkpoint of a query; `location` is as Spark has it."""

    def __init__(self, location: str, access: StoreAccess = PLAIN) -> None:
        self.location = location
        self.url = store_url(location)
        self._access = msgspec.structs.replace(access, encryption_key=None)
        self._session: ReadSession | None = None

    @contextmanager
    def connected(self) -> Iterator[ReadSession]:
        """The directory as a store; what is read and written within shares the connection."""
        if self._session is not None:
            yield self._session
            return
        with connected(self.url, self._access) as session:
            self._session = session
            try:
                yield session
            finally:
                self._session = None

    def batches(self) -> list[int]:
        """The committed batches that are there, in order. With one, what operators begin with is in
        their own state.
        """
        with self.connected() as session:
            return session.run(listed_batches(session.store, COMMITS))

    def offsets(self, batch: int | None = None) -> Offsets:
        """Where a batch ends, None: the newest one that is planned."""
        with self.connected() as session:
            planned = session.run(listed_batches(session.store, OFFSETS))
            if batch is None and not planned:
                return Offsets({}, {})
            number = planned[-1] if batch is None else batch
            return read_offsets(session.run(session.store.get(f"{OFFSETS}{number}")))

    def handover(self) -> Handover | None:
        """What the query took over; None: it began without."""
        return self.read(HANDOVER, Handover)

    def required_handover(self) -> Handover:
        """What the query took over; raises ConfigError where it began without."""
        handover = self.handover()
        if handover is None:
            raise ConfigError(
                f"checkpoint {self.url}",
                expected=f"{HANDOVER}, as of a query that began with state of a job",
                found="a query that began without",
                action="leave the savepoint out, or begin with a new checkpoint directory",
            )
        return handover

    def sources(self) -> QuerySources:
        """The sources of the query's job; raises ConfigError for the query of no job."""
        sources = self.read(SOURCES, QuerySources)
        if sources is None:
            raise ConfigError(
                f"checkpoint {self.url}",
                expected="that of a job, as `tidelog spark run` or run_operator starts it",
                found="one without a description of the job's sources",
                action="name the checkpoint directory of such a query",
            )
        return sources

    def descriptions(self) -> Descriptions:
        """What the rows of the query's operators mean; nothing before its first start."""
        document = self.read(OPERATORS, QueryOperators)
        operators = () if document is None else document.operators
        return {description.operator: description for description in operators}

    def keep_descriptions(self, descriptions: Descriptions) -> None:
        self.put(OPERATORS, QueryOperators(tuple(descriptions.values())))

    def begin(self, sources: QuerySources) -> None:
        """Keep what the sources of a query are that starts.

        Raises RestoreError for one whose job runs embedded again.
        """
        returned = self.read(RETURN, Return)
        if returned is not None:
            raise RestoreError(
                f"query at {self.url}",
                expected="the job here",
                found=f"that it went back to savepoint {returned.savepoint}",
                action="let the job run there; to bring it to Spark again, stop it by a savepoint, "
                "and begin with that in a new checkpoint directory; if that savepoint was never "
                f"completed, repeat `tidelog spark savepoint`, or remove {RETURN} from the "
                "checkpoint to let the query go on",
                retry_safe=False,
            )
        self.put(SOURCES, sources)

    def read(self, name: str, kind: type[T]) -> T | None:
        """A document; None: it is not there."""
        with self.connected() as session:
            try:
                data = session.run(session.store.get(name))
            except ObjectNotFoundError:
                return None
        return open_document(data, name, kind)

    def put(self, name: str, document: msgspec.Struct, *, create: bool = False) -> None:
        """Store a document; one to `create` raises ObjectExistsError where there is one."""
        with self.connected() as session:
            store = session.store.create if create else session.store.put
            session.run(store(name, seal_document(document)))

    def names(self, folder: str) -> list[str]:
        """The documents in a folder, in order."""

        async def listed(store: ObjectStore) -> list[str]:
            return sorted([info.name async for info in store.list(folder)])

        with self.connected() as session:
            return session.run(listed(session.store))

    def delete(self, name: str) -> None:
        with self.connected() as session:
            session.run(session.store.delete(name))
