"""The vocabulary of a run. Everything shown anywhere (terminal, TensorBoard, report) is read from these events.

A span carries its unit (`_s`, `_tokens`), an instant ends in `at_s` (seconds since 1970), and sums travel with counts.
"""

import json
import math
import re
import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a run, on one worker."""

    at_s: float = field(default_factory=time.time)
    """When it happened, in seconds since 1970."""
    worker: int = 0
    """The worker that recorded it: its number in the whole run, which it keeps when the world changes."""


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """A process group began to train: once at the start and once for every resume."""

    run: str
    """Name of the run's folder."""
    version: str
    """Dragoman's version."""
    torch_version: str
    world_size: int
    """Number of workers."""
    workers: list[str] = field(default_factory=list)
    """All of them, by rank, with their hosts."""
    device: str
    host: str
    parameters: int
    precision: str
    """Arithmetic of the matrix products: `fp32` or `bf16`."""
    data_hash: str
    """Hash that identifies the data set."""
    resumed_step: int
    """The step of the checkpoint it went on from; 0 at a fresh start."""
    total_steps: int
    flops_per_source_token: int = 0
    """Arithmetic of one source token, forwards and backwards; attention between tokens is not counted."""
    flops_per_target_token: int = 0
    """The same of one target token."""
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class DataOpened(Event):
    """What the run is trained on, before and after cleaning."""

    name: str
    languages: str
    """Direction, as in `en-de`."""
    pairs_before: int
    bytes_before: int
    pairs: int
    """After cleaning and weighting, as trained on."""
    text_bytes: int
    source_tokens: int
    target_tokens: int
    valid_pairs: int
    vocabulary: int


@dataclass(frozen=True, kw_only=True)
class PeakMeasured(Event):
    """How fast this rank's device multiplies matrices, which no training can exceed."""

    flops_per_s: float


@dataclass(frozen=True, kw_only=True)
class HostSampled(Event):
    """What a machine did over the last seconds."""

    host: str
    span_s: float
    """How long the span was that sums and means are over."""
    cpu_use: float
    """Mean use of all cores together, from 0 to 1."""
    memory_used_bytes: int
    memory_bytes: int
    disk_read_bytes: int
    disk_written_bytes: int
    interfaces: list[dict[str, Any]]
    """Network ports: name, bytes received and sent, nominal bits a second."""
    gpus: list[dict[str, Any]]
    """GPUs: index, name, use, memory, power, temperature, clock, and why clocks were lowered."""


@dataclass(frozen=True, kw_only=True)
class StepDone(Event):
    """One update of the weights from one global batch."""

    step: int
    epoch: int
    batch: int
    """Position of the batch in its epoch."""
    loss: float
    """Training loss per target token, with label smoothing, over the global batch."""
    nll: float
    """The same without label smoothing."""
    gradient_norm: float
    """Global norm before clipping."""
    learning_rate: float
    source_tokens: int
    target_tokens: int
    """Tokens of the global batch, with end-of-sentence marks."""
    pairs: int
    step_s: float
    """Wall time of the step, waiting for its batch included; evaluations and checkpoints are apart."""
    data_s: float = 0.0
    """How long this rank waited for its share of the batch."""
    compute_s: float = 0.0
    """How long this rank computed."""
    compile_s: float = 0.0
    """How long torch compiled on this rank since its last step."""
    communication_s: float = 0.0
    """How long this rank waited for the exchange: for the network, and for slower workers."""
    straggler_s: float = 0.0
    """The part of that in which slower workers were not ready yet."""
    optimizer_s: float = 0.0
    """How long the gradient's norm and the change of the weights took."""
    ready_s: list[float] = field(default_factory=list)
    """How long each worker took from the last exchange until it was ready for this one, by rank of the world."""
    sent_bytes: int = 0
    """What this rank has put on the wire since its last step."""
    worker_gradient_norm_sq: float = 0.0
    """Mean square norm of the workers' own gradients, each of its share alone, weighted by shares; measured in some
    steps, else 0. By how much it exceeds the square of `gradient_norm` tells how noisy a gradient is."""
    share: float = 1.0
    """This rank's part of the batch's target tokens."""
    micro_batches: int
    """Pieces into which this rank cut its share."""


@dataclass(frozen=True, kw_only=True)
class WorldChanged(Event):
    """Workers left or came, and the others go on with the same batches."""

    step: int
    workers: list[str]
    """All that are there now, by rank, with their hosts."""


