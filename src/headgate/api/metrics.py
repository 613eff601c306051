"""The route for metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.api.deps import ControllerDep, new_router
from headgate.planning.certificates import CertificateStats

router = new_router()


@router.get("/metrics")
def metrics(controller: ControllerDep) -> Response:
    """Return the controller's metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    if (certified := controller.certified()) is not None:
        registry.register(_Certificates(certified))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


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
