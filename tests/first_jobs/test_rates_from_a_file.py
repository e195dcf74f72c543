"""Orders at the rates of a file: every subtask has heard the rates in the file's order."""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines

SUBTASKS = 3
RATES = [{"currency": f"c{n % 4}", "value": n} for n in range(40)]
ORDERS = [{"user": f"u{n % 9}", "currency": f"c{n % 5}", "amount": n} for n in range(200)]


def test_orders_get_the_last_rate_of_the_file(tmp_path: Path) -> None:
    heard: Counter[int] = Counter()
    last = {rate["currency"]: rate["value"] for rate in RATES}

    def on_rate(rate: Any, known: Any) -> None:
        heard[rate.value] += 1
        known[rate.currency] = rate.value
        known["order"] = [*known.get("order", []), rate.value]

    def on_order(order: Any, known: Any) -> Any:
        if order.currency in known:
            in_order = known["order"] == [rate["value"] for rate in RATES]
            yield order.user, order.amount, order.amount * known[order.currency], in_order

    def job(*, follow: bool) -> Job:
        job = Job("orders")
        rates = job.source(
            JsonLines(tmp_path / "rates", follow=follow), name="rates", parallelism=1
        )
        orders = job.source(JsonLines(tmp_path / "orders", follow=follow), name="orders")
        paid = orders.key_by(lambda order: order.user).with_broadcast(
            rates, on_rule=on_rate, on_record=on_order
        )
        paid.sink(Files(tmp_path / "out", fields=("user", "amount", "paid", "in_order")))
        return job

    # The rates first: nothing else says which of two sources comes before the other.
    (tmp_path / "orders").mkdir()
    add_rows(tmp_path / "rates" / "rates.jsonl", RATES)
    all_heard = {rate["value"]: SUBTASKS for rate in RATES}
    run(job(follow=True), tmp_path / "store", lambda: heard == all_heard, parallelism=SUBTASKS)
    for number in range(4):
        add_rows(tmp_path / "orders" / f"{number}.jsonl", ORDERS[number::4])
    run(job(follow=False), tmp_path / "store", parallelism=SUBTASKS)
    assert heard == all_heard, "a restart tells no rate again"
    found = sorted(tuple(row.values()) for row in rows_of(tmp_path / "out"))
    assert found == sorted(
        (order["user"], order["amount"], order["amount"] * last[order["currency"]], True)
        for order in ORDERS
        if order["currency"] in last
    )
