"""The operator of a user's `StatefulProcessor`: rows by key, timers, late records dropped."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from tidelog.runtime.blame import blame
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import (
    OUTPUT_RECORDS,
    TIMERS_PER_STEP,
    Operator,
    OperatorContext,
)
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import decode_key
from tidelog.state.processor import (
    MAX_WATERMARK,
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimeMode,
    TimerValues,
)


class Process(Operator):
    """Groups the rows of a buffer by key; fires timers as the time of its mode moves on."""

    def __init__(self, processor: StatefulProcessor, time_mode: TimeMode) -> None:
        self._processor = processor
        self._time_mode = time_mode
        self._watermark = -1
        self.late_records = 0

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._backend: KeyedBackend = context.backend
        self._handle = StatefulProcessorHandle(context.backend, self._time_mode)
        self._name = type(self._processor).__name__
        with blame(f"{self._name}.init"):
            self._processor.init(self._handle)
        self._handle.initialized()

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = self._without_late(cast(KeyedBatch, batch))
        rows_of: dict[bytes, list[Any]] = {}
        group_of: dict[bytes, bytes] = {}
        for group, key, record in zip(keyed.groups, keyed.keys, keyed.records, strict=True):
            rows = rows_of.get(key)
            if rows is None:
                rows_of[key] = [record]
                group_of[key] = group
            else:
                rows.append(record)
        times = self._times()
        outputs: list[Any] = []
        backend, handle = self._backend, self._processor.handleInputRows
        with blame(f"{self._name}.handleInputRows"):
            for key, rows in rows_of.items():
                backend.key, backend.key_prefix = key, group_of[key]
                outputs.extend(handle(_as_tuple(decode_key(key)), iter(rows), times) or ())
        return (Batch(outputs),) if outputs else ()

    def watermark(self, time: int) -> Iterable[Batch]:
        self._watermark = max(self._watermark, time)
        self._handle.watermark_ms = self._watermark
        return self._fire(self._watermark) if self._time_mode == "event" else ()

    def tick(self, now_ms: int) -> Iterable[Batch]:
        return self._fire(now_ms) if self._time_mode == "processing" else ()

    def close(self) -> None:
        self._processor.close()

    def _fire(self, limit_ms: int) -> Iterator[Batch]:
        timers = self._handle.timers
        assert timers is not None
        outputs: list[Any] = []
        fired = 0
        at_the_end = limit_ms == MAX_WATERMARK
        for time, key in timers.drained() if at_the_end else timers.expired(limit_ms):
            self._backend.use_encoded_key(key)
            with blame(f"{self._name}.handleExpiredTimer"):
                outputs.extend(self._expire(time, key))
            timers.delete(time)
            fired += 1
            if len(outputs) >= OUTPUT_RECORDS or fired == TIMERS_PER_STEP:
                yield Batch(outputs)
                outputs, fired = [], 0
        if outputs:
            yield Batch(outputs)

    def _expire(self, time: int, key: bytes) -> Iterable[Any]:
        user_key = _as_tuple(decode_key(key))
        call = self._processor.handleExpiredTimer
        return call(user_key, self._times(), ExpiredTimerInfo(time)) or ()

    def _times(self) -> TimerValues:
        return TimerValues(self._context.clock.now_ms(), self._watermark)

    def _without_late(self, batch: KeyedBatch) -> KeyedBatch:
        if self._time_mode != "event" or batch.times is None or self._watermark < 0:
            return batch
        kept = [at for at, time in enumerate(batch.times) if time > self._watermark]
        if len(kept) == len(batch.records):
            return batch
        self.late_records += len(batch.records) - len(kept)
        return KeyedBatch(
            [batch.records[at] for at in kept],
            [batch.times[at] for at in kept],
            [batch.keys[at] for at in kept],
            [batch.groups[at] for at in kept],
        )


def _as_tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
