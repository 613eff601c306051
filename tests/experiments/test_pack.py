"""`headgate pack`: rules of arrival and reading, files that are rejected, output and report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.experiments.program import run

from headgate.experiments.packing import report
from headgate.experiments.packing.reading import read
from headgate.experiments.packing.runs import POLICIES, PackingRun, pack
from headgate.experiments.packing.workload import Nodes, Workload
from headgate.planning.packing import PodDemand

GIB = 1 << 30
PODS: dict[str, list[Any]] = {
    "cpus": [4.0, 2.5, 8.0, 1.0],
    "mem_gb": [8.0, 5.46875, 16.0, 1.0],
    "num_gpu": [1, 1, 0, 2],
    "gpu_milli": [1000, 250, 0, 1000],
    "gpu_type": [None, "T4|V100", None, "V100"],
}
NODES: dict[str, list[Any]] = {
    "cpus": [64.0, 32.0, 32.0],
    "mem_gb": [256.0, 128.0, 64.0],
    "gpus": [0, 4, 2],
    "gpu_type": [None, "V100", "T4"],
}


pytestmark = pytest.mark.usefixtures("elsewhere")


def write(name: str, columns: dict[str, list[Any]], **changed: list[Any]) -> Path:
    pq.write_table(pa.table({**columns, **changed}), name)
    return Path(name)


def files(**changed: list[Any]) -> list[str]:
    return ["--pods", str(write("pods", PODS, **changed)), "--nodes", str(write("nodes", NODES))]


def workload(demands: list[PodDemand], pods: list[int], *gpus: int, cpus: int = 64) -> Workload:
    count = len(gpus)
    return Workload(
        demands=demands,
        pods=pods,
        nodes=Nodes(
            cpu_milli=[1000 * cpus] * count,
            memory_bytes=[GIB] * count,
            gpus=gpus,
            model=[0] * count,
            models=["a"],
        ),
    )


# --- rules ----------------------------------------------------------------------------------------

MIXED = workload(
    [PodDemand(gpus=1, milli=1000), PodDemand(gpus=1, milli=300), PodDemand(cpu_milli=1000)],
    [0] * 20 + [1] * 30 + [2] * 10,
    *(8, 4, 8, 10),
)


def test_recorded_pods_arrive_first_then_draws_until_130_percent() -> None:
    arrivals = MIXED.arrivals(seed=4)
    recorded, drawn = arrivals[:60], arrivals[60:]
    assert Counter(recorded) == Counter(MIXED.pods)
    assert recorded != list(MIXED.pods)
    assert set(drawn) <= {0, 1, 2}
    arrived = sum(MIXED.demands[n].gpu_milli for n in arrivals)
    assert 1.3 * 30_000 - 1000 < arrived <= 1.3 * 30_000


def test_order_of_arrival_depends_on_the_seed_alone() -> None:
    assert MIXED.arrivals(1) == MIXED.arrivals(1) != MIXED.arrivals(2)
    assert (MIXED.room(1).gpus == MIXED.room(1).gpus).all()


def test_pod_that_fits_nowhere_counts_as_arrived_and_is_dropped() -> None:
    # Two whole GPUs on each of two nodes; a pod of three never fits, and is half of the load.
    found = pack(
        workload(
            [PodDemand(gpus=3, milli=1000), PodDemand(gpus=1, milli=1000)], [0, 1, 1, 1], 2, 2, 2
        ),
        PackingRun("best-fit", 0),
    )
    assert found.gpu_allocated_ratio == pytest.approx(3 / 6)


def test_pods_never_leave_and_figures_are_read_at_a_load_of_one() -> None:
    whole = workload([PodDemand(gpus=1, milli=1000)], [0] * 10, 10)
    found = pack(whole, PackingRun("headgate", 0))
    assert found.gpu_allocated_ratio == 1.0
    assert found.fragmentation_ratio == 0.0
    allocated = dict(found.curve)
    assert (allocated[0.0], allocated[0.1], allocated[0.55]) == (0.0, 0.1, 0.5)
    assert (allocated[1.0], allocated[1.3]) == (1.0, 1.0)


def test_fragments_are_read_relative_to_all_gpus() -> None:
    # 600 of each of ten GPUs: of 1,000 thousandths 400 are left that no pod of the mix can use.
    found = pack(workload([PodDemand(gpus=1, milli=600)], [0] * 20, 10), PackingRun("fgd", 0))
    assert (found.gpu_allocated_ratio, found.fragmentation_ratio) == (0.6, pytest.approx(0.4))


@pytest.mark.parametrize("policy", POLICIES)
def test_policy_never_allocates_more_than_arrived_nor_than_there_is(policy: str) -> None:
    found = pack(MIXED, PackingRun(policy, 3))
    assert found == pack(MIXED, PackingRun(policy, 3))
    allocated = [value for _, value in found.curve]
    assert allocated == sorted(allocated)
    assert all(value <= min(arrived, 1.0) for arrived, value in found.curve)
    assert 0.8 < found.gpu_allocated_ratio <= 1.0


def test_headgate_depends_on_no_pod_that_has_not_arrived() -> None:
    """Later pods differ, the curve until then does not."""

    def until_half(other: PodDemand) -> list[tuple[float, float]]:
        demands = [PodDemand(gpus=1, milli=700), PodDemand(gpus=1, milli=300), other]
        later = _Fixed(
            demands=demands,
            pods=[0, 1, 2],
            nodes=MIXED.nodes,
            order=tuple([0, 1] * 15 + [2] * 15),
        )
        return [point for point in pack(later, PackingRun("headgate", 0)).curve if point[0] <= 0.5]

    assert until_half(PodDemand(gpus=1, milli=1000)) == until_half(PodDemand(gpus=8, milli=1000))


class _Fixed(Workload):
    """Pods in a given order."""

    def __init__(self, order: tuple[int, ...], **of: Any) -> None:
        super().__init__(**of)
        object.__setattr__(self, "_order", order)

    def arrivals(self, seed: int) -> list[int]:
        del seed
        return [*self.__dict__["_order"]]


# --- files ----------------------------------------------------------------------------------------


def test_nodes_without_gpus_are_left_out_and_models_are_read() -> None:
    found = read(write("pods", PODS), write("nodes", NODES))
    assert (list(found.nodes.gpus), found.nodes.models) == ([4, 2], ["T4", "V100"])
    assert list(found.nodes.model) == [1, 0]
    asked = [(d.cpu_milli, d.gpus, d.milli, d.models) for d in found.demands]
    assert asked == [
        (4000, 1, 1000, None),
        (2500, 1, 250, frozenset({0, 1})),
        (8000, 0, 0, None),
        (1000, 2, 1000, frozenset({1})),
    ]
    assert found.demands[1].memory_bytes == 5.46875 * GIB


def test_equal_pods_are_one_demand() -> None:
    same: dict[str, list[Any]] = {
        "cpus": [1, 1], "mem_gb": [2, 2], "num_gpu": [1, 1], "gpu_milli": [500, 500],
        "gpu_type": [None, None],
    }  # fmt: skip
    found = read(write("pods", same), write("nodes", NODES))
    assert (len(found.demands), list(found.pods)) == (1, [0, 0])


BAD: dict[str, tuple[dict[str, list[Any]], str]] = {
    "null": ({"cpus": [1.0, None, 1.0, 1.0]}, "pods:cpus[1]: is null"),
    "negative": ({"mem_gb": [1.0, 1.0, -2.0, 1.0]}, "pods:mem_gb[2]: is negative (-2)"),
    "nan": ({"cpus": [float("nan"), 1, 1, 1]}, "pods:cpus[0]: is not a number (NaN)"),
    "infinite": ({"cpus": [float("inf"), 1, 1, 1]}, "pods:cpus[0]: is infinite"),
    "above": ({"gpu_milli": [1000, 1001, 0, 1000]}, "pods:gpu_milli[1]: is 1001, more than 1000"),
    "broken": ({"num_gpu": [1, 1.5, 0, 2]}, "pods:num_gpu[1]: is 1.5, not a whole number"),
    "bare": ({"gpu_milli": [1000, 0, 0, 1000]}, "pods:gpu_milli[1]: is 0, of a pod with GPUs"),
    "text": ({"cpus": ["1", "2", "3", "4"]}, "pods:cpus: is string, not a number"),
    "model": ({"gpu_type": [1.5, 2.5, 3.5, 4.5]}, "pods:gpu_type: is double, not text"),
    "none": ({"num_gpu": [0] * 4}, "pods:num_gpu: no pod needs a GPU"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_rejected_with_their_place(name: str) -> None:
    changed, message = BAD[name]
    code, _, err = run("pack", *files(**changed))
    assert (code, message in err) == (2, True), err


def test_problems_of_both_files_are_reported_together() -> None:
    pods = write("pods", {name: PODS[name] for name in ("cpus", "mem_gb", "num_gpu")})
    nodes = write("nodes", NODES, gpus=[0, -4, 2])
    code, _, err = run("pack", "--pods", str(pods), "--nodes", str(nodes), "-o", "json")
    found = [(p["path"], p["problem"]) for p in json.loads(err)["problems"]]
    assert (code, found) == (
        2,
        [
            ("pods:gpu_milli", "column missing"),
            ("pods:gpu_type", "column missing"),
            ("nodes:gpus[1]", "is negative (-4)"),
        ],
    )


def test_nodes_without_any_gpu_are_rejected() -> None:
    pods, nodes = write("pods", PODS), write("nodes", NODES, gpus=[0, 0, 0])
    code, _, err = run("pack", "--pods", str(pods), "--nodes", str(nodes))
    assert (code, "nodes:gpus: no node has a GPU" in err) == (2, True)


def test_file_that_is_missing_or_not_parquet_is_reported() -> None:
    nodes = str(write("nodes", NODES))
    assert "absent: no such file" in run("pack", "--pods", "absent", "--nodes", nodes)[2]
    Path("text").write_text("pods")
    assert "text: not readable as Parquet" in run("pack", "--pods", "text", "--nodes", nodes)[2]
    code, _, err = run("pack", "--nodes", nodes)
    assert (code, "--pods: is missing" in err) == (2, True)


def test_unknown_policy_is_rejected_with_the_nearest_name() -> None:
    code, _, err = run("pack", *files(), "--policy", "best-fits")
    assert code == 2
    assert "--policy: there is no policy 'best-fits' for packing" in err
    assert "did you mean 'best-fit'?" in err


# --- output ---------------------------------------------------------------------------------------


def test_pack_prints_ratios_and_the_curve() -> None:
    code, out, err = run("pack", *files(), "--policy", "fgd", "--seed", "7", "-o", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [*found] == [
        "policy", "seed", "gpu_allocated_ratio", "fragmentation_ratio", "curve",
    ]  # fmt: skip
    assert (found["policy"], found["seed"]) == ("fgd", 7)
    assert 0 < found["gpu_allocated_ratio"] <= 1
    assert found["curve"][0] == [0.0, 0.0]
    assert dict(map(tuple, found["curve"]))[1.0] == found["gpu_allocated_ratio"]
    assert "GPUs allocated: " in run("pack", *files(), "--policy", "fgd", "--seed", "7")[1]


@pytest.mark.parametrize("of_these", [True, False])
def test_published_figures_stand_beside_those_of_the_published_pods_only(
    of_these: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = files()
    if of_these:
        digest = read(Path("pods"), Path("nodes")).digest
        monkeypatch.setattr(report, "PUBLISHED_DIGEST", digest)
    code, out, err = run(
        "reproduce", "packing", *where, "--seeds", "2", "--policies", "best-fit,headgate",
        "--workers", "1", "-o", "json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [(r["policy"], r["seeds"]) for r in found["rows"]] == [("best-fit", 2), ("headgate", 2)]
    expected = 0.9286 if of_these else None
    assert [r["published_allocated_ratio"] for r in found["rows"]] == [expected, None]
    page = Path(found["report"]).read_text()
    assert page.count("<polyline") == 2
    assert ("92.86%" in page) is of_these, "in the table"
    assert ("best-fit, published" in page) is of_these, "as a bar"
    assert (">published</" in page) is of_these, "in head and legend"
    rows = Path("packing-report/rows.csv").read_text().splitlines()
    assert len(rows) == 1 + 4


def test_digest_of_pods_and_nodes_depends_on_all_of_them_but_not_on_their_order() -> None:
    def digest(change: Callable[[list[Any]], list[Any]], nodes: dict[str, list[Any]]) -> str:
        of = {name: change(values) for name, values in PODS.items()}
        return read(write("pods", of), write("nodes", nodes)).digest

    same = digest(lambda values: values, NODES)
    assert digest(lambda values: values[::-1], NODES) == same
    assert digest(lambda values: values[:-1], NODES) != same
    assert digest(lambda values: values, {**NODES, "gpu_type": [None, "V100", "V100"]}) != same


def test_report_rejects_bad_options_together() -> None:
    code, _, err = run("reproduce", "packing", *files(), "--seeds", "0", "--workers", "0")
    assert code == 2
    assert "--seeds: must be 1 or more, not 0" in err
    assert "--workers: must be 1 or more, not 0" in err
