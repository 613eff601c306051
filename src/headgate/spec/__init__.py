"""Files and requests of users, checked: validated values, or every problem with its place."""

from headgate.spec.cluster import Links
from headgate.spec.expand import expand, resources_key
from headgate.spec.job_file import JobFile, job_schema, load_job
from headgate.spec.scenario import Scenario, load_scenario
from headgate.spec.warnings import warnings_for

__all__ = [
    "JobFile",
    "Links",
    "Scenario",
    "expand",
    "job_schema",
    "load_job",
    "load_scenario",
    "resources_key",
    "warnings_for",
]
