"""Health, for orchestrators, and metrics, for Prometheus."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fastapi import Request, Response

from freshet.job.serving.bounds.forms import Nothing, Readiness
from freshet.job.serving.doors.routes.answers import HealthFigures
from freshet.job.serving.doors.routes.asking import json_answer, query
from freshet.job.serving.doors.routes.registration import Routes
from freshet.job.serving.tables.health import Health, status_of
from freshet.job.serving.tables.lookup import Lookup

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_NUMBERS = (
    "generation",
    "epoch",
    "vertices",
    "behind_s",
    "age_of_last_event_s",
    "publish_to_readable_ms",
    "tail_failures",
    "records_refused",
    "history_misses",
    "ids_found",
    "ids_missing",
    "bytes_in_flight",
    "bytes_in_flight_limit",
    "refused",
    "waiting",
)


def add(routes: Routes) -> None:
    """Add GET /healthz, GET /readyz and GET /metrics."""
    lookup, health = routes.lookup, routes.health

    @routes.get("/healthz", name="healthz", answer=HealthFigures)
    async def alive(request: Request) -> Response:
        """Report that the server is alive, and the freshness of its table."""
        query(Nothing, request)
        return json_answer(health.figures())

    @routes.get("/readyz", Readiness, name="readyz", answer=HealthFigures, others={503: HealthFigures})
    async def ready(request: Request) -> Response:
        """503 where there is no table yet, or nothing was heard of the job for too long (not with stale=ok)."""
        figures = health.figures()
        return json_answer(figures, status_of(figures, "/readyz", query(Readiness, request).stale == "ok"))

    @routes.get("/metrics", name="metrics", answer="text/plain")
    async def metrics(request: Request) -> Response:
        """Return the metrics for Prometheus."""
        query(Nothing, request)
        from prometheus_client import CONTENT_TYPE_LATEST

        text = await asyncio.to_thread(_metrics, lookup, health)  # it reads files, and may ask Flink
        return Response(text, media_type=CONTENT_TYPE_LATEST)


def _metrics(lookup: Lookup, health: Health) -> bytes:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(lookup, health))
    return generate_latest(registry)


class _Collector:
    """The figures of health as gauges, the requests, and the figures of the job."""

    def __init__(self, lookup: Lookup, health: Health) -> None:
        self._lookup, self._health = lookup, health

    def collect(self) -> list[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        from freshet.job.serving.doors.job_metrics import of_job, of_requests

        figures = self._health.in_flight() | self._health.figures()
        found: list[Metric] = [
            GaugeMetricFamily("freshet_ready", "1: there is a table, and it is fresh", float(figures["ready"]))
        ]
        for name in _NUMBERS:
            if figures.get(name) is not None:
                found.append(GaugeMetricFamily(f"freshet_{name}", name.replace("_", " "), float(figures[name])))
        if (switches := self._lookup.switches) is not None:
            found.append(CounterMetricFamily("freshet_switches", "generations of the service that followed", switches))
        offsets = GaugeMetricFamily("freshet_next_offset", "what is read up to", labels=["source", "partition"])
        for row in figures.get("positions", ()):
            offsets.add_metric([row["source"], str(row["partition"])], row["next_offset"])
        return [
            *found,
            offsets,
            *of_requests(self._lookup.budget.calls),
            *of_job(self._lookup.job.log_beside(self._lookup.folder).out),
        ]
