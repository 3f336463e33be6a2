"""The events of a synthesis, in the same log format as those of a run."""

from dataclasses import dataclass, field

from dragoman.events import Event


@dataclass(frozen=True, kw_only=True)
class SynthesisStarted(Event):
    """`synthesize` started, or resumed, to translate."""

    run: str
    """Name of the folder."""
    version: str
    """Dragoman's version."""
    model: str
    languages: str
    """Direction of the model, such as `en-de`."""
    device: str
    """`cpu` or `cuda`."""
    lines: int
    """Lines of the texts."""
    done_lines: int
    """Lines that earlier sessions translated."""
    hosts: list[str]
    price_per_hour: list[float] = field(default_factory=list)
    """Price of each host, or one for all."""
    currency: str = "USD"


@dataclass(frozen=True, kw_only=True)
class ShardTranslated(Event):
    """A worker translated a shard, and its result was stored."""

    number: int
    lines: int
    host: str
    """Name of the worker: its host, with a number if the host has several."""
    translating_s: float
    """Time in which the worker searched its translations and scored them, without waiting."""
    tokenizing_s: float
    """Time in which the worker encoded its text and decoded its translations, perhaps while it searched others."""
    reading_s: float
    """Time until the shard was read from the text."""


@dataclass(frozen=True, kw_only=True)
class TranslatorChanged(Event):
    """A worker of a synthesis became ready, was lost, or was left out."""

    host: str
    state: str
    """`ready`, `lost` or `left out`."""
    detail: str
    """Its engine and processor, or the reason."""


@dataclass(frozen=True, kw_only=True)
class SynthesisEnded(Event):
    """All lines were translated and the corpus was written, or the synthesis was interrupted."""

    reason: str
    """`finished` or `interrupted`."""
    read_lines: int = 0
    translated_pairs: int = 0
    kept_pairs: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Pairs that each rule dropped."""
    writing_s: float = 0.0
    """Time in which the corpus was filtered and written."""
