"""What a Prometheus server is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headgate.planning.certificates import CertificateStats


def told(socket: Path) -> dict[str, float]:
    """Read all metrics as Prometheus does."""
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket))) as client:
        answer = client.get("http://headgate/api/v1/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_what_was_proven_of_plans_is_counted(socket: Path, controller: Any) -> None:
    controller.proven = CertificateStats(rounds=12, violations=1, last_gap=2_500_000)
    assert told(socket) == {
        "headgate_certified_rounds_total": 12.0,
        "headgate_certificate_violations_total": 1.0,
        "headgate_certificate_gap_seconds": 2.5,
    }


def test_a_policy_that_proves_nothing_has_nothing_to_tell(socket: Path, controller: Any) -> None:
    controller.proven = None
    assert told(socket) == {}
