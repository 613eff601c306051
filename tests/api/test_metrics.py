"""Metrics in Prometheus' text format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headgate.ports.capabilities import CertificateStats

NO_HANGS = {"headgate_policy_hung_calls_total": 0.0, "headgate_policy_stand_in": 0.0}


def metrics(socket: Path) -> dict[str, float]:
    """Return all metrics, parsed as by Prometheus."""
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket))) as client:
        response = client.get("http://headgate/api/v1/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(response.text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_checked_certificates_are_counted(socket: Path, controller: Any) -> None:
    controller.proven = CertificateStats(rounds=12, violations=1, last_gap=2_500_000)
    assert metrics(socket) == NO_HANGS | {
        "headgate_certified_rounds_total": 12.0,
        "headgate_certificate_violations_total": 1.0,
        "headgate_certificate_gap_seconds": 2.5,
    }


def test_a_policy_without_certificates_has_no_metrics_of_them(
    socket: Path, controller: Any
) -> None:
    controller.proven = None
    assert metrics(socket) == NO_HANGS


def test_calls_of_a_policy_that_hung_are_counted(socket: Path, controller: Any) -> None:
    controller.hung_calls, controller.stand_in = 3, "fifo"
    found = metrics(socket)
    assert found["headgate_policy_hung_calls_total"] == 3.0
    assert found["headgate_policy_stand_in"] == 1.0
