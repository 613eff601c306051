"""The route for metrics, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.api.deps import ControllerDep
from headgate.planning.certified import Certified

router = APIRouter()


@router.get("/metrics")
def metrics(controller: ControllerDep) -> Response:
    """Tell what is measured of the controller, in Prometheus' text format."""
    registry = CollectorRegistry()
    if (certified := controller.certified()) is not None:
        registry.register(_Certificates(certified))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Certificates(Collector):
    """The proofs of plans: how many were checked, what was found."""

    def __init__(self, certified: Certified) -> None:
        self._certified = certified

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its value."""
        yield CounterMetricFamily(
            "headgate_certified_rounds",
            "Rounds whose plan was checked against the prices that prove it optimal.",
            value=self._certified.rounds,
        )
        yield CounterMetricFamily(
            "headgate_certificate_violations",
            "Rounds whose plan was not optimal, and was therefore made anew.",
            value=self._certified.violations,
        )
        yield GaugeMetricFamily(
            "headgate_certificate_gap_seconds",
            "What the plan checked last costs above the bound that its prices prove.",
            value=self._certified.last_gap / 1e6,
        )
