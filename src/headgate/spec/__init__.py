"""Files and requests of users, checked: validated values, or every problem with its place."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.spec.cluster import Links
    from headgate.spec.expansion import expand, resources_key
    from headgate.spec.job_file import JobFile, job_schema, load_job
    from headgate.spec.scenario import Scenario, load_scenario
    from headgate.spec.topology import load_topology, topology_schema
    from headgate.spec.warnings import warnings_for

__all__ = [
    "JobFile",
    "Links",
    "Scenario",
    "expand",
    "job_schema",
    "load_job",
    "load_scenario",
    "load_topology",
    "resources_key",
    "topology_schema",
    "warnings_for",
]

_MODULES = {
    "Links": "cluster",
    "expand": "expansion",
    "resources_key": "expansion",
    "Scenario": "scenario",
    "load_scenario": "scenario",
    "load_topology": "topology",
    "topology_schema": "topology",
    "warnings_for": "warnings",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use: a client that reads YAML needs no scenarios."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'job_file')}"), name)
