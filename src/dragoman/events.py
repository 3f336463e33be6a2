"""The events of a run. Everything shown anywhere (terminal, TensorBoard, report) is read from them.

Names carry their unit (`_s`, `_tokens`); a point in time ends in `at_s` (seconds since 1970).
"""

import time
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a run, on one worker."""

    at_s: float = field(default_factory=time.time)
    """Time in seconds since 1970."""
    worker: int = 0
    """The worker that recorded it: its number in the whole run, which it keeps when the world changes."""


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """A worker started to train: at the start of the run and after every resume."""

    run: str
    """Name of the run folder."""
    version: str
    """Dragoman's version."""
    torch_version: str
    world_size: int
    """Number of workers."""
    workers: list[str] = field(default_factory=list)
    """All workers by rank, with their hosts."""
    device: str
    host: str
    parameters: int
    precision: str
    """Precision of matrix products: `fp32` or `bf16`."""
    data_hash: str
    """Hash that identifies the data set."""
    resumed_step: int
    """Step of the checkpoint that the run resumed from; 0 for a new run."""
    session_at_s: float = 0.0
    """When the first workers of this session started. Later workers join the same session; 0 in older logs."""
    total_steps: int
    flops_per_source_token: int = 0
    """Floating-point operations of one source token, forward and backward, without attention between tokens."""
    flops_per_target_token: int = 0
    """The same for one target token."""
    attention_flops_per_token: float = 0.0
    """FLOPs of attention between tokens: those of the training set divided by all its tokens; 0 in older logs."""
    settings: dict[str, Any]
    start: dict[str, str] | None = None
    """The model that the run began with: its folder, format, languages and a checksum; None for random weights."""


@dataclass(frozen=True, kw_only=True)
class DataOpened(Event):
    """The data set of the run, before and after cleaning."""

    name: str
    languages: str
    """Language direction, such as `en-de`."""
    pairs_before: int
    bytes_before: int
    pairs: int
    """Training pairs, after cleaning and weighting."""
    text_bytes: int
    source_tokens: int
    target_tokens: int
    valid_pairs: int
    vocabulary: int


@dataclass(frozen=True, kw_only=True)
class PeakMeasured(Event):
    """The peak speed of this worker's device at large matrix products, an upper bound for training."""

    flops_per_s: float
    """Of the fastest of several rounds of products, on a warm device."""
    spread: float = 0.0
    """Relative difference between the fastest rounds; 0 in older logs."""
    device: str = ""
    """Name of the device; empty in older logs, whose devices may have been cold."""
    precision: str = ""
    """Precision of the products: `bf16`, `tf32` or `fp32`."""


@dataclass(frozen=True, kw_only=True)
class HostSampled(Event):
    """Hardware use of a machine over the last seconds."""

    host: str
    span_s: float
    """Length of the sampled period."""
    samples: int = 1
    """Number of such events that this one stands for. In the long past, only one of several is kept."""
    cpu_use: float
    """Mean use of all cores, from 0 to 1."""
    io_wait: float = 0.0
    """Part of the cores' time in which they were idle, waiting for a disk; 0 in older logs."""
    memory_used_bytes: int
    memory_bytes: int
    disk_read_bytes: int
    disk_written_bytes: int
    interfaces: list[dict[str, Any]]
    """Network interfaces: name, bytes received and sent, nominal bits per second."""
    gpus: list[dict[str, Any]]
    """GPUs: index, name, use, memory, power, temperature, clocks, reasons for lowered clocks, other processes."""


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
    """Tokens of the global batch, including end-of-sentence tokens."""
    pairs: int
    step_s: float
    """Wall time of the step, including the wait for its batch, without evaluations and checkpoints."""
    data_s: float = 0.0
    """Wait for the batch. On a GPU, only while it was idle."""
    compute_s: float = 0.0
    """Forward and backward passes."""
    compile_s: float = 0.0
    """Passes that were compiled or captured as a CUDA graph. Older logs count them in the other parts, too."""
    communication_s: float = 0.0
    """Wait for the gradient exchange with all workers ready: the network's part."""
    straggler_s: float = 0.0
    """Wait for the gradient exchange while a slower worker was not ready yet."""
    optimizer_s: float = 0.0
    """Gradient norm, clipping and optimizer step."""
    host_s: float = 0.0
    """Host-bound: a GPU was idle between steps because Python was late; 0 on a CPU."""
    overlapped_s: float = 0.0
    """Communication that ran beside the other parts, and cost no time of its own."""
    ready_s: list[float] = field(default_factory=list)
    """Time each worker took from the last exchange until it was ready for this one, by rank."""
    sent_bytes: int = 0
    """Bytes sent since the last step."""
    worker_gradient_norm_sq: float = 0.0
    """Mean squared norm of the workers' own gradients, weighted by their shares; measured in some steps, else 0. Its
    excess over the square of `gradient_norm` measures the gradient noise."""
    share: float = 1.0
    """This worker's fraction of the batch's target tokens."""
    micro_batches: int
    """Micro-batches of this worker."""


@dataclass(frozen=True, kw_only=True)
class StepsSummed(Event):
    """Successive steps of the long past, in place of their `StepDone` events. `at_s`, `step` and `learning_rate` are
    those of the last step; the fields from `loss` on are sums."""

    first_step: int
    steps: int
    """Number of steps: those from the first to the last that are known here."""
    step: int
    learning_rate: float
    highest_learning_rate: float
    highest_learning_rate_step: int
    loss: float
    nll: float
    gradient_norm: float
    source_tokens: int
    target_tokens: int
    pairs: int
    step_s: float
    data_s: float
    compute_s: float
    compile_s: float
    communication_s: float
    straggler_s: float
    optimizer_s: float
    host_s: float
    sent_bytes: int
    overlapped_s: float = 0.0
    step_s_counts: dict[str, int]  # By wall time with three significant digits.


