"""The text of reasons: the cause with its numbers, and the way out."""

from __future__ import annotations

import pytest

from headgate.protocol import Reason
from headgate.protocol.after_moves import AfterMoves
from headgate.protocol.reasons import (
    GPU_MEMORY,
    GPU_SHARE,
    BackfillTooLong,
    Fragmented,
    GangShort,
    GangSpread,
    GpuMemory,
    NoFittingNode,
    NoFreeGpu,
    ReservedAt,
    Shortage,
)

GIB = 1 << 30
AT_14_05 = 1_785_593_100.0  # 2026-08-01 14:05:00 UTC


@pytest.mark.parametrize(
    ("resource", "needed", "most_free", "amounts"),
    [
        ("memory", 64 * GIB, 12 * GIB, "memory: 64 GiB needed, at most 12 GiB free on a node"),
        ("memory", 3 * GIB, 1 << 20, "memory: 3 GiB needed, at most 0.0 GiB free on a node"),
        (
            "memory",
            64 * GIB,
            64 * GIB - 1,
            f"memory: {64 * GIB} B needed, at most {64 * GIB - 1} B free on a node",
        ),
        ("memory", 5, 3, "memory: 5 B needed, at most 3 B free on a node"),
        ("cpus", 4000, 500, "CPUs: 4 needed, at most 0.5 free on a node"),
        ("fpga", 250, 0, "fpga: 0.25 needed, at most 0 free on a node"),
        ("fpga", 2_000_000_000, 1_234_567, "fpga: 2000000 needed, at most 1234.567 free"),
        (GPU_SHARE, 500, 300, "share of a GPU: 0.5 needed, at most 0.3 free on a GPU"),
        (GPU_MEMORY, 10 * GIB, 2 * GIB, "GPU memory: 10 GiB needed, at most 2 GiB free on a GPU"),
    ],
)
def test_shortage_gives_what_is_free_and_what_is_needed_in_one_unit(
    resource: str, needed: int, most_free: int, amounts: str
) -> None:
    reason = Shortage(resource=resource, needed=needed, most_free=most_free)
    assert str(reason).startswith(f"Shortage({amounts}")
    assert str(reason).endswith("; starts when running tasks end)")


SHORT = GangShort(placeable_tasks=3, tasks=4, free_gpus=14, needed_gpus=16)


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (SHORT, "14 of 16 needed GPUs are free; starts when all its tasks fit together"),
        (
            GangShort(
                placeable_tasks=3, tasks=4, free_gpus=16, needed_gpus=16, lacking="memory"
            ),
            ("16 GPUs free, but 3 of 4 tasks fit now, the others lack memory; starts when all "
            "its tasks fit together"),
        ),
        (
            GangShort(placeable_tasks=3, tasks=4, free_gpus=0, needed_gpus=0),
            "3 of 4 tasks fit now; starts when all its tasks fit together",
        ),
        (
            GangShort(
                placeable_tasks=14, tasks=16, free_gpus=16, needed_gpus=16,
                after_moves=AfterMoves(tasks=("a/0", "b/3"), lost_s=40.0),
            ),
            ("16 GPUs free, but 14 of 16 tasks fit now, 16 after moving 2 tasks, 40 s; starts "
            "when all its tasks fit together"),
        ),
        (
            Fragmented(
                free_gpus=33, most_on_one_node=3, needed_gpus=2, tasks=16, placeable_tasks=14,
                after_moves=AfterMoves(tasks=("a/0",), lost_s=40.0, on=False),
            ),
            ("33 free GPUs, at most 3 on one node, 14 of 16 tasks with 2 GPUs fit now, 16 after "
            "moving 1 task, 40 s, were moves on; starts when enough are free together"),
        ),
        (
            GangSpread(tasks=4, gpus=16),
            ("its 4 tasks fit 16 free GPUs, but these are no closed set of least diameter; "
            "starts when one is idle"),
        ),
        (
            GangSpread(tasks=1, gpus=1),
            ("its task fits a free GPU, but that is no closed set of least diameter; "
            "starts when one is idle"),
        ),
        (
            Fragmented(free_gpus=8, most_on_one_node=3, needed_gpus=4),
            ("8 free GPUs, at most 3 on one node, 4 needed there; starts when enough are free "
            "together"),
        ),
        (
            Fragmented(
                free_gpus=8, most_on_one_node=5, needed_gpus=4, tasks=2, placeable_tasks=1,
                distinct_nodes=True,
            ),
            ("8 free GPUs, at most 5 on one node, 1 of 2 tasks with 4 GPUs fit now, each on "
            "another node; starts when enough are free together"),
        ),
        (
            BackfillTooLong(needs_s=7200, hole_s=2400, ahead="sort-1"),
            ("needs 2 h, GPUs are free for 40 min; starts after sort-1, for which they are "
            "reserved"),
        ),
        (
            BackfillTooLong(needs_s=None, hole_s=2400, ahead="sort-1"),
            ("run time unknown, GPUs are free for 40 min; starts after sort-1, for which they are "
            "reserved"),
        ),
        (
            NoFreeGpu(free_gpus=1, needed_gpus=2, total_gpus=4, memory_bytes=40 * GIB),
            "1 of 4 GPUs with 40 GiB free, 2 needed; starts when running tasks end",
        ),
    ],
)  # fmt: skip
def test_reason_is_a_sentence_with_its_numbers(reason: Reason, sentence: str) -> None:
    assert reason.detail() == sentence
    assert str(reason) == f"{reason.code}({sentence})"


