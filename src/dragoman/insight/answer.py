"""Form of every statement about a run: an answer with its evidence, its confidence and a remedy."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Confidence = Literal["measured", "likely", "unknown"]


@dataclass(frozen=True)
class Answer:
    """The answer to one question about a run. A warning always has a remedy."""

    key: str
    """Identifies the question, for scripts."""
    question: str
    text: str
    evidence: list[str] = field(default_factory=list)
    confidence: Confidence = "measured"
    remedy: str = ""
    is_warning: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def unknown(key: str, question: str, reason: str) -> Answer:
    """The answer where the measurements are missing."""
    return Answer(key, question, f"Not known: {reason}.", confidence="unknown")