@dataclass(frozen=True, kw_only=True)
class WorldChanged(Event):
    """Workers joined or left, and training continues with the same batches."""

    step: int
    workers: list[str]
    """All present workers by rank, with their hosts."""


@dataclass(frozen=True, kw_only=True)
class WorkersLost(Event):
    """Workers were lost: a collective failed, or they are no longer in the quorum."""

    step: int
    """The last completed step."""
    workers: list[str]
    """The lost workers, with their hosts and last activity."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class WorkerFailed(Event):
    """This worker ends because of an error."""

    step: int
    """The last completed step."""
    error: str


@dataclass(frozen=True, kw_only=True)
class CollectiveStalled(Event):
    """This worker has been waiting long for others that are alive."""

    step: int
    workers: list[str]
    """The workers it waits for, with their hosts and last activity."""


@dataclass(frozen=True, kw_only=True)
class MessagesRejected(Event):
    """Strangers, who do not know the secret of the launch, have sent messages to this worker, or connected to it."""

    step: int
    count: int
    """Messages and connections since the last such event. There is at most one a minute."""
    sources: list[str]
    """Addresses that sent most of them."""


@dataclass(frozen=True, kw_only=True)
class ExchangeChosen(Event):
    """The exchange method changed."""

    step: int
    method: str
    """`plain`, `bf16`, `powersgd` or `local`."""
    every: int
    """Steps between synchronisations."""
    wire_format: str
    """Number format of weight changes on the wire, for `local`."""
    overlap: int = 0
    """Steps during which one part of the weights after the other is averaged, for `local`; 0 if steps wait for it."""
    bits_per_s: float = 0.0
    """Bandwidth of the link, as a ring all-reduce uses it; 0 if it was not measured."""
    latency_s: float = 0.0
    """Of a short message to all workers."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class SharesChanged(Event):
    """The workers' shares of the batch were adapted to their speeds."""

    step: int
    shares: list[float]
    """Shares by rank."""


@dataclass(frozen=True, kw_only=True)
class EvaluationDone(Event):
    """The model was evaluated on the validation set."""

    step: int
    loss: float
    """Per target token, with label smoothing."""
    nll: float
    """Per target token, without label smoothing."""
    perplexity: float
    bleu: float | None
    bleu_signature: str | None
    chrf: float | None
    chrf_signature: str | None
    target_tokens: int
    evaluation_s: float
    samples: list[dict[str, str]]
    """Sample sentences: source, reference, translation."""
    sets: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Scores on the sets of `--also-evaluate` by name: loss, nll, bleu, chrf and target_tokens; None if not finite."""
    gains: dict[str, dict[str, float]] = field(default_factory=dict)
    """Differences in BLEU from the model that the run began with, on the validation set (`valid`) and the other sets:
    bleu, low and high, the 95 % interval by paired bootstrap. Empty at step 0 and in runs from scratch."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved(Event):
    """A checkpoint was written."""

    step: int
    name: str
    size_bytes: int
    files: dict[str, int] = field(default_factory=dict)
    """Bytes of each file."""
    stall_s: float
    """Checkpoint stall: time that training waited for the snapshot."""
    write_s: float
    """Time of the write in the background."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFailed(Event):
    """A checkpoint could not be written; training continued, and older checkpoints were kept."""

    step: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class CheckpointSkipped(Event):
    """A checkpoint was not kept: another part of a split world has written a later one to the same storage."""

    step: int
    ahead: str
    """Name of the other part's checkpoint."""


@dataclass(frozen=True, kw_only=True)
class CheckpointRejected(Event):
    """A damaged checkpoint was found at a resume and skipped."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CheckpointsAveraged(Event):
    """Several checkpoints were averaged at the end of the run, and the result was evaluated."""

    step: int
    names: list[str]
    nll: float
    bleu: float | None
    chrf: float | None
    sets: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Scores on the sets of `--also-evaluate`, as of an evaluation."""
    gains: dict[str, dict[str, float]] = field(default_factory=dict)
    """As of an evaluation."""
    averaging_s: float = 0.0
    """Time of averaging and evaluation."""


@dataclass(frozen=True, kw_only=True)
class TrackerFailed(Event):
    """An experiment tracker could not be reached or written; training continued. Recorded once in a session."""

    step: int
    tracker: str
    """`mlflow`, `wandb` or `trackio`."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class MicroBatchesSplit(Event):
    """A batch did not fit in memory and was split into more micro-batches."""

    step: int
    micro_batches: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class StepSkipped(Event):
    """The loss or gradient was not finite, and the weights were not updated."""

    step: int
    loss: float
    gradient_norm: float
    consecutive: int


@dataclass(frozen=True, kw_only=True)
class RolledBack(Event):
    """Too many consecutive steps were skipped: the run returned to a good checkpoint with a lower learning rate."""

    from_step: int
    to_step: int
    learning_rate_factor: float


@dataclass(frozen=True, kw_only=True)
class ReplicasDrifted(Event):
    """The weights of workers differ where they must be equal. Compared at each evaluation and checkpoint."""

    step: int
    workers: list[str]
    """The workers whose weights differ from those of the majority, or all workers where there is none."""
    has_majority: bool


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """Training ended."""

    step: int
    reason: str
    """`finished`, `patience`, `interrupted` or `diverged`."""
    elapsed_s: float
    peak_memory_bytes: int = 0
    """Most memory that the worker has used: of tensors on its GPU, or of the machine. 0 in older logs."""
