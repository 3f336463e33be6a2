"""Forward and back-translation of texts into a corpus: survey of the machines, translation, assembly."""

import contextlib
import hashlib
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from dragoman.corpus.huggingface_folder import split_direction
from dragoman.corpus.model_filter import MISMATCHED_PAIRS
from dragoman.corpus.sources import Languages
from dragoman.decoding.ctranslate2_translator import DESCRIPTION_FILE as MODEL_DESCRIPTION_FILE
from dragoman.decoding.ctranslate2_translator import is_ctranslate2_folder, override_settings
from dragoman.decoding.length_rules import check_n_best
from dragoman.decoding.model_choice import find_model
from dragoman.decoding.pair_scoring import direction_problems
from dragoman.errors import DragomanError, DragomanWarning
from dragoman.files import locked, read_json
from dragoman.insight.synthesis_summary import NO_PAIRS_REMEDY
from dragoman.launch.ssh import Machine, SshClient
from dragoman.number_format import count
from dragoman.progress_callback import Progress
from dragoman.settings import DecodingSettings, MoneySettings
from dragoman.synthesis.coordinator import Coordinator, count_gpus
from dragoman.synthesis.corpus_assembly import CorpusOptions, assemble
from dragoman.synthesis.shard_queue import ShardQueue
from dragoman.synthesis.shard_worker import folder_digest
from dragoman.synthesis.synthesis_folder import SynthesisDescription, SynthesisFolder, check_same
from dragoman.synthesis.synthesis_log import SynthesisLog
from dragoman.synthesis.text_shards import TextSummary, check_texts, read_shards, scan_texts
from dragoman.synthesis.translation_job import DeviceKind, TranslationJob
from dragoman.synthesis.worker_connection import EngineFiles

SHARD_LINES: dict[DeviceKind, int] = {"cpu": 2048, "cuda": 16384}
"""Lines of a shard: enough for full batches of similar lengths, few enough that little is lost with a machine."""
EXAMPLE_WIDTH = 60
"""Characters of each side of an example in a message."""
_WEIGHT_SUFFIXES = frozenset({".safetensors", ".bin", ".model", ".spm"})
_LOCAL = (Machine("localhost"),)


@dataclass(frozen=True)
class SynthesisRequest:
    """The arguments of a synthesis."""

    model: Path
    texts: Sequence[Path]
    out: Path
    options: CorpusOptions = field(default_factory=CorpusOptions)
    decoding: dict[str, Any] = field(default_factory=dict)
    n_best: int = 1
    sampling: dict[str, Any] | None = None
    """Settings of `decoding.sampling`; None is beam search."""
    device: DeviceKind | None = None
    """Kind of devices that translate (default: GPUs if any machine has one)."""
    machines: Sequence[Machine] = _LOCAL
    client: SshClient = field(default_factory=SshClient)
    shard_lines: int | None = None
    money: MoneySettings = field(default_factory=MoneySettings)
    backward: Path | None = None
    """Model of the other direction, which scores the translations together with `model`."""


def synthesize(request: SynthesisRequest, progress: Progress) -> SynthesisDescription:
    """Translate what is not translated yet, and write the corpus. The same request resumes after any interruption."""
    check_texts(request.texts)
    models = find_models(request)
    folder = SynthesisFolder(request.out)
    created = folder.create()
    with _only_one(request.out):
        with folder.removed_if_refused(created):
            texts = scan_texts(request.texts, progress)
            description, engines = _begin(request, models, folder, tuple(text.summary for text in texts))
        folder.shards.open()
        log = SynthesisLog(request.out, description, progress)
        with contextlib.closing(log):
            finished = folder.shards.finished()
            log.start([machine.name for machine in request.machines], finished, request.money)
            try:
                if len(finished) < description.shards:
                    queue = ShardQueue(read_shards(texts, description.shard_lines, finished))
                    _translate(request, folder, description, engines, queue, log)
                started_at_s = time.monotonic()
                made = assemble(folder, description, request.options, progress)
                description = replace(description, corpus=made)
                folder.write(description)
            except BaseException:
                log.interrupt()
                raise
            log.finish(made, time.monotonic() - started_at_s)
    _check_kept(request.out, made)
    _warn_of_mixture(description)
    return description


