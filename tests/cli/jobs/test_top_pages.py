"""The pages of `headgate top`, from fixed views of the API."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.program import cells

from headgate.cli.common.screen import ScreenLine
from headgate.cli.jobs.top_live import TopPlace, TopReading, frame, page_lines, pressed
from headgate.cli.jobs.top_pages import LINKS, PAGES, totals

GIB = 1 << 30
EVIL = "\x1b]0;X\x07\x1b[2J\r\n[bold]\u202e"
SHOWN = r"\x1b]0;X\x07\x1b[2J\x0d\x0a[bold]\u202e"


def gpu(index: int, **facts: Any) -> dict[str, Any]:
    """Return a GPU of 80 GiB that no run has, with the facts given."""
    return {
        "index": index, "memory_bytes": 80 * GIB, "model": "H100", "task": None, "withheld": False,
        "granted_share": 0.0, "granted_memory_bytes": 0, "actual_memory_bytes": 0,
        "utilisation": 0.0, **facts,
    }  # fmt: skip


def held(index: int, task: str, **facts: Any) -> dict[str, Any]:
    """Return a GPU that a run has whole."""
    granted = {"granted_share": 1.0, "granted_memory_bytes": 80 * GIB}
    return gpu(index, **{"task": task, **granted, **facts})


def node(name: str, *gpus: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """Return a node of 64 CPUs and 512 GiB, of which 8 and 64 GiB are allocated and used."""
    return {
        "id": name, "state": "up", "draining": None, "gpus": list(gpus),
        "total": {"cpus": 64.0, "memory_bytes": 512 * GIB},
        "granted": {"cpus": 8.0, "memory_bytes": 64 * GIB},
        "actual": {"cpus": 8.0, "memory_bytes": 64 * GIB}, "over": [], **facts,
    }  # fmt: skip


def queue(name: str, parent: str = "", **facts: Any) -> dict[str, Any]:
    return {
        "name": name, "parent": parent, "state": "open", "weight": 1.0, "guaranteed": {},
        "held_gpus": 0.0, "borrowed_gpus": {}, "lent_gpus": {}, "max_gpus": None, "in_flight": 0,
        "queued": 0, **facts,
    }  # fmt: skip


def job(name: str, **facts: Any) -> dict[str, Any]:
    return {
        "id": name, "user": "ann", "queue": "default", "state": "active", "message": None,
        "tasks": {"total": 2, "running": 2}, "gpus": {"held": 2.0}, "wait_s": 1.0, "run_s": 65.0,
        "brief_reason": None, **facts,
    }  # fmt: skip


def views(**facts: Any) -> dict[str, Any]:
    nodes = [node("n0", held(0, "job-1/0", utilisation=0.9), gpu(1)), node("n1", gpu(0))]
    empty: dict[str, Any] = {"links": [], "jobs": [], "undeclared": []}
    return {
        "nodes": nodes, "queues": [queue("default")], "running": [job("job-1")],
        "more_running": False, **empty, **facts,
    }  # fmt: skip


def shown(page: int, given: dict[str, Any], width: int = 100) -> list[ScreenLine]:
    return PAGES[page].lines(given, width, True)


def test_nodes_show_what_is_allocated_beside_what_is_used() -> None:
    rows = cells("\n".join(line.text for line in shown(0, views())))
    assert rows[1] == ["n0", "UP", "1/2", "45%", "0/160 GiB", "8/64", "8", "64/512 GiB", "64 GiB",
                       "-"]  # fmt: skip
    assert rows[-2] == ["JOB", "USER", "STATE", "TASKS", "GPUS", "USE", "GPU MEM", "TIME", "REASON"]
    assert rows[-1] == ["job-1", "ann", "RUNNING", "0/2", "2.0", "90%", "0/80 GiB", "1m5s", "-"]


@pytest.mark.parametrize(
    ("facts", "over"),
    [
        ({"actual": {"cpus": 60.0, "memory_bytes": 0}}, "CPUs"),
        ({"actual": {"cpus": 0.0, "memory_bytes": 400 * GIB}}, "memory"),
        ({"gpus": [gpu(0), gpu(1, utilisation=0.8)]}, "GPU 1"),
        ({"gpus": [gpu(0, withheld=True), gpu(1, actual_memory_bytes=40 * GIB)]}, "GPUs 0 and 1"),
        ({"actual": {"cpus": 9.0, "memory_bytes": 70 * GIB}}, "-"),  # of little account
        ({"actual": None, "gpus": [gpu(0, actual_memory_bytes=None, utilisation=None)]}, "-"),
    ],
)
def test_a_node_that_uses_more_than_is_allocated_stands_out(
    facts: dict[str, Any], over: str
) -> None:
    line = shown(0, views(nodes=[node("n0", **facts)]))[1]
    assert cells(line.text)[0][-1] == over
    assert (line.style == "alert") == (over != "-")


def test_runs_that_use_more_than_they_hold_stand_below_the_nodes() -> None:
    memory = {"used_bytes": 41 * GIB, "held_bytes": 32 * GIB}
    run = {"task": "job-1/0", "memory": memory, "gpu_memory": None}
    lines = shown(0, views(nodes=[node("n0", over=[run])]))
    (line,) = [each for each in lines if "job-1/0" in each.text]
    assert line.text == "job-1/0 on n0 uses 41 GiB of memory, holds 32 GiB"
    assert line.style == "alert"
    texts = [each.text for each in shown(0, views(nodes=[node("n0", over=[run] * 12)]))]
    assert sum("uses 41 GiB" in text for text in texts) == 10
    assert "and 2 more runs; headgate nodes -o json lists all" in texts


def test_gpus_show_who_has_them_and_who_else_uses_them() -> None:
    part = {"granted_share": 0.5, "granted_memory_bytes": 20 * GIB, "task": None}
    gpus = (
        held(0, "job-1/0", utilisation=0.87, actual_memory_bytes=70 * GIB),
        gpu(1, withheld=True),
        gpu(2, actual_memory_bytes=60 * GIB),
        gpu(3, actual_memory_bytes=60 * GIB, **part),
    )
    lines = shown(1, views(nodes=[node("n0", *gpus), node("n1", gpu(0), state="lost")]))
    rows = cells("\n".join(line.text for line in lines))
    assert rows[1] == ["n0", "0", "H100", "job-1/0", "100%", "87%", "80/80 GiB", "70 GiB", "-"]
    assert [row[-1] for row in rows[1:6]] == [
        *("-", "used by other programs", "used, not allocated"),
        *("uses more memory than allocated", "down"),
    ]
    assert [line.style for line in lines[1:6]] == ["", *["alert"] * 4]


def test_queues_show_guaranteed_used_borrowed_and_lent_gpus() -> None:
    queues = [
        queue("vision", guaranteed={"gpus": 8.0}, held_gpus=4.0, lent_gpus={"batch": 2.0}),
        queue("training", "vision", guaranteed={"gpus": 6.0}, held_gpus=4.0, in_flight=3),
        queue("batch", held_gpus=10.0, borrowed_gpus={"vision": 2.0}, max_gpus=12, queued=7),
    ]
    lines = shown(2, views(queues=queues))
    rows = cells("\n".join(line.text for line in lines[1:4]))
    assert rows[0] == ["vision", "open", "1", "-", "0", "0", "8", "4", "-", "2 to batch"]
    assert lines[2].text.startswith("  training ")
    assert rows[2] == ["batch", "open", "1", "12", "0", "7", "-", "10", "2 from vision", "-"]


def test_links_show_load_and_the_jobs_that_they_slow_down() -> None:
    link = {"link": "core -> r0", "capacity_bytes_per_s": 10.0, "load_bytes_per_s": 7.6,
            "use": 0.76, "jobs": [{"job": "job-1", "load_bytes_per_s": 7.6}]}  # fmt: skip
    slowed = {"job": "job-1", "slowdown": 1.31, "step_s": 2.6, "best_step_s": 2.0, "diameter": 6,
              "shared_with": ["job-2"]}  # fmt: skip
    given = views(links=[link] * 300, jobs=[slowed], undeclared=["job-9"])
    texts = [line.text for line in shown(LINKS, given)]
    assert texts[1].split() == ["core", "->", "r0", "10", "B/s", "7.6", "B/s", "76%", "job-1"]
    assert "and 100 more; -o json lists all" in texts
    assert texts[-2].split() == ["job-1", "1.31x", "2.6", "s", "2.0", "s", "6", "job-2"]
    assert texts[-1].startswith("Not included: 1 gang")


def test_names_of_users_are_text_alone() -> None:
    given = views(
        nodes=[node(f"n{EVIL}", held(0, f"j{EVIL}/0", model=EVIL))],
        running=[job(f"j{EVIL}", user=EVIL, queue=EVIL, brief_reason=EVIL)],
        queues=[queue(EVIL, borrowed_gpus={EVIL: 1.0})],
        links=[{"link": EVIL, "capacity_bytes_per_s": None, "load_bytes_per_s": 1.0, "use": 0.0,
                "jobs": [{"job": EVIL}]}],
    )  # fmt: skip
    reading = TopReading(given, "12:00:00", trouble=EVIL)
    for page in range(len(PAGES)):
        place = TopPlace(page)
        lines = page_lines(reading, place, 1000)
        texts = [line.text for line in frame(reading, place, lines, 30)]
        assert any(SHOWN in text for text in texts[2:])
        assert SHOWN in texts[1]
        assert all(text.isprintable() for text in texts)


def test_totals_count_what_is_up() -> None:
    queues = [queue("default", in_flight=3, queued=1), queue("other", in_flight=2)]
    nodes = [*views()["nodes"], node("n2", gpu(0), state="lost", actual=None)]
    assert totals(views(nodes=nodes, queues=queues)) == (
        "nodes 2/3  GPUs 1/3 allocated, 30% used  jobs 5 in flight, 1 queued"
        "  CPUs 16/128 allocated, 16 used"
    )


# --- the screen ----------------------------------------------------------------------------------


READING = TopReading(views(nodes=[node(f"n{i:02}") for i in range(50)]), "12:00:00")


def screen(place: TopPlace, rows: int, reading: TopReading = READING) -> list[str]:
    lines = page_lines(reading, place, 100)
    return [line.text for line in frame(reading, place, lines, rows)]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 10, 24, 200])
@pytest.mark.parametrize("trouble", ["", "no Headgate is running here"])
def test_every_screen_is_as_high_as_the_terminal(rows: int, trouble: str) -> None:
    reading = READING._replace(trouble=trouble)
    for page in range(len(PAGES)):
        for columns in (1, 7, 20, 80, 300):
            place = TopPlace(page)
            lines = page_lines(reading, place, columns)
            assert len(frame(reading, place, lines, rows)) == rows


def test_keys_scroll_and_the_heading_stays() -> None:
    place, lines = TopPlace(0), page_lines(READING, TopPlace(0), 100)
    for key in ("j", "down", "j", "k"):
        place = pressed(place, key, lines, 8)
    assert place.first == 2
    assert [line.split()[0] for line in screen(place, 10)[1:4]] == ["NODE", "n02", "n03"]
    assert screen(place, 10)[-1].endswith("3-10 of 56: j k PgUp PgDn, Tab next table")
    place = pressed(place, "page down", lines, 8)
    assert place.first == 9
    assert pressed(place, "page up", lines, 8).first == 2
    end = pressed(place, "G", lines, 8)
    assert screen(end, 10)[-2].startswith("job-1")
    assert pressed(end, "j", lines, 8) == end
    assert pressed(TopPlace(0), "k", lines, 8).first == 0
    assert pressed(end, "g", lines, 8) == pressed(end, "home", lines, 8) == TopPlace(0)


def test_tab_goes_to_the_next_table_and_digits_to_a_page() -> None:
    reading = TopReading(views(running=[job(f"job-{i}") for i in range(50)]), "12:00:00")
    lines = page_lines(reading, TopPlace(0), 100)
    jobs = pressed(TopPlace(0), "tab", lines, 8)
    assert screen(jobs, 10, reading)[1].startswith("JOB")
    assert pressed(jobs, "tab", lines, 8) == TopPlace(0)
    assert pressed(jobs, "3", lines, 8) == TopPlace(2)
    assert pressed(jobs, "1", lines, 8) == jobs
    assert pressed(jobs, "9", lines, 8) == pressed(jobs, "x", lines, 8) == jobs


def test_a_page_that_was_not_read_yet_says_so() -> None:
    reading = TopReading({"nodes": [], "queues": []}, "12:00:00")
    assert screen(TopPlace(LINKS), 5, reading)[1] == "reading ..."
    assert screen(TopPlace(1), 5, reading)[1].startswith("NODE")
