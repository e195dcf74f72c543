"""The JSON of `estimate` and `plan`: docs/cli-json.md.

Invariant: times are seconds, sizes bytes, amounts in the currency beside them; rates are a day's.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any

from tidelog.cli.estimate_description import Described
from tidelog.cli.prices import book_fields
from tidelog.estimate.bill import Bill
from tidelog.estimate.estimate import Estimate
from tidelog.estimate.usage import DAY_S, MONTH_S


def described_fields(described: Described, day: date, warnings: Sequence[str]) -> dict[str, Any]:
    """What was asked: the job, and the prices it is priced with."""
    settings, link = described.settings, described.settings.link
    return {
        "workload": described.workload,
        "settings": {
            "parallelism": settings.parallelism,
            "processes": settings.processes,
            "checkpoint_interval_s": settings.checkpoint_interval,
            "retain": settings.retain,
            "restores_per_month": settings.restores_per_month,
            "bandwidth_bytes_per_s": link.bytes_per_s,
            "latency_s": link.latency_s,
            "egress": described.egress,
        },
        "price_books": [book_fields(book, day) for book in described.books],
        "warnings": warnings,
    }


def estimate_fields(estimate: Estimate) -> dict[str, Any]:
    """One strategy without its bills."""
    usage = estimate.usage
    return {
        "strategy": estimate.strategy,
        "cycle_s": estimate.cycle_s,
        "checkpoint_s": estimate.checkpoint_s,
        "restore_s": estimate.restore_s,
        "replay_counted": estimate.replay_counted,
        "materialize_s": estimate.materialize_s,
        "trigger": estimate.trigger,
        "objects_per_day": usage.objects_per_s * DAY_S,
        "puts_per_day": usage.puts_per_s * DAY_S,
        "lists_per_day": usage.reads.lists * DAY_S,
        "gets_per_day": usage.reads.gets * DAY_S,
        "deletes_per_day": usage.deletes_per_s * DAY_S,
        "uploaded_bytes_per_day": usage.uploaded_per_s * DAY_S,
        "read_bytes_per_month": usage.reads.bytes * MONTH_S,
        "stored_bytes": usage.stored_bytes,
        "stored_objects": usage.stored_objects,
        "log": estimate.log,
        "objects": [
            {
                "kind": flow.kind,
                "per_day": flow.per_s * DAY_S,
                "bytes": flow.bytes,
                "life_s": flow.life_s,
                "stored_bytes": flow.stored_bytes,
            }
            for flow in usage.flows
        ],
        "warnings": estimate.warnings,
    }


def bill_fields(bill: Bill) -> dict[str, Any]:
    """A month's bill."""
    return {
        "provider": bill.provider,
        "currency": bill.currency,
        "total": bill.total,
        "storage": bill.storage,
        "put": bill.put,
        "list": bill.list,
        "get": bill.get,
        "delete": bill.delete,
        "transfer": bill.transfer,
    }
