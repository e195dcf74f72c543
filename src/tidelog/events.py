"""Every event that tidelog logs, declared once: level, message and fields.

Invariants: nothing is logged per record or per change of state. An event's fields are the
placeholders of its message, without secrets; `%(rows row)s` is a number with its noun. A log record
has the event's name as `record.event` and the fields as `record.args`, so `record.msg` is the same
text for every record of an event. docs/reference/logging.md lists the events for users.
"""

import re
from enum import Enum
from logging import DEBUG, INFO, WARNING, Logger

from tidelog.credentials import LogFields


class Event(Enum):
    """What a log record reports; the name of a member in lower case is the event's name."""

    # Requests to the store.
    REQUEST_RETRIED = (
        WARNING,
        "no answer from the store for %(object)s, attempt %(attempt)d follows in %(pause_s).3f s: "
        "%(error)s",
    )
    REQUEST_GIVEN_UP = (
        WARNING,
        "no answer from the store for %(object)s after %(attempts attempt)s: %(error)s",
    )
    REQUEST_HEDGED = (
        INFO,
        "no answer from the store for %(object)s within %(after_s).3f s: a second attempt runs "
        "beside the first",
    )
    OBJECT_NOT_LINKED = (DEBUG, "%(object)s is copied, because the disk cannot link it: %(error)s")
    FILE_NOT_DELETED = (WARNING, "%(path)s, which nothing needs, was not deleted: %(error)s")
    OUTPUT_STAYS_IN_PROGRESS = (
        WARNING,
        "the newest output file in %(directory)s stays in progress until the next start: %(error)s",
    )

    # Sources.
    FILE_NOT_COMPLETE = (
        INFO,
        "input file %(path)s is not complete, and is looked at again until it is: %(error)s",
    )
    SOURCE_AWAY = (WARNING, "%(source)s does not answer, and is asked until it does: %(error)s")
    NOT_LISTENING = (
        WARNING,
        "notifications on channel %(channel)s are not received, since %(database)s is reached "
        "through a pooler: the table is looked at every `poll` seconds alone",
    )
    SOURCE_BACK = (INFO, "%(source)s answers again")

    # Encryption.
    KEY_FILE_OPEN = (
        WARNING,
        "the encryption key file %(path)s has mode %(mode)s: others can read it; "
        "`chmod 600` closes it",
    )
    STORE_ENCRYPTED = (INFO, "%(store)s is a new encrypted store; its key is %(source)s")
    KEYS_ROTATED = (INFO, "%(store)s: %(keys key)s wrapped with another key")

    # Systems outside.
    OUTSIDE_CALL_WAITS = (
        WARNING,
        "%(call)s has no answer after %(seconds).0f s, it is given up after %(limit_s).0f s",
    )
    LIBRARY_NOT_TESTED = (
        WARNING,
        "%(library)s %(version)s is newer than what tidelog was tested with, up to %(tested)s",
    )

    # Kafka.
    KAFKA_CLIENT_WARNED = (WARNING, "librdkafka: %(message)s")
    KAFKA_CLIENT_SAID = (DEBUG, "librdkafka: %(message)s")
    KAFKA_AWAY = (WARNING, "no broker of %(cluster)s answers: the source waits, %(wait)s")
    KAFKA_BACK = (INFO, "a broker of %(cluster)s answers again, after %(seconds).1f s")
    KAFKA_OFFSET_MISSING = (
        WARNING,
        "%(where)s has no offset %(offset)d any more: reading continues at %(found)d, as "
        "on_missing_offset says",
    )
    INPUT_LINES = (WARNING, "input file %(file)s: %(lines line)s so far, %(what)s")
    KAFKA_MESSAGES_SKIPPED = (
        WARNING,
        "left out since the start, as it could not be decoded: %(skipped message)s, the last one "
        "in %(where)s: %(error)s",
    )
    KAFKA_RECORDS_REFUSED = (
        WARNING,
        "refused by a topic since the start: %(records staged record)s (%(fate)s), the last one "
        "%(what)s: %(error)s",
    )
    KAFKA_OFFSETS_NOT_COMMITTED = (
        WARNING,
        "offsets were not committed to the consumer group in %(cluster)s, which only tools that "
        "show its lag need: %(error)s",
    )

    # Programs with a loop of their own.
    LOOP_HELD_UP = (
        WARNING,
        "thread %(thread)s has stopped the event loop of tidelog, and all that works on its "
        "states, for %(seconds)d s, at %(place)s; if that does not end, end the process",
    )
    OPERATION_AWAITED = (
        WARNING,
        "an operation in thread %(thread)s has waited for some seconds: for %(reason)s",
    )
    STEP_AWAITED = (
        WARNING,
        "a checkpoint has waited %(seconds)d s for the end of a step of %(callers)s, and no other "
        "step can begin; advance(), the end of a step()'s block and checkpoint() end it",
    )
    STEP_OPEN = (
        WARNING,
        "attempt %(attempt)d at a checkpoint was given up because a step did not end, of "
        "%(callers)s; advance(), the end of a step()'s block and checkpoint() end it",
    )

    PARTITION_GIVEN_UP = (
        WARNING,
        "%(partition)s was closed without a last checkpoint, so the next owner continues from the "
        "one before: %(reason)s",
    )

    # Local recovery.
    LOCAL_COPIES_OPENED = (
        INFO,
        "local recovery in %(directory)s has copies of %(objects object)s, %(bytes)d bytes",
    )
    LOCAL_COPY_DAMAGED = (
        WARNING,
        "the local copy of %(object)s is damaged, the store is read instead: %(error)s",
    )
    LOCAL_COPY_FAILED = (
        WARNING,
        "the disk refused an operation on the local copy of %(object)s: %(error)s",
    )
    LOCAL_COPIES_FULL = (
        WARNING,
        "local copies reach their limit of %(limit_bytes)d bytes: a restart reads the rest from "
        "the store",
    )

    # The log and the tables.
    SEGMENT_NOT_UPLOADED = (
        WARNING,
        "segment %(segment)s with %(bytes)d bytes of changes was not uploaded, its changes go with "
        "the next attempt: %(error)s",
    )
    WRITERS_WAIT = (
        INFO,
        "writers wait for uploads: %(held_bytes)d bytes of changes are in memory, the limit is "
        "%(limit_bytes)d",
    )
    MATERIALIZATION_FAILED = (
        WARNING,
        "materialization of %(subtask)s failed, %(failures)d in a row: %(error)s",
    )
    MATERIALIZATIONS_LATE = (
        WARNING,
        "materializations are late by more than %(intervals)g intervals of %(interval_s)g s in "
        "%(late)d of %(subtasks subtask)s, in %(latest)s by %(late_s).1f s; the log "
        "grows, and a restart replays it. Give the store more bandwidth, or raise the "
        "materialization interval.",
    )
    MATERIALIZATIONS_ON_TIME = (INFO, "materializations are on time again")
    TABLE_NOT_CLOSED = (WARNING, "the table in %(directory)s was not closed cleanly: %(error)s")

    # Checkpoints and generations.
    GENERATION_STARTED = (
        INFO,
        "job %(job)r starts as generation %(generation)d, older generations are fenced",
    )
    START_RACED = (INFO, "another start has taken generation %(generation)d, a later one is tried")
    GENERATION_FENCED = (
        WARNING,
        "generation %(generation)d was fenced at %(object)s by a newer start of the job",
    )
    NEWER_START_UNKNOWN = (WARNING, "cannot tell whether a newer job has started: %(error)s")
    CHECKPOINT_COMPLETED = (
        INFO,
        "checkpoint %(checkpoint)d completed after %(seconds).3f s (attempt %(attempt)d)",
    )
    CHECKPOINT_ABORTED = (WARNING, "attempt %(attempt)d at a checkpoint was aborted: %(reason)s")
    SNAPSHOT_DEFECT = (
        WARNING,
        "attempt %(attempt)d at a checkpoint failed in %(task)s by a defect: %(error)s",
    )
    BARRIERS_STAY_ALIGNED = (
        WARNING,
        "barriers overtake no records from now on, because records in flight cannot be stored: "
        "%(reason)s",
    )
    SAVEPOINT_REFUSED = (WARNING, "savepoint %(savepoint)r was refused: %(reason)s")
    CHECKPOINT_UNREADABLE = (WARNING, "checkpoint %(checkpoint)d cannot be read: %(error)s")
    DESCRIPTOR_UNREADABLE = (
        WARNING,
        "%(object)s cannot be read, nothing of older generations is deleted: %(error)s",
    )
    OBJECTS_MISSING = (
        WARNING,
        "the store has lost %(objects object)s that checkpoints refer to, %(object)s among them, "
        "so these cannot be restored: %(checkpoints)s. What the local tables have is "
        "uploaded again now. Until the log says that it was, do not end the job, or take a "
        "canonical savepoint first (`tidelog savepoint URL --format canonical`); and find out "
        "what else deletes objects under this URL.",
    )
    OBJECTS_UPLOADED_AGAIN = (
        WARNING,
        "uploaded again, as the store had lost it: %(objects object)s; %(left other)s cannot be, "
        "so older checkpoints and savepoints that name such objects stay lost",
    )
    OBJECTS_NOT_CHECKED = (
        WARNING,
        "whether the store has all that checkpoints refer to is not known, and is looked at again "
        "later: %(error)s",
    )
    CHECKPOINT_NOT_DELETED = (
        WARNING,
        "checkpoint %(checkpoint)d, which nothing needs, was not deleted: %(error)s",
    )
    OBJECTS_NOT_DELETED = (
        WARNING,
        "not deleted, though nothing needs it: %(objects object)s; the last error: %(error)s",
    )

    # Starts and restores.
    JOB_RESTORED = (
        INFO,
        "generation %(generation)d of job %(job)r runs, restored from checkpoint %(checkpoint)s",
    )
    TABLES_LOADED_FIRST = (INFO, "%(operator)s is loaded before the job begins: %(reason)s")
    TABLES_WHOLE = (INFO, "all %(bytes)d bytes of tables are here after %(seconds).1f s")
    TABLES_WAIT = (WARNING, "tables that are not whole wait for the store: %(error)s")
    TABLE_FETCHED_WHOLE = (
        WARNING,
        "a table is fetched whole before it is read on, as RocksDB tells of a hole in words that "
        "this release does not know: %(error)s",
    )
    TABLE_STALLED = (
        WARNING,
        "an operator takes no records until its table is whole: it has made as many files as may "
        "be there uncompacted; %(share)s of all tables is here%(eta)s",
    )
    READ_WAITED = (WARNING, "a read has waited %(waited_s).1f s for a part of %(object)s")
    STATE_DROPPED = (WARNING, "job %(job)r: dropped, as allowed: %(dropped)s")
    STATE_MIGRATED = (WARNING, "operator %(operator)r: %(rows stored row)s migrated")
    STATE_UNDECLARED = (
        WARNING,
        "state %(state)r of operator %(operator)r is in the checkpoint and no longer declared: its "
        "rows are kept, and found when it comes back",
    )
    IN_FLIGHT_DROPPED = (
        WARNING,
        "dropped, as the configuration says: %(buffers buffer)s of records in flight",
    )
    TRANSACTIONS_LEFT = (
        WARNING,
        "left to the job on %(store)s that wrote checkpoint %(checkpoint)d: %(transactions sink "
        "transaction)s of it; the output begins after the checkpoint. To continue that job's "
        "output, start with --keep-output",
    )
    SOURCE_FINISHED_BEFORE = (
        WARNING,
        "source %(source)r: %(finished)d of its %(subtasks subtask)s finished in an earlier run, "
        "before the rest of the job: what came there since is not read. To read its input from "
        "the start give the source another name, and allow the state of this one to be dropped "
        "(--allow-non-restored-state %(source)s).",
    )
    ENDS_FOR_GOOD = (INFO, "after the end of this job a start reads nothing more: %(reason)s")

    # Running and ending.
    SOURCE_WAITS = (INFO, "source %(source)r begins when %(tables)s is read to its end, as a table")
    TABLE_WITHOUT_END = (
        INFO,
        "the table of operator %(operator)s has no end that could be awaited: a row counts from "
        "when it is handled, and records that come before it get None",
    )
    LONG_CALL = (
        WARNING,
        "one call of %(operator)s took %(milliseconds).0f ms without a pause, and no other "
        "operator, timer or barrier had its turn. Unless the process itself was stopped, let the "
        "functions of this operator do less per call (yield results one by one, smaller lists by "
        "JobConfig.buffer_records); longest_call_s in the status shows the longest call.",
    )
    LOOP_HELD = (
        WARNING,
        "%(operator)s has stopped the whole job for %(seconds).0f s, in %(place)s: there is no "
        "checkpoint meanwhile, and no answer to `tidelog stop`. Let the function wait with a "
        "limit; if it does not return, end the process (SIGKILL loses nothing) and start it again.",
    )
    STANDSTILL = (
        WARNING,
        "%(subtask)s handled no record for %(seconds).1f s although some waited for it; the same "
        "operator is reported once a minute at most, long_standstills in the status counts all, "
        "and longest_standstill_s is the longest. It waited for what follows it (the operator "
        "after the last one that is back-pressured), for a checkpoint, a store or a sink that "
        "answers late, or for a long call or timers: see docs/guides/operations.md.",
    )
    KEYS_APART = (
        WARNING,
        "%(where)s: no record of one stream has matched one of the other so far, and none can, by "
        "the types of their keys: %(types)s. Also 1, 1.0 and '1' are different keys; let both key "
        "functions give the same type, such as key_by(lambda record: int(record.id)).",
    )
    TIMERS_NOT_FIRED = (
        WARNING,
        "%(operator)s: handleExpiredTimer registered %(timers timer)s at the end of the data, when "
        "each timer has fired once: later ones do not fire. What is to be done before the end "
        "is to be done when getCurrentWatermarkInMs() is 2**63 - 1.",
    )
    FUNCTION_WITHOUT_ANSWER = (
        WARNING,
        "%(operator)s: the function returned None in each of the first %(calls call)s; if it lacks "
        "a return, add it: what it should make of the records is lost",
    )
    TIMES_IN_SECONDS = (
        WARNING,
        "%(operator)s: an event time of %(time)d is in %(year)d, as times are milliseconds since "
        "1970; where these are seconds, multiply them by 1000",
    )
    MANY_WINDOWS = (
        WARNING,
        "windows of %(size)d ms every %(slide)d ms: a record is in %(windows window)s, and "
        "%(what)s for each; a larger slide, or windows that are emitted at their end, cost a "
        "fraction",
    )
    JOB_RESTARTS = (
        WARNING,
        "the job failed and starts again in %(seconds).0f s from its last checkpoint: %(error)s",
    )
    WORKER_FAILED = (WARNING, "worker %(worker)d ends: %(error)s")
    FURTHER_FAILURE = (WARNING, "another part of the job failed while it ended: %(error)s")
    NOT_CLOSED = (WARNING, "%(what)s: what was opened could not all be closed: %(error)s")
    ROLLBACK_FAILED = (
        WARNING,
        "a transaction in %(database)s was not rolled back, its connection is replaced: %(error)s",
    )
    STAGING_NOT_CUT = (
        WARNING,
        "records that were moved are not deleted from topic %(topic)s yet: %(error)s",
    )
    CONTROL_UNAVAILABLE = (
        WARNING,
        "`tidelog savepoint` and the page will not find this database: %(error)s",
    )
    CONTROL_SOCKET_GONE = (
        WARNING,
        "control socket %(path)s was removed and cannot be made again, so `tidelog stop` and "
        "`tidelog savepoint` do not find this job: %(error)s",
    )
    CONTROL_SOCKET_RENEWED = (
        WARNING,
        "control socket %(path)s was removed, as by a program that cleans temporary files, and is "
        "made again; TIDELOG_CONTROL_DIR names a directory that no such program cleans",
    )
    CONTROL_REFUSED = (INFO, "a request on the control socket was refused: %(error)s")
    CONTROL_CLIENT_GONE = (INFO, "a client of the control socket has closed its end: %(error)s")
    CONTROL_UNANSWERED = (
        WARNING,
        "the job ended without an answer to %(clients request)s on its control socket",
    )
    JOB_NOT_ASKED = (
        INFO,
        "no running job was asked to forget checkpoint %(checkpoint)d, its next start finds that "
        "it is gone: %(error)s",
    )
    JVM_ENDED = (
        INFO,
        "the JVM of a stopped Spark session has no %(plugin)s on its class path: it is ended, and "
        "the next session starts one",
    )
    JOB_MOVED = (INFO, "job %(job)s moves to the Spark checkpoint %(location)s")
    STATE_NOT_ENCRYPTED = (
        WARNING,
        "the state of job %(job)s was encrypted in its store, and a checkpoint of Spark is not, "
        "unless its file system encrypts it",
    )
    TTL_RESTARTS = (WARNING, "state %(state)s of %(operator)s has its whole TTL again in Spark")
    SEGMENT_SKIPPED = (INFO, "a segment is left out of the figures: %(error)s")

    def __init__(self, level: int, message: str) -> None:
        self.level = level
        self.message = message
        self.fields = frozenset(re.findall(r"%\((\w+)", message))

    def log(self, logger: Logger, /, *, exc_info: bool = False, **fields: object) -> None:
        """Log the event with the fields of its message; `exc_info`: with the traceback, too."""
        # A single mapping as argument fills the placeholders; an empty one would be no mapping.
        args = [LogFields(fields)] if fields else []
        extra = {"event": self.name.lower()}
        logger.log(self.level, self.message, *args, exc_info=exc_info, extra=extra, stacklevel=2)
