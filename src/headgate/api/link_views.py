"""The route for contention between jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headgate.api.deps import ControllerDep, Pools, new_router
from headgate.api.responses import EscapedJSON
from headgate.base.units import finite
from headgate.planning.links.report import LinkReport, link_report

router = new_router()


@router.get("/links")
async def links(controller: ControllerDep, pools: Pools) -> EscapedJSON:
    """List running jobs that communicate, and the links they use, by their expected slowdown."""
    return EscapedJSON(
        report_view(await pools.run(pools.explanations, link_report, controller.snapshot()))
    )


def report_view(report: LinkReport) -> dict[str, Any]:
    """Return a report as plain values; `use` is load / capacity, which is null if infinite."""
    return {
        "jobs": [asdict(job) for job in report.jobs],
        "links": [
            {
                "link": link.link,
                "capacity_bytes_per_s": finite(link.capacity_bytes_per_s),
                "load_bytes_per_s": link.load_bytes_per_s,
                "use": link.load_bytes_per_s / link.capacity_bytes_per_s,
                "jobs": [{"job": job, "load_bytes_per_s": load} for job, load in link.jobs],
            }
            for link in report.links
        ],
        "undeclared": list(report.undeclared),
    }
