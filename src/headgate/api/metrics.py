"""The route for metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.api.deps import ControllerDep, new_router
from headgate.ports.capabilities import CertificateStats

router = new_router()


@router.get("/metrics")
def metrics(controller: ControllerDep) -> Response:
    """Return the controller's metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Policy(controller.info()))
    if (certified := controller.certified()) is not None:
        registry.register(_Certificates(certified))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Policy(Collector):
    """Calls of policies that hung, and whether another policy decides because of them."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its value."""
        yield CounterMetricFamily(
            "headgate_policy_hung_calls",
            "Calls of the policy that made no plan in time, and were abandoned.",
            value=self._facts["hung_calls"],
        )
        yield GaugeMetricFamily(
            "headgate_policy_stand_in",
            "1 while another policy decides in place of the one in force, which hung, else 0.",
            value=self._facts["stand_in"] is not None,
        )


class _Certificates(Collector):
    """Certificates of plans: how many were checked, and the violations found."""

    def __init__(self, certified: CertificateStats) -> None:
        self._certified = certified

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its value."""
        yield CounterMetricFamily(
            "headgate_certified_rounds",
            "Rounds whose plan was checked for optimality with its dual prices.",
            value=self._certified.rounds,
        )
        yield CounterMetricFamily(
            "headgate_certificate_violations",
            "Rounds whose plan was not optimal, and was therefore computed again.",
            value=self._certified.violations,
        )
        yield GaugeMetricFamily(
            "headgate_certificate_gap_seconds",
            "Cost of the plan checked last above the lower bound that its dual prices prove.",
            value=self._certified.last_gap / 1e6,
        )
