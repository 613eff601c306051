"""The pages of `headgate top`: lines of text from the views that the API returns.

What is allocated stands beside what nodes have measured. Text of users is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.base.states import node_word
from headgate.base.text import enumerated
from headgate.base.units import format_ratio, format_seconds, format_size
from headgate.cli.cluster.queues import loan_text, names_in_tree
from headgate.cli.common import tables
from headgate.cli.common.overs import over_text
from headgate.cli.common.screen import ScreenLine
from headgate.cli.jobs.jobs import job_lines
from headgate.model.queue import GPUS_KIND

if TYPE_CHECKING:
    from headgate.api.client import Client

Views = Mapping[str, Any]
"""What a page shows: `nodes`, `queues`, of some pages `running` jobs, or the keys of `links`."""

_LINK_HEADINGS = ("LINK", "CAPACITY", "LOAD", "USE", "JOBS")
_NODE_HEADINGS = ("NODE", "STATE", "GPUS", "USE", "GPU MEM", "CPUS", "USED", "MEMORY", "USED",
                  "OVER")  # fmt: skip
_NODE_LEGEND = (
    "GPUS, CPUS, MEMORY: allocated/total. USE, USED, GPU MEM: measured. OVER: of what more is used"
    " than allocated"
)
_GPU_HEADINGS = ("NODE", "GPU", "MODEL", "TASK", "SHARE", "USE", "ALLOCATED", "USED", "NOTE")
_GPU_LEGEND = "SHARE, ALLOCATED (memory): granted to runs. USE, USED (memory): measured"
_MOST_JOBS, _MOST_LINKS, _MOST_OVERS = 200, 200, 10
_MUCH = 0.1  # of a node or a GPU, that is used beyond what is allocated: less is no finding


class TopPage(NamedTuple):
    """A page: its name, what it shows beside nodes and queues, and its lines for a width.

    `lines` also takes whether a terminal shows them: names are cropped only there.
    """

    name: str
    reads: tuple[str, ...]
    lines: Callable[[Views, int, bool], list[ScreenLine]]


def read(client: Client, parts: Iterable[str]) -> dict[str, Any]:
    """Return the views that pages need: nodes, queues, and these parts."""
    found: dict[str, Any] = {"nodes": client.nodes(), "queues": client.queues()}
    if "running" in parts:
        page = client.jobs(state="running", limit=_MOST_JOBS)
        found |= {"running": page["jobs"], "more_running": page["next"] is not None}
    if "links" in parts:
        found |= client.links()
    return found


def totals(views: Views) -> str:
    """Return in one line how much of the cluster is allocated and used, and the number of jobs."""
    nodes = [node for node in views["nodes"] if node["state"] == "up"]
    gpus = [gpu for node in nodes for gpu in node["gpus"]]
    seen = [node["actual"]["cpus"] for node in nodes if node["actual"]]
    parts = (
        f"nodes {len(nodes)}/{len(views['nodes'])}",
        f"GPUs {sum(map(_is_taken, gpus))}/{len(gpus)}{_used(_mean_use(gpus))}",
        "jobs {} in flight, {} queued".format(
            *(sum(queue[key] for queue in views["queues"]) for key in ("in_flight", "queued"))
        ),
        f"CPUs {_sum_of(nodes, 'granted'):g}/{_sum_of(nodes, 'total'):g}"
        + _used(f"{sum(seen):g}" if seen else None),
    )
    return "  ".join(parts)


def _sum_of(nodes: Sequence[Views], key: str) -> float:
    return float(sum(node[key].get("cpus", 0) for node in nodes))


def _used(amount: str | None) -> str:
    return " allocated" if amount is None else f" allocated, {amount} used"


# --- nodes and jobs ------------------------------------------------------------------------------


def _nodes_page(views: Views, width: int, terminal: bool) -> list[ScreenLine]:
    rows = [_node_cells(node) for node in views["nodes"]]
    lines = _table(
        _NODE_HEADINGS, rows, width, terminal, text="OVER", alerts=[bool(row[-1]) for row in rows]
    )
    lines += [*_notes(_NODE_LEGEND, width), *_overs(views["nodes"], width), ScreenLine("")]
    gpus: dict[str, list[Views]] = {}
    for node in views["nodes"]:
        for gpu in node["gpus"]:
            gpus.setdefault(_job_of(gpu["task"]), []).append(gpu)
    measured = {
        "USE": lambda job: _mean_use(gpus.get(job["id"], ())),
        "GPU MEM": lambda job: _memory_use(gpus.get(job["id"], ())),
    }
    heading, *jobs = job_lines(views["running"], width, terminal=terminal, more=measured)
    lines += [ScreenLine(heading, "heading"), *map(ScreenLine, jobs)]
    if views["more_running"]:
        lines += _notes("and more; headgate jobs lists all", width)
    return lines


def _overs(nodes: Sequence[Views], width: int) -> Iterator[ScreenLine]:
    """Yield a line for each run that uses more than it holds, of the first ones."""
    runs = [(node["id"], run) for node in nodes for run in node["over"]]
    texts = [f"{run['task']} on {node} {over_text(run)}" for node, run in runs[:_MOST_OVERS]]
    if len(runs) > _MOST_OVERS:
        texts.append(f"and {len(runs) - _MOST_OVERS} more runs; headgate nodes -o json lists all")
    for text in texts:
        lines = tables.wrapped(text, max(width, 20)).splitlines()
        yield from (ScreenLine(line, "alert") for line in lines)


def _node_cells(node: Views) -> tuple[object, ...]:
    gpus, actual, total, granted = node["gpus"], node["actual"], node["total"], node["granted"]
    up = node["state"] == "up"
    cpus, memory = total.get("cpus"), total.get("memory_bytes")
    return (
        *(node["id"], node_word(node["state"], draining=bool(node["draining"]))),
        f"{sum(map(_is_taken, gpus))}/{len(gpus)}" if up else None,
        *(_mean_use(gpus), _memory_use(gpus)),
        f"{granted.get('cpus', 0):g}/{cpus:g}" if cpus and up else None,
        f"{actual['cpus']:g}" if actual else None,
        format_ratio(granted.get("memory_bytes") or 0, memory) if memory and up else None,
        format_size(actual["memory_bytes"]) if actual else None,
        ", ".join(_over(node)) or None,
    )


def _over(node: Views) -> Iterator[str]:
    """Yield of what a node uses much more than is allocated."""
    for key, name in (("cpus", "CPUs"), ("memory_bytes", "memory")):
        total, actual = node["total"].get(key), node["actual"]
        if actual and total and actual[key] - (node["granted"].get(key) or 0) > _MUCH * total:
            yield name
    found = [str(gpu["index"]) for gpu in node["gpus"] if _finding(gpu)]
    if found:
        yield f"{'GPU' if len(found) == 1 else 'GPUs'} {enumerated(found)}"


def _is_taken(gpu: Views) -> bool:
    return bool(gpu["granted_share"] or gpu["granted_memory_bytes"] or gpu["withheld"])


def _mean_use(gpus: Iterable[Views]) -> str | None:
    """Return the mean utilisation of those GPUs that report it."""
    found = [gpu["utilisation"] for gpu in gpus if gpu["utilisation"] is not None]
    return f"{sum(found) / len(found):.0%}" if found else None


def _memory_use(gpus: Iterable[Views]) -> str | None:
    """Return the used and the whole memory of those GPUs that report it."""
    found = [gpu for gpu in gpus if gpu["actual_memory_bytes"] is not None]
    used, whole = (sum(gpu[k] for gpu in found) for k in ("actual_memory_bytes", "memory_bytes"))
    return format_ratio(used, whole) if found else None


def _job_of(task: str | None) -> str:
    return (task or "").rpartition("/")[0]


# --- GPUs ----------------------------------------------------------------------------------------


def _gpus_page(views: Views, width: int, terminal: bool) -> list[ScreenLine]:
    rows = [_gpu_cells(node, gpu) for node in views["nodes"] for gpu in node["gpus"]]
    lines = _table(
        _GPU_HEADINGS, rows, width, terminal, text="NOTE", alerts=[bool(row[-1]) for row in rows]
    )
    return lines + _notes(_GPU_LEGEND, width)


def _gpu_cells(node: Views, gpu: Views) -> tuple[object, ...]:
    used, use = gpu["actual_memory_bytes"], gpu["utilisation"]
    return (
        *(node["id"], gpu["index"], gpu["model"] or None, gpu["task"]),
        f"{gpu['granted_share']:.0%}" if gpu["granted_share"] else None,
        None if use is None else f"{use:.0%}",
        format_ratio(gpu["granted_memory_bytes"], gpu["memory_bytes"]),
        None if used is None else format_size(used),
        "down" if node["state"] != "up" else _finding(gpu),
    )


def _finding(gpu: Views) -> str | None:
    """Return how a GPU is used otherwise than allocated."""
    used, size = gpu["actual_memory_bytes"] or 0, gpu["memory_bytes"]
    if gpu["withheld"]:
        return "used by other programs"
    if not _is_taken(gpu) and (used > _MUCH * size or (gpu["utilisation"] or 0) > _MUCH):
        return "used, not allocated"
    if used - gpu["granted_memory_bytes"] > _MUCH * size:
        return "uses more memory than allocated"
    return None


# --- queues --------------------------------------------------------------------------------------


def _queues_page(views: Views, width: int, terminal: bool) -> list[ScreenLine]:
    queues = views["queues"]
    headings = ("QUEUE", "STATE", "WEIGHT", "MAX GPUS", "IN FLIGHT", "QUEUED", "GUARANTEED", "USED",
                "BORROWED", "LENT")  # fmt: skip
    rows = [
        (name, *_queue_cells(queue))
        for name, queue in zip(names_in_tree(queues), queues, strict=True)
    ]
    lines = _table(headings, rows, width, terminal, text="LENT")
    legend = "GUARANTEED, USED, BORROWED, LENT: GPUs allocated. IN FLIGHT, QUEUED: jobs"
    return lines + _notes(legend, width)


def _queue_cells(queue: Views) -> tuple[object, ...]:
    guaranteed = queue["guaranteed"].get(GPUS_KIND)
    return (
        *(queue["state"], f"{queue['weight']:g}", queue["max_gpus"]),
        *(queue["in_flight"], queue["queued"]),
        None if guaranteed is None else f"{guaranteed:g}",
        f"{queue['held_gpus']:g}",
        loan_text(queue["borrowed_gpus"], "from"),
        loan_text(queue["lent_gpus"], "to"),
    )


# --- links ---------------------------------------------------------------------------------------


def _links_page(views: Views, width: int, terminal: bool) -> list[ScreenLine]:
    links = [{**link, "jobs": [each["job"] for each in link["jobs"]]} for link in views["links"]]
    lines = link_lines(links[:_MOST_LINKS], width, terminal)
    if (more := len(links) - _MOST_LINKS) > 0:
        lines += _notes(f"and {more} more; -o json lists all", width)
    if views["jobs"]:
        lines += [ScreenLine(""), *slowdown_lines(views, width, terminal)]
    if undeclared := views["undeclared"]:
        text = (
            f"Not included: {len(undeclared)} gangs on several nodes that declare no communication"
        )
        lines.append(ScreenLine(text, "note"))
    return lines


def link_lines(links: Sequence[Mapping[str, Any]], width: int, terminal: bool) -> list[ScreenLine]:
    """Return a table of links: load, capacity, the jobs that share each."""
    rows = [
        (
            link["link"],
            _rate(link["capacity_bytes_per_s"]),
            _rate(link["load_bytes_per_s"]),
            f"{link['use']:.0%}",
            ", ".join(link["jobs"]) or None,
        )
        for link in links
    ]
    return _table(_LINK_HEADINGS, rows, width, terminal, text="JOBS")


def _rate(bytes_per_s: float | None) -> str | None:
    return None if bytes_per_s is None else f"{format_size(bytes_per_s)}/s"


def slowdown_lines(views: Views, width: int, terminal: bool) -> list[ScreenLine]:
    """Return the table of running jobs that communicate, the most slowed first."""
    rows = [
        (
            job["job"],
            f"{job['slowdown']:.2f}x",
            format_seconds(job["step_s"]),
            format_seconds(job["best_step_s"]),
            job["diameter"],
            ", ".join(job["shared_with"]) or None,
        )
        for job in views["jobs"]
    ]
    headings = ("JOB", "SLOWDOWN", "STEP", "BEST STEP", "HOPS", "SHARES LINKS WITH")
    return _table(headings, rows, width, terminal, text="SHARES LINKS WITH")


def _table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int,
    terminal: bool,
    *,
    text: str | None = None,
    alerts: Sequence[bool] = (),
) -> list[ScreenLine]:
    """Return the lines of a table, names in its first column; `alerts`: of rows that stand out."""
    names = [name for name in (headings[0], "TASK") if terminal and name in headings]
    heading, *others = tables.lines(headings, rows, width=width, text=text, names=names)
    marks = alerts or [False] * len(others)
    lines = [ScreenLine(heading, "heading")]
    for line, mark in zip(others, marks, strict=True):
        lines.append(ScreenLine(line, "alert" if mark else ""))
    return lines


def _notes(text: str, width: int) -> list[ScreenLine]:
    return [ScreenLine(line, "note") for line in tables.wrapped(text, max(width, 20)).splitlines()]


PAGES = (
    TopPage("nodes & jobs", ("running",), _nodes_page),
    TopPage("GPUs", (), _gpus_page),
    TopPage("queues", (), _queues_page),
    TopPage("links", ("links",), _links_page),
)
"""The pages, in the order of their keys: 1, 2, ..."""

LINKS = 3
"""The number of the page of links in `PAGES`."""