@pytest.mark.parametrize(
    ("reserved", "text"),
    [
        (ReservedAt(at=AT_14_05, ahead_s=3600.0), "reserved for 14:05 UTC"),
        (ReservedAt(at=AT_14_05, ahead_s=60.0), "reserved for 14:05:00 UTC"),
        (ReservedAt(at=AT_14_05, ahead_s=86400.0), "reserved for 2026-08-01 at 14:05 UTC"),
        (ReservedAt(at=1e12, ahead_s=1e12), "reserved for a time in 11574074 d 1 h"),
        (
            ReservedAt(at=AT_14_05, ahead_s=3600.0, after=("sort-1", "kmeans-2")),
            "reserved for 14:05 UTC when runs of sort-1 and kmeans-2 have ended",
        ),
        (
            ReservedAt(at=AT_14_05, ahead_s=3600.0, after=("a", "b", "c"), others=1),
            "reserved for 14:05 UTC when runs of a, b, c and another job have ended",
        ),
        (
            ReservedAt(at=None, ahead_s=None, after=("sort-1",), others=2),
            "GPUs are reserved, it starts when runs of sort-1 and 2 other jobs have ended",
        ),
        (
            ReservedAt(at=AT_14_05, ahead_s=3600.0, superseded="above-share"),
            "reserved for 14:05 UTC; an earlier one gave way: its user has more than a fair share",
        ),
        (
            ReservedAt(at=AT_14_05, ahead_s=3600.0, superseded="hardened"),
            (
                "reserved for 14:05 UTC; an earlier one gave way: places are kept for a job that "
                "has waited for too long"
            ),
        ),
        (
            ReservedAt(at=AT_14_05, ahead_s=3600.0, after=("sort-1",), announced=False),
            "expected for 14:05 UTC when runs of sort-1 have ended, not announced yet",
        ),
        (
            ReservedAt(at=None, ahead_s=None),
            "GPUs are reserved, it starts at a time that is unknown",
        ),
    ],
)
def test_reservation_is_the_way_out(reserved: ReservedAt, text: str) -> None:
    reasons: list[Reason] = [
        GangShort(placeable_tasks=3, tasks=4, free_gpus=14, needed_gpus=16, reserved=reserved),
        NoFittingNode(need="2 GPUs", reserved=reserved),
        GpuMemory(needed_bytes=2, largest_free_bytes=1, reserved=reserved),
    ]
    for reason in reasons:
        assert reason.detail() == f"{reason.cause()}; {text}"
