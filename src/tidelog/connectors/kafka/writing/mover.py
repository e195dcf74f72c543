"""Moves staged records to their topics, in transactions of Kafka.

Kafka's client cannot go on with a transaction of a process that has died, so a transaction begins
and ends within one call, and moves what is durable already. Invariants: whatever fails, the next
try first takes the transactional id again, which ends the transaction that was open, and then reads
what was moved; a start that finds a newer one in the topic of commits moves nothing.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from threading import Event as Stop
from typing import Any, Final

import msgspec

from tidelog.connectors import transactions
from tidelog.connectors.kafka import client
from tidelog.connectors.kafka.client import DeadLetterTopic, OnError
from tidelog.connectors.kafka.writing.messages import Message
from tidelog.connectors.kafka.writing.producing import (
    LATE_S,
    PATIENCE_S,
    check_fits,
    now,
    produce,
    producer,
)
from tidelog.connectors.kafka.writing.staging import (
    Commits,
    Refusal,
    StagedRange,
    StagingStart,
    fenced,
    first_left,
    taken_over,
    topics_are_gone,
    unneeded_before,
)
from tidelog.connectors.kafka.writing.staging_topics import StagingTopics
from tidelog.connectors.outside import answered, bounded
from tidelog.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    StoreUnreachableError,
    TidelogError,
)
from tidelog.events import Event
from tidelog.options.units import plural
from tidelog.runtime.sink import SinkContext

logger = logging.getLogger(__name__)

TRANSACTION_MS: Final = 60_000
"""Brokers abort a transaction that takes longer, unless the user says otherwise ..."""
_PART: Final = 1 / 4
"""... so a range is moved in parts that are sent within this share of it."""
_COMMITS_KEY: Final = b"commits"
_TRIES: Final = 4
_ABORT_S: Final = 5.0
_MOST: Final = 1 << 20
"""Most records of one transaction."""


class Mover:
    """Moves the records of one staging partition; used by one thread at a time.

    Every method raises FencedError when a newer start moves them, and errors of `tidelog.errors`.
    """

    def __init__(
        self,
        topics: StagingTopics,
        partition: int,
        me: StagingStart,
        on_refused: OnError,
        transaction_ms: int,
    ) -> None:
        self._cluster = topics.cluster
        self._transaction_ms = transaction_ms
        self._on_refused = on_refused
        self._topics = topics
        self._partition = partition
        self._me = me
        self._id = topics.transactional_id(partition)
        self._producer: Any = None
        self._commits = Commits(me, {})
        """What the topic of commits says, as long as there is a producer."""
        self._began = False
        """Whether this start has taken over: it then never does so again."""
        self._limit = self._sent = _MOST
        """Records of a transaction: the limit, and how many the last one had."""
        self._refusal: Refusal | None = None
        """The record for which the last transaction failed; None if another reason failed it."""
        self._left_out: dict[tuple[StagingStart, int], Refusal] = {}
        """Records that are not moved to their topics, by the number in their start."""

    def begin(self) -> None:
        """Take over from older starts, which move nothing from here on."""
        self._until_done(lambda: None)

    def check_begins(self, context: SinkContext) -> None:
        """Raises ConfigError where a job begins and the topics have records of an earlier one."""
        earlier = (
            f"{plural(records, 'record')} of start {start} under the transactional id {self._id!r}"
            for start, records in self._commits.moved.items()
            if records
        )
        topics = f"{self._topics.staging!r} and {self._topics.commits!r}"
        forget = f"give it another prefix= or delete its topics {topics}"
        transactions.check_begins(context, context.name, earlier, forget)

    def lacks(self, staged: StagedRange) -> bool:
        """Whether a range that an older checkpoint names neither was moved nor waits in staging, as
        that of a checkpoint does that the job went on without.
        """
        count = self._commits.moved.get(str(staged.start), 0)
        return count < staged.stop and not self._topics.waits(staged)

    def move(self, staged: StagedRange) -> None:
        """Move a range, unless it was moved.

        Raises ObjectNotFoundError when staged records are gone, RestoreError for a range of
        another sink.
        """
        if (staged.topic, staged.partition) != (self._topics.staging, self._partition):
            where = f"partition {self._partition} of topic {self._topics.staging!r}"
            expected = f"a sink whose staging is {staged.topic!r}"
            raise transactions.moved(str(staged), expected, where)
        self._until_done(lambda: self._move(staged))

    def forget_all_but(self, starts: Iterable[StagingStart]) -> None:
        """Forget how many records of other starts were moved."""
        referenced = list(starts)

        def forget() -> None:
            commits = self._commits.only(referenced)
            if commits != self._commits:
                self._note(commits)

        self._until_done(forget)

    def cut(self, end: int, ranges: Iterable[StagedRange]) -> None:
        """Delete staged records before `end` that none of these ranges will ask for."""
        before = unneeded_before(end, self._commits, ranges)
        if before > 0:
            self._topics.cut(self._partition, before)

    def _move(self, staged: StagedRange) -> None:
        number = first_left(self._commits, staged)
        if number == staged.stop:
            return
        with closing(self._topics.staged(staged, number)) as messages:
            while number < staged.stop:
                number = self._move_part(staged, number, messages)

    def _move_part(self, staged: StagedRange, number: int, messages: Any) -> int:
        """One transaction; returns the number of the next record."""
        self._producer.begin_transaction()
        until, self._sent = now() + _PART * self._transaction_ms / 1000, 0
        for offset, message in messages:
            self._sent += 1
            refusal = self._left_out.get((staged.start, number))
            if refusal is None:
                self._send(message, Refusal(staged, number, offset, message))
            elif isinstance(self._on_refused, DeadLetterTopic):
                self._send(refusal.letter(self._on_refused.topic))
            number += 1
            if number == staged.stop or now() > until or self._sent >= self._limit:
                break
        self._end_transaction(self._commits.after(staged.start, number))
        self._limit = min(2 * self._limit, _MOST)
        return number

    def _note(self, commits: Commits) -> None:
        """A transaction that moves no records."""
        self._producer.begin_transaction()
        self._end_transaction(commits)

    def _end_transaction(self, commits: Commits) -> None:
        value = msgspec.json.encode(commits)
        self._send(Message(self._topics.commits, _COMMITS_KEY, value, [], self._partition))
        self._ask(partial(self._producer.commit_transaction, PATIENCE_S))
        self._commits = commits

    def _send(self, message: Message, record: Refusal | None = None) -> None:
        """Send it; a failure that is the record's own is kept as the transaction's refusal."""

        def delivered(error: Any, _: Any) -> None:
            if record is not None and error is not None and self._refusal is None:
                self._refusal = record.by(error)

        while True:
            try:
                produce(self._producer, message, on_delivery=delivered)
            except client.library().KafkaException as error:
                delivered(error.args[0], None)
                raise
            except BufferError:
                check_fits(self._producer, message, self._cluster)
                self._make_room()
            else:
                return

    def _make_room(self) -> None:
        """Wait until some messages were delivered; raises StoreUnreachableError."""
        stopped, waiting = Stop(), len(self._producer)
        with answered(f"messages to {self._cluster}", PATIENCE_S, stopped.set):
            while waiting and len(self._producer) >= waiting:
                if stopped.is_set():
                    raise TimeoutError
                self._producer.flush(0.1)  # a poll would wait for the end of linger.ms

    def _ask(self, call: Callable[[], None]) -> None:
        """Make a call of the producer that waits for the cluster."""
        bounded(f"transactional id {self._id!r} in {self._cluster}", PATIENCE_S + LATE_S, call)

    def _until_done(self, step: Callable[[], None]) -> None:
        """Do it, again after failures that may pass; `step` does only what is left to do."""
        kafka_error = client.library().KafkaException
        give_up, tries_left = now() + PATIENCE_S, _TRIES
        while True:
            tries_left -= 1
            self._refusal = None
            try:
                if self._producer is None:
                    self._take_over()
                return step()
            except kafka_error as error:
                if self._producer is not None:
                    with suppress(kafka_error):  # the reason may wait among reports of deliveries
                        self._producer.poll(0)
                refusal = self._refusal  # the purge of the rest would make another
                self.close()
                if refusal is not None:
                    self._follow(refusal)
                    tries_left += 1
                    continue
                late = tries_left == 0 or now() > give_up
                if late or not self._may_pass(error.args[0]):
                    raise self._translated(error.args[0]) from error
            except ObjectNotFoundError:
                # Moved and deleted by a newer start, if there is one: then that is the error.
                self.close()
                if tries_left < _TRIES - 1:
                    raise
            except BaseException:
                self.close()
                raise

    def _follow(self, refusal: Refusal) -> None:
        """Find the record among those of the transaction, and do with it what is to be done.

        Brokers refuse a batch for one of its records. Raises StorageError where the job is to fail.
        """
        if self._sent > 1:
            self._limit = max(1, self._sent // 2)
            return
        if self._on_refused == "fail":
            raise refusal.error(self._cluster)
        self._left_out[refusal.staged.start, refusal.number] = refusal
        policy = self._on_refused
        if isinstance(policy, DeadLetterTopic):
            fate = f"moved to the topic {policy.topic!r}"
        else:
            fate = "left out"
        Event.KAFKA_RECORDS_REFUSED.log(
            logger, records=len(self._left_out), what=refusal.what, error=refusal.why, fate=fate
        )

    def _take_over(self) -> None:
        limit = {"transaction.timeout.ms": self._transaction_ms}
        settings = {"transactional.id": self._id, **limit}
        self._producer = producer(self._cluster, settings)
        # Ends what another process has open under this id, and fences it.
        self._ask(partial(self._producer.init_transactions, PATIENCE_S))
        commits = self._topics.last_commits(self._topics.commits, self._partition)
        if self._began:
            # A process that took the id in between may have stopped: what counts is who owns it.
            if commits is None:
                topic = f"partition {self._partition} of topic {self._topics.commits!r}"
                expected = "what this start of the job has written there"
                raise topics_are_gone(topic, expected, "nothing")
            if commits.owner != self._me:
                raise fenced(self._me, commits.owner, self._id)
            self._commits = commits
            return
        updated = taken_over(commits, self._me, self._id)
        if updated != commits:
            self._note(updated)
        self._commits = updated
        self._began = True

    def _may_pass(self, error: Any) -> bool:
        codes = client.library().KafkaError
        of_another_process = (
            codes._FENCED,
            codes.PRODUCER_FENCED,
            codes.INVALID_PRODUCER_EPOCH,
            codes.INVALID_PRODUCER_ID_MAPPING,
            codes.INVALID_TXN_STATE,
            codes.UNKNOWN_PRODUCER_ID,
        )
        kind = self._translated(error)
        lasting = isinstance(kind, AccessDeniedError | ObjectNotFoundError)
        again = error.retriable() or error.txn_requires_abort() or error.fatal()
        again = again or isinstance(kind, StoreUnreachableError)
        return not lasting and (again or error.code() in of_another_process)

    def _translated(self, error: Any) -> TidelogError:
        return client.translated(error, f"transactional id {self._id!r}", self._cluster)

    def close(self) -> None:
        """Leave no transaction open that readers would wait for; the next producer knows better."""
        discarded, self._producer = self._producer, None
        if discarded is not None:
            with suppress(client.library().KafkaException):
                discarded.abort_transaction(_ABORT_S)
            discarded.purge()
