"""What the server has done, for Prometheus to collect."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts of their own, not the process's, so that two servers in one process do not mix theirs."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "dragoman_requests", "Requests by place and answer.", ["path", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "dragoman_request_seconds",
            "From the request's head to the answer's last byte.",
            ["path"],
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
            registry=self._registry,
        )
        self.under_way = Gauge("dragoman_requests_under_way", "Requests not yet answered.", registry=self._registry)
        self.characters = Counter(
            "dragoman_characters", "Characters given to translate.", ["model"], registry=self._registry
        )
        self.batches = Histogram(
            "dragoman_batch_sentences",
            "Sentences translated together.",
            ["model"],
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self._registry,
        )
        self.waiting = Gauge(
            "dragoman_sentences_waiting", "Sentences whose turn has not come.", ["model"], registry=self._registry
        )

    def note_batch(self, model: str, sentences: int) -> None:
        self.batches.labels(model).observe(sentences)

    def render(self) -> bytes:
        return generate_latest(self._registry)
