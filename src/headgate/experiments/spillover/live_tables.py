"""Tables in the shape of TPC-DS's `store` and `store_sales`, and two queries over them.

The columns are those of the public schema; the values are drawn here: keys uniformly, a few of them
null, prices from a list price and discounts. Prices are whole cents, so that sums are exact. Every
file of `store_sales` is drawn from a stream of its own, so it does not depend on the others.

The queries take one file each, as a task does, and return small numbers, which `merged` adds up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

ROW_BYTES = 96
"""Bytes of a row of `store_sales` in memory: 22 columns of 4 bytes, and the ticket number."""

_KEYS = {
    "ss_sold_date_sk": 1823,  # days of five years
    "ss_sold_time_sk": 86_400,
    "ss_item_sk": 18_000,
    "ss_customer_sk": 100_000,
    "ss_cdemo_sk": 1_920_800,
    "ss_hdemo_sk": 7200,
    "ss_addr_sk": 50_000,
    "ss_promo_sk": 300,
}
_FIRST_DAY = 2_450_816  # a Julian day, as TPC-DS counts them
_NULLS = 0.02  # part of the sales without a store
_ROWS_OF_A_TICKET = 12
_STATES = ("TN", "GA", "OH", "TX", "SD", "MI")
_SCANNED_DAYS = (_FIRST_DAY + 365, _FIRST_DAY + 3 * 365)
_MOST_QUANTITY = 60

Groups = dict[str, tuple[int, ...]]
"""The result of a query: sums by group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The files of a database; `rows` are of `store_sales`, in all its files together."""

    store: Path
    sales: tuple[Path, ...]
    rows: int


def generate(directory: Path, *, megabytes: float, files: int = 24, seed: int = 1) -> Tables:
    """Write a database of so many MB (10^6 bytes in memory); the same for the same seed."""
    rows = max(files, round(megabytes * 1e6 / ROW_BYTES))
    stores = max(6, round(12 * (rows / 2.88e6) ** 0.5))
    store = directory / "store.parquet"
    pq.write_table(_stores(stores, np.random.default_rng([seed, 0])), store)
    sales = []
    first = 0
    for number in range(files):
        end = rows * (number + 1) // files
        rng = np.random.default_rng([seed, 1, number])
        sales.append(directory / f"store_sales-{number:04}.parquet")
        pq.write_table(_sales(first, end, stores, rng), sales[-1])
        first = end
    return Tables(store=store, sales=tuple(sales), rows=rows)


def _stores(count: int, rng: np.random.Generator) -> pa.Table:
    number = np.arange(1, count + 1)
    states = np.array(_STATES)[(number - 1) % len(_STATES)]
    return pa.table(
        {
            "s_store_sk": pa.array(number, pa.int32()),
            "s_store_id": [f"AAAAAAAA{n:08d}" for n in number],
            "s_store_name": [f"store {n}" for n in number],
            "s_number_employees": pa.array(rng.integers(200, 301, count), pa.int32()),
            "s_floor_space": pa.array(rng.integers(5_000_000, 10_000_000, count), pa.int32()),
            "s_hours": np.array(("8AM-4PM", "8AM-8AM", "8AM-12AM"))[rng.integers(0, 3, count)],
            "s_market_id": pa.array(rng.integers(1, 11, count), pa.int32()),
            "s_city": [f"city {n}" for n in rng.integers(1, 60, count)],
            "s_county": [
                f"{state} county {n}" for state, n in zip(states, number % 5, strict=True)
            ],
            "s_state": states,
            "s_country": ["United States"] * count,
            "s_gmt_offset": pa.array(rng.integers(-8, -4, count), pa.int32()),
            "s_tax_percentage": pa.array(rng.integers(0, 12, count), pa.int32()),
        }
    )


def _sales(first: int, end: int, stores: int, rng: np.random.Generator) -> pa.Table:
    count = end - first
    columns: dict[str, pa.Array] = {}
    for name, kinds in _KEYS.items():
        start = _FIRST_DAY if name == "ss_sold_date_sk" else 1
        columns[name] = pa.array(rng.integers(start, start + kinds, count), pa.int32())
    store = rng.integers(1, stores + 1, count)
    columns["ss_store_sk"] = pa.array(store, pa.int32(), mask=rng.random(count) < _NULLS)
    ticket = np.arange(first, end) // _ROWS_OF_A_TICKET + 1
    columns["ss_ticket_number"] = pa.array(ticket, pa.int64())
    quantity = rng.integers(1, 101, count)
    columns["ss_quantity"] = pa.array(quantity, pa.int32())
    for name, values in _prices(quantity, rng).items():
        columns[name] = pa.array(values, pa.int32())
    return pa.table(columns)


def _prices(quantity: NDArray[np.int64], rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
    """Return the twelve prices of sales, in cents."""
    count = len(quantity)
    wholesale = rng.integers(100, 10_001, count)
    listed = wholesale * rng.integers(100, 301, count) // 100
    sales = listed * rng.integers(0, 101, count) // 100
    paid_full = sales * quantity
    coupon = np.where(rng.random(count) < 0.2, paid_full * rng.integers(0, 101, count) // 100, 0)
    paid = paid_full - coupon
    tax = paid * rng.integers(0, 10, count) // 100
    return {
        "ss_wholesale_cost": wholesale,
        "ss_list_price": listed,
        "ss_sales_price": sales,
        "ss_ext_discount_amt": (listed - sales) * quantity,
        "ss_ext_sales_price": paid_full,
        "ss_ext_wholesale_cost": wholesale * quantity,
        "ss_ext_list_price": listed * quantity,
        "ss_ext_tax": tax,
        "ss_coupon_amt": coupon,
        "ss_net_paid": paid,
        "ss_net_paid_inc_tax": paid + tax,
        "ss_net_profit": paid - wholesale * quantity,
    }


# --- queries, each over some files ---------------------------------------------------------------


def scan(sales: Path) -> Groups:
    """Return, for the sales of two years of at most 60 pieces: rows, pieces, revenue, profit."""
    names = ["ss_sold_date_sk", "ss_quantity", "ss_ext_sales_price", "ss_net_profit"]
    found = pq.read_table(sales, columns=names, use_threads=False)
    day, quantity = found["ss_sold_date_sk"], found["ss_quantity"]
    first, end = _SCANNED_DAYS
    chosen = pc.and_(pc.greater_equal(day, first), pc.less(day, end))
    kept = found.filter(pc.and_(chosen, pc.less_equal(quantity, _MOST_QUANTITY)))
    return {"all": (kept.num_rows, *(pc.sum(kept[name]).as_py() or 0 for name in names[1:]))}


def join(paths: tuple[Path, Path]) -> Groups:
    """Return, for the files of sales and of stores, by state: rows, pieces and profit."""
    sales, store = paths
    names = ["ss_store_sk", "ss_quantity", "ss_net_profit"]
    left = pq.read_table(sales, columns=names, use_threads=False)
    right = pq.read_table(store, columns=["s_store_sk", "s_state"], use_threads=False)
    joined = left.join(right, "ss_store_sk", "s_store_sk", join_type="inner", use_threads=False)
    sums = [("ss_quantity", "count"), ("ss_quantity", "sum"), ("ss_net_profit", "sum")]
    groups = joined.group_by("s_state", use_threads=False).aggregate(sums).to_pylist()
    return {
        row["s_state"]: (
            row["ss_quantity_count"], row["ss_quantity_sum"], row["ss_net_profit_sum"],
        )
        for row in groups
    }  # fmt: skip


def merged(parts: Iterable[Groups]) -> Groups:
    """Return the sums over the results of files."""
    found: Groups = {}
    for part in parts:
        for group, values in part.items():
            before = found.get(group, (0,) * len(values))
            found[group] = tuple(a + b for a, b in zip(before, values, strict=True))
    return found


# --- the answers, without the queries ------------------------------------------------------------


def answers(tables: Tables) -> dict[str, Groups]:
    """Return the results of both queries, from numpy arrays of all files in this process."""
    return {"scan": _scanned(tables.sales), "join": _joined(tables)}


def _scanned(paths: Sequence[Path]) -> Groups:
    day = _column(paths, "ss_sold_date_sk")
    quantity = _column(paths, "ss_quantity")
    first, end = _SCANNED_DAYS
    kept = (day >= first) & (day < end) & (quantity <= _MOST_QUANTITY)
    names = ("ss_quantity", "ss_ext_sales_price", "ss_net_profit")
    sums = (int(_column(paths, name)[kept].sum()) for name in names)
    return {"all": (int(kept.sum()), *sums)}


def _joined(tables: Tables) -> Groups:
    stores = pq.read_table(tables.store, columns=["s_store_sk", "s_state"]).to_pylist()
    store = _column(tables.sales, "ss_store_sk")
    quantity = _column(tables.sales, "ss_quantity")
    profit = _column(tables.sales, "ss_net_profit")
    counted: dict[str, Counter[int]] = {}
    for row in stores:
        kept = store == row["s_store_sk"]
        sums = (int(kept.sum()), int(quantity[kept].sum()), int(profit[kept].sum()))
        counted.setdefault(row["s_state"], Counter()).update(dict(enumerate(sums)))
    return {state: (sums[0], sums[1], sums[2]) for state, sums in counted.items() if sums[0]}


def _column(paths: Sequence[Path], name: str) -> NDArray[np.int64]:
    """Return a column of all files; nulls are 0, which is no key."""
    chunks = (pq.read_table(path, columns=[name])[name] for path in paths)
    arrays = [pc.fill_null(chunk, 0).to_numpy().astype(np.int64) for chunk in chunks]
    whole: NDArray[np.int64] = np.concatenate(arrays)
    return whole
