"""Two inputs of different shapes in one stream, with 1, then 3, then 2 subtasks."""

import operator
from collections import Counter
from pathlib import Path
from typing import Any

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines, TextFiles


def in_json(first: int) -> list[dict[str, Any]]:
    return [{"article": f"a{n % 11}", "pieces": n % 5} for n in range(first, first + 60)]


def in_csv(first: int) -> list[tuple[str, int]]:
    return [(f"a{n % 7}", n % 3 + 1) for n in range(first, first + 40)]


def test_sales_of_shop_and_web_are_summed_through_two_other_shapes(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    expected: Counter[str] = Counter()

    def counted(sale: tuple[str, int]) -> tuple[str, int]:
        seen["sales"] += 1
        return sale

    def of_csv(line: str) -> tuple[str, int]:
        article, pieces = line.split(";")
        return article, int(pieces)

    def job(*, follow: bool) -> Job:
        job = Job("sales")
        web = job.source(JsonLines(tmp_path / "web", follow=follow), name="web")
        shop = job.source(TextFiles(tmp_path / "shop", "*.csv", follow=follow), name="shop")
        sales = web.map(lambda row: (row.article, row.pieces)).union(shop.map(of_csv))
        sums = sales.map(counted).key_by(lambda sale: sale[0])
        sums = sums.aggregate(lambda sale: sale[1], operator.add)
        sums.sink(Files(tmp_path / "out", fields=("article", "pieces")))
        return job

    for round, parallelism in enumerate((1, 3, 2)):
        add_rows(tmp_path / "web" / f"{round % 2}.jsonl", in_json(round * 60))
        (tmp_path / "shop").mkdir(exist_ok=True)
        with (tmp_path / "shop" / f"{round}.csv").open("w") as file:
            file.writelines(f"{article};{pieces}\n" for article, pieces in in_csv(round * 40))
        for row in in_json(round * 60):
            expected[row["article"]] += row["pieces"]
        for article, pieces in in_csv(round * 40):
            expected[article] += pieces
        sales = 100 * (round + 1)
        until = None if round == 2 else lambda sales=sales: seen["sales"] >= sales
        run(job(follow=round < 2), tmp_path / "store", until, parallelism=parallelism)
    assert seen["sales"] == 300, "each was handled once"
    found = [(row["article"], row["pieces"]) for row in rows_of(tmp_path / "out")]
    assert sorted(found) == sorted(expected.items())
