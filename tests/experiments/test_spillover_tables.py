"""Generated sales: the same for a seed, whole, and with keys of stores that exist."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate.experiments.spillover import live_tables
from headgate.experiments.spillover.live_tables import Tables

FIRST, END = 2_450_816 + 365, 2_450_816 + 3 * 365
ROWS = 3000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    megabytes = ROWS * live_tables.ROW_BYTES / 1e6
    return live_tables.generate(
        tmp_path_factory.mktemp("sales"), megabytes=megabytes, files=4, seed=7
    )


def _rows(tables: Tables) -> list[dict[str, int]]:
    return [row for path in tables.sales for row in pq.read_table(path).to_pylist()]


def test_same_seed_generates_the_same_files_and_another_seed_others(
    tmp_path: Path, tables: Tables
) -> None:
    made = {}
    for seed in (7, 8):
        (tmp_path / str(seed)).mkdir()
        made[seed] = live_tables.generate(tmp_path / str(seed), megabytes=0.288, files=4, seed=seed)
    assert made[7].rows == tables.rows
    for kind in (7, 8):
        same = [
            pq.read_table(a).equals(pq.read_table(b))
            for a, b in zip(tables.sales, made[kind].sales, strict=True)
        ]
        assert same == [kind == 7] * 4


def test_size_decides_the_number_of_rows(tables: Tables) -> None:
    assert tables.rows == ROWS
    assert [pq.read_metadata(path).num_rows for path in tables.sales] == [750] * 4
    read = pq.read_table(tables.sales[0])
    assert sum(field.type.bit_width // 8 for field in read.schema) == live_tables.ROW_BYTES


def test_sales_name_stores_that_exist_or_none(tables: Tables) -> None:
    stores = set(pq.read_table(tables.store)["s_store_sk"].to_pylist())
    named = [row["ss_store_sk"] for row in _rows(tables)]
    assert {key for key in named if key is not None} == stores
    assert 0 < named.count(None) < ROWS // 20


def test_prices_of_a_sale_are_consistent(tables: Tables) -> None:
    for row in _rows(tables):
        assert row["ss_ext_sales_price"] == row["ss_sales_price"] * row["ss_quantity"]
        assert row["ss_net_paid"] == row["ss_ext_sales_price"] - row["ss_coupon_amt"]
        assert row["ss_net_profit"] == row["ss_net_paid"] - row["ss_ext_wholesale_cost"]
        assert row["ss_net_paid_inc_tax"] == row["ss_net_paid"] + row["ss_ext_tax"]
        assert row["ss_list_price"] >= row["ss_sales_price"] >= 0


def test_queries_by_file_add_up_to_the_sums_over_all_rows(tables: Tables) -> None:
    rows = _rows(tables)
    kept = [r for r in rows if FIRST <= r["ss_sold_date_sk"] < END and r["ss_quantity"] <= 60]
    sums = (
        sum(row[name] for row in kept)
        for name in ("ss_quantity", "ss_ext_sales_price", "ss_net_profit")
    )
    scanned = {"all": (len(kept), *sums)}
    states = {r["s_store_sk"]: r["s_state"] for r in pq.read_table(tables.store).to_pylist()}
    joined: dict[str, tuple[int, ...]] = {}
    for row in rows:
        if row["ss_store_sk"] is not None:
            state = states[row["ss_store_sk"]]
            count, pieces, profit = joined.get(state, (0, 0, 0))
            joined[state] = (count + 1, pieces + row["ss_quantity"], profit + row["ss_net_profit"])

    assert len(kept) > 0
    assert len(joined) > 1
    assert live_tables.answers(tables) == {"scan": scanned, "join": joined}
    assert live_tables.merged(map(live_tables.scan, tables.sales)) == scanned
    pairs = [(path, tables.store) for path in tables.sales]
    assert live_tables.merged(map(live_tables.join, pairs)) == joined
