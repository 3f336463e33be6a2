"""The form of everything that insight says: a verdict, its evidence, how sure it is, and what to do."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Sureness = Literal["measured", "likely", "not known"]


@dataclass(frozen=True)
class Answer:
    """One question, answered. Where `alarm` is set, something should be done, and `remedy` says what."""

    key: str
    question: str
    verdict: str
    evidence: list[str] = field(default_factory=list)
    sure: Sureness = "measured"
    remedy: str = ""
    alarm: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def not_known(key: str, question: str, why: str) -> Answer:
    return Answer(key, question, f"Not known: {why}.", sure="not known")