def _begin(
    request: SynthesisRequest, models: Sequence[Path], folder: SynthesisFolder, texts: tuple[TextSummary, ...]
) -> tuple[SynthesisDescription, list[Path]]:
    """The description of a new synthesis or of the one in the folder, and its models as workers load them."""
    earlier = folder.read()
    if earlier is None:
        folder.check_unused()
    elif not folder.shards.finished():
        earlier = None  # Nothing was translated: other arguments spoil nothing.
    # What is translated needs the same device; a host that does not answer now may come back.
    device = choose_device(request) if earlier is None else request.device or earlier.job.device
    check_workers(request.machines, device)
    weights = find_weights(request, models, folder, earlier)
    engines = make_engine_folders(request, models, folder, device, is_new=earlier is None)
    description = describe(request, weights, engines, texts, device)
    if earlier is None:
        folder.write(description)
        return description, engines
    check_same(request.out, description.differences(earlier))
    return replace(description, shard_lines=earlier.shard_lines), engines


def check_sampling(sampling: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Settings of sampling with their defaults."""
    if sampling is None:
        return None
    complete = {"temperature": 1.0, "top_k": 0, "seed": 1, **sampling}
    if set(complete) != {"temperature", "top_k", "seed"}:
        raise DragomanError(f"sampling has {', '.join(map(str, sampling))}: it takes temperature, top_k and seed.")
    if complete["temperature"] <= 0 or complete["top_k"] < 0 or complete["seed"] < 0:
        raise DragomanError(f"sampling {sampling}: the temperature must be above 0, top_k and seed 0 or more.")
    return complete


def choose_device(request: SynthesisRequest) -> DeviceKind:
    """The requested kind; else GPUs if any machine has one: CPUs are slower, and translate some lines otherwise."""
    if request.device == "cpu":
        return "cpu"
    has_gpu = any(count_gpus(request.machines, request.client).values())
    if request.device == "cuda" and not has_gpu:
        raise DragomanError("--device cuda: no machine has a GPU that can be used: use --device cpu.")
    return "cuda" if has_gpu else "cpu"


def check_workers(machines: Sequence[Machine], device: DeviceKind) -> None:
    """Raise an error if several workers are requested of a machine whose CPU translates: one has all of its cores."""
    several = next((machine for machine in machines if (machine.workers or 1) > 1), None)
    if device == "cpu" and several is not None:
        raise DragomanError(
            f"--hosts {several.name}:{several.workers}: on a CPU, one worker uses all cores: write {several.name}. "
            "Several workers are for several GPUs."
        )


def check_device(device: str | None) -> DeviceKind | None:
    if device not in (None, *SHARD_LINES):
        raise DragomanError(f"--device {device} is not known: use {' or '.join(SHARD_LINES)}.")
    return device


def _translate(
    request: SynthesisRequest,
    folder: SynthesisFolder,
    description: SynthesisDescription,
    engines: Sequence[Path],
    queue: ShardQueue,
    log: SynthesisLog,
) -> None:
    """Translate all shards that are not finished yet."""
    files = describe_files(engines)
    Coordinator(request.machines, request.client, description.job, files, queue, folder.shards, log).run()


@contextlib.contextmanager
def _only_one(out: Path) -> Iterator[None]:
    try:
        with locked(out, wait=False):
            yield
    except BlockingIOError:
        raise DragomanError(f"Another synthesis is writing to {out}: wait for it, or end it.") from None


def find_models(request: SynthesisRequest) -> list[Path]:
    """The folder of the model, and of the backward model if there is one."""
    return [find_model(path) for path in (request.model, request.backward) if path is not None]


def find_weights(
    request: SynthesisRequest, models: Sequence[Path], folder: SynthesisFolder, earlier: SynthesisDescription | None
) -> list[str]:
    """Hashes of the weights that translate and score. Those of a copy stay, although its run may have gone on."""
    copied: list[str | None] = [None, None]
    if earlier is not None:
        copied = [
            earlier.weights if folder.model.exists() and str(request.model) == earlier.model else None,
            earlier.backward_weights
            if folder.backward.exists() and str(request.backward) == earlier.backward
            else None,
        ]
    return [
        weights_digest(model) if of_copy is None or is_ctranslate2_folder(model) else of_copy
        for model, of_copy in zip(models, copied, strict=False)
    ]


def make_engine_folders(
    request: SynthesisRequest, models: Sequence[Path], folder: SynthesisFolder, device: DeviceKind, *, is_new: bool
) -> list[Path]:
    """The models as workers load them. Copies, because a run that goes on replaces its checkpoints.

    GPUs search on torch, CPUs in int8 with CTranslate2. Samples are drawn on torch, where each line has its own noise.
    """
    if request.sampling is not None and is_ctranslate2_folder(models[0]):
        raise DragomanError(f"{request.model} is an export, which cannot sample: give the model it was made from.")
    engines = []
    for model, copy in zip(models, (folder.model, folder.backward), strict=False):
        is_export, is_sampled = is_ctranslate2_folder(model), request.sampling is not None and copy == folder.model
        if not is_export and (is_new or not copy.exists()):
            from dragoman.exporting.exporter import export

            export(model, copy, "ctranslate2" if device == "cpu" and not is_sampled else "safetensors", overwrite=True)
        engines.append(model if is_export else copy)
    return engines


def describe_files(engines: Sequence[Path]) -> list[EngineFiles]:
    return [EngineFiles(engine, folder_digest(engine)) for engine in engines]


def describe(
    request: SynthesisRequest,
    weights: Sequence[str],
    engines: Sequence[Path],
    texts: tuple[TextSummary, ...],
    device: DeviceKind,
) -> SynthesisDescription:
    content = read_json(engines[0] / MODEL_DESCRIPTION_FILE)
    decoding = override_settings(DecodingSettings(**content["decoding"]), request.decoding)
    if request.sampling is None:
        check_n_best(request.n_best, decoding)
    languages, lines = Languages(**content["languages"]), sum(text.lines for text in texts)
    share = sampled_share(request, lines)
    job = TranslationJob(device, decoding.model_dump(), request.n_best, request.sampling, share)
    shard_lines = request.shard_lines or SHARD_LINES[device]
    described = SynthesisDescription(str(request.model), weights[0], languages, texts, job, shard_lines)
    if request.backward is None:
        return described
    found = Languages(**read_json(engines[1] / MODEL_DESCRIPTION_FILE)["languages"])
    if problems := direction_problems("--score-back-with", request.backward, found, languages.reversed):
        raise DragomanError(problems[0])
    return replace(described, backward=str(request.backward), backward_weights=weights[1])


def sampled_share(request: SynthesisRequest, lines: int) -> float:
    """Share of the pairs of so many lines whose scores are sampled for a threshold."""
    return 0.0 if request.backward is None else min(1.0, MISMATCHED_PAIRS / max(1, lines * request.n_best))


def weights_digest(model: Path) -> str:
    """Hash of the weights and the tokenizer of a model, with its direction if one is stated."""
    direction, folder = split_direction(model)
    digest = hashlib.sha256((direction.direction if direction else "").encode())
    for path in sorted(folder.iterdir()):
        if path.suffix in _WEIGHT_SUFFIXES:
            digest.update(path.name.encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _check_kept(out: Path, made: Mapping[str, Any]) -> None:
    """Raise an error if nothing is left: an empty corpus would only fail later, in `prepare`."""
    if made["kept_pairs"]:
        return
    dropped = ", ".join(f"{count(of_rule['pairs'])} by {rule}" for rule, of_rule in made["dropped"].items())
    [rule, of_rule], *_ = made["dropped"].items()
    text, translation, *_ = of_rule["examples"][0]
    raise DragomanError(
        f"{out} has no pairs: all {count(made['translated_pairs'])} translations were dropped ({dropped}). "
        f"For example, {rule} dropped {shorten(text, EXAMPLE_WIDTH)!r} = {shorten(translation, EXAMPLE_WIDTH)!r}. "
        f"{NO_PAIRS_REMEDY}"
    )


def _warn_of_mixture(description: SynthesisDescription) -> None:
    machines = description.corpus["machines"]
    if len(machines) > 1:
        warnings.warn(
            f"Different machines translated ({'; '.join(machines)}): they round differently, and other ones may "
            "translate a few lines otherwise.",
            DragomanWarning,
            stacklevel=3,
        )
