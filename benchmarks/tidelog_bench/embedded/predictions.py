"""What the formulas predict of a run.

Invariants: the rule of thumb is `tidelog overhead`'s own, over the checkpoints of the measured time
alone; the estimate is `tidelog estimate`'s, which knows the workload and the settings and nothing
of the run but how well the log compresses.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.checkpoint.manifest import encode_entry
from tidelog.checkpoint.slots import list_slots
from tidelog.cost.measured.analysis import measure
from tidelog.cost.measured.report import OperatorReport
from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.estimate import Estimate
from tidelog.cost.model.settings import Settings, StoreLink
from tidelog.cost.model.workload import Workload
from tidelog.effects import Effects
from tidelog.engines import LocalEngine, WorkerConfig
from tidelog.storage import object_names
from tidelog_bench.embedded.checkpoints import KEYED_TABLE, MB, Completed
from tidelog_bench.embedded.run import Run, RunSpec

_COUNT_BYTES: Final = len(msgspec.msgpack.encode(1))
"""Bytes of the count of a word that was seen a few times."""


async def predictions(spec: RunSpec, run: Run, found: Sequence[Completed]) -> dict[str, float]:
    """Figures of the rule of thumb and of the estimate, as far as there are formulas.

    Removes all checkpoints but these from the archive.
    """
    figures: dict[str, float] = {}
    compressed = 1.0
    if spec.changelog:
        log = run.stored_over_time(object_names.SEGMENTS)
        figures["log_stored_peak_mb"] = max(size for _, size in log) / MB
    if spec.changelog and found:
        operators = await _keyed_operators(run, found)
        compressed = compression(operators)
        figures |= _rule(operators)
    if spec.filled:
        estimate = estimated(spec, compressed)
        if estimate.checkpoint_s is not None:
            figures["estimated_checkpoint_ms"] = estimate.checkpoint_s * 1e3
        if estimate.log is not None:
            figures["estimated_log_stored_peak_mb"] = estimate.log.peak_bytes / MB
    return figures


async def _keyed_operators(run: Run, found: Sequence[Completed]) -> list[OperatorReport]:
    """What `tidelog overhead` reports of these checkpoints' operators with keyed state."""
    store = run.archive
    assert store is not None
    wanted = {checkpoint.entry.slot for checkpoint in found}
    for slot in await list_slots(store):
        if slot not in wanted:
            await store.delete(object_names.checkpoint(slot))
    # Its history names what the job retained; the archive has more.
    newest = msgspec.structs.replace(found[-1].entry, history=msgspec.UNSET)
    await store.put(object_names.checkpoint(newest.slot), encode_entry(newest))
    engine = LocalEngine(store, Effects(), WorkerConfig(store.url), jobs=1)
    report = await measure(store, engine)
    keyed = {o.id for o, state in newest.subtasks() if state.table == KEYED_TABLE}
    return [operator for operator in report.operators if operator.id in keyed]


def _rule(operators: Iterable[OperatorReport]) -> dict[str, float]:
    """The log's peak as the rules for each kind of operator predict it, and the measured one."""
    peaks = [
        peak
        for operator in operators
        if (peak := (operator.windows and operator.windows.peak) or operator.peak) is not None
    ]
    if not peaks:
        return {}
    predicted = sum(peak.predicted_bytes for peak in peaks)
    measured = sum(peak.measured_bytes for peak in peaks)
    return {
        "log_interval_peak_mb": measured / MB,
        "predicted_peak_mb": predicted / MB,
        "predicted_over_measured": predicted / measured,
    }


def compression(operators: Iterable[OperatorReport]) -> float:
    """Size of the log as stored over its size before compression, of the one that gains least."""
    sizes = [o.bytes_per_change for o in operators if o.bytes_per_change is not None]
    # Headers count as stored, so small blocks seem to grow.
    return min(1.0, max((size.stored / size.raw for size in sizes), default=1.0))


def estimated(spec: RunSpec, compressed: float = 1.0) -> Estimate:
    """The estimate of a word count at a fixed rate over a link."""
    assert spec.rate is not None and spec.link is not None
    config = spec.config(Path())
    words = spec.workload
    settings = Settings(
        parallelism=spec.parallelism,
        checkpoint_interval=spec.checkpoint_s,
        retain=config.retain,
        link=StoreLink(bytes_per_s=spec.link.mb_per_s * 1e6, latency_s=spec.link.latency_ms / 1e3),
        flush=config.flush,
        upload=config.upload,
        materialize=config.materialize,
    )
    workload = Workload(
        writes_per_s=spec.rate,
        keys=words.keys,
        key_bytes=len(msgspec.msgpack.encode("." * words.key_bytes)),
        value_bytes=_COUNT_BYTES,
        compression=compressed,
    )
    estimate = estimate_changelog if spec.changelog else estimate_incremental
    return estimate(workload, settings)
