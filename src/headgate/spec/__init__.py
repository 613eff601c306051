"""Files and requests of users, checked: validated values, or every problem with its place."""

from headgate.spec.cluster import Links
from headgate.spec.doubts import doubts
from headgate.spec.expand import expand
from headgate.spec.job_file import JobFile, job_schema, load_job
from headgate.spec.scenario import Scenario, load_scenario

__all__ = [
    "JobFile",
    "Links",
    "Scenario",
    "doubts",
    "expand",
    "job_schema",
    "load_job",
    "load_scenario",
]
