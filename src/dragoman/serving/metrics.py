"""Prometheus metrics of the server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Metrics in a registry of their own, so that two servers in one process do not share them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "dragoman_requests", "Requests by path and status code.", ["path", "status"], registry=self._registry
        )
        self.request_seconds = Histogram(
            "dragoman_request_seconds",
            "Time from the request headers to the last byte of the response.",
            ["path"],
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
            registry=self._registry,
        )
        self.requests_in_progress = Gauge(
            "dragoman_requests_under_way", "Requests in progress.", registry=self._registry
        )
        self.characters = Counter(
            "dragoman_characters", "Characters of source text received.", ["model"], registry=self._registry
        )
        self.batch_sentences = Histogram(
            "dragoman_batch_sentences",
            "Sentences per batch.",
            ["model"],
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self._registry,
        )
        self.sentences_waiting = Gauge(
            "dragoman_sentences_waiting", "Sentences in the queue.", ["model"], registry=self._registry
        )

    def record_batch(self, model: str, sentences: int) -> None:
        self.batch_sentences.labels(model).observe(sentences)

    def render(self) -> bytes:
        return generate_latest(self._registry)