@dataclass(frozen=True, kw_only=True)
class WorkersLost(Event):
    """Workers are gone: an exchange failed, or they no longer ask for their place."""

    step: int
    """The last step that was done."""
    workers: list[str]
    """Those that are known to be gone, with their hosts and what they did last."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class CollectiveStalled(Event):
    """This worker has been waiting for others for long, though they are alive."""

    step: int
    workers: list[str]
    """For whom, with their hosts and what they did last."""


@dataclass(frozen=True, kw_only=True)
class ExchangeChosen(Event):
    """Gradients are exchanged in another way from here on."""

    step: int
    method: str
    """`plain`, `bf16`, `powersgd` or `local`."""
    every: int
    """Steps between meetings."""
    wire_format: str
    """How weights travel when workers meet."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class SharesChanged(Event):
    """The workers' shares of the batch followed their speeds."""

    step: int
    shares: list[float]
    """By rank."""


@dataclass(frozen=True, kw_only=True)
class EvaluationDone(Event):
    """The validation set was scored."""

    step: int
    loss: float
    """Per target token, with label smoothing."""
    nll: float
    """Per target token, without."""
    perplexity: float
    bleu: float | None
    bleu_signature: str | None
    chrf: float | None
    chrf_signature: str | None
    target_tokens: int
    evaluation_s: float
    samples: list[dict[str, str]]
    """A few sentences: source, reference, translation."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved(Event):
    """A checkpoint is whole and on disk."""

    step: int
    name: str
    size_bytes: int
    files: dict[str, int] = field(default_factory=dict)
    """Its files, and the bytes of each."""
    stall_s: float
    """How long training stood still for the snapshot."""
    write_s: float
    """How long the write took in the background."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFailed(Event):
    """A checkpoint could not be written; training went on and older ones were kept."""

    step: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class CheckpointRejected(Event):
    """A damaged checkpoint was found at a resume and passed over."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CheckpointsAveraged(Event):
    """The weights of several checkpoints were averaged at the end, and the result was judged."""

    step: int
    names: list[str]
    nll: float
    bleu: float | None
    chrf: float | None
    averaging_s: float = 0.0
    """How long both took."""


@dataclass(frozen=True, kw_only=True)
class MicroBatchesSplit(Event):
    """A share did not fit into memory and was cut into more pieces."""

    step: int
    micro_batches: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class StepSkipped(Event):
    """A loss or gradient was not finite: the weights were left as they were."""

    step: int
    loss: float
    gradient_norm: float
    consecutive: int


@dataclass(frozen=True, kw_only=True)
class RolledBack(Event):
    """Too many steps in a row were skipped: the run went back to a good checkpoint with a lower rate."""

    from_step: int
    to_step: int
    learning_rate_factor: float


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """Training stopped, and why."""

    step: int
    reason: str
    """`finished`, `patience`, `interrupted` or `diverged`."""
    elapsed_s: float


def event_name(kind: type[Event]) -> str:
    """The name of an event in the log: `StepDone` is written as `step_done`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


KINDS: dict[str, type[Event]] = {event_name(kind): kind for kind in Event.__subclasses__()}
_FIELDS = {kind: {item.name: item.type for item in fields(kind)} for kind in KINDS.values()}
"""Names and types, found once: a long run has many events."""


def own_fields(kind: type[Event]) -> list[str]:
    """The fields of an event, without those that all share."""
    shared = {item.name for item in fields(Event)}
    return [item.name for item in fields(kind) if item.name not in shared]


def to_json(event: Event) -> str:
    """One line of JSON. Values that are not finite become strings, because JSON has no word for them."""
    content = {"event": event_name(type(event)), **asdict(event)}
    for key, value in content.items():
        if isinstance(value, float) and not math.isfinite(value):
            content[key] = str(value)
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def from_json(line: str | bytes) -> Event | None:
    """The event of a line; None for what this version does not know (another version's event, or damage)."""
    try:
        content = json.loads(line)
        kind = KINDS[content.pop("event")]
        known = _FIELDS[kind]
        values = {key: value for key, value in content.items() if key in known}
        for key, value in values.items():
            if isinstance(value, str) and known[key] in (float, float | None):
                values[key] = float(value)
        return kind(**values)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
