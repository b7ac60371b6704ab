"""What the server says of itself to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_STRANGERS = frozenset({401, 403, 404})
"""Whoever gets these has named what there may not be: any number of names."""


class Metrics:
    """Counts of requests, by pipeline, store and question, how long they took, and who follows.

    Args:
        followers: says how many requests follow keys and stores now.
    """

    def __init__(self, followers: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        labels = ("pipeline", "store", "question")
        self._requests = Counter(
            "deltaworks_query_requests", "Requests that were answered, by HTTP status.", (*labels, "status"),
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "deltaworks_query_duration_seconds",
            "From a request to its answer; of those that follow, to the first event.",
            labels, buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        Gauge(
            "deltaworks_query_followers", "Requests that follow keys and stores.", registry=self._registry
        ).set_function(followers)
        ProcessCollector(registry=self._registry)

    def answered(self, question: str, place: Mapping[str, Any], status: int, seconds: float) -> None:
        """Counts a request.

        Args:
            question: what was asked.
            place: `pipeline` and `store`, as the path of the request has them.
            status: of the answer, as HTTP has them.
            seconds: how long it took.
        """
        known: Mapping[str, Any] = {} if status in _STRANGERS else place
        labels = known.get("pipeline", ""), known.get("store", ""), question
        self._requests.labels(*labels, status).inc()
        self._seconds.labels(*labels).observe(seconds)

    def exposed(self, accept: str) -> tuple[bytes, str]:
        """All of it, and its content type.

        Args:
            accept: the header of this name, by which Prometheus says which format it knows.
        """
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type
