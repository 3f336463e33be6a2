"""Other translation toolkits, each in its own virtual environment, training the same model on the same tokens.

All get the corpus as pieces of our tokenizer between spaces, and the list of pieces as their vocabulary. So a token is
the same for all: a piece, or the EOS of a side.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from benchmarks.command_line import NEVER
from dragoman.corpus.dataset import DataSet, Split
from dragoman.corpus.download_cache import cache_root

BATCH_LOGGER = Path(__file__).with_name("toolkit_batch_logger.py")
ADAM = {"beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9, "learning_rate": 3e-4}
WARMUP_STEPS = 400
CLIP_NORM = 1.0


class ToolkitError(Exception):
    """A toolkit could not be installed or did not train. The message is one line."""


@dataclass(frozen=True)
class ModelSize:
    """Sizes of the model and the batch, the same for all toolkits."""

    d_model: int = 256
    heads: int = 4
    layers: int = 4
    feed_forward: int = 1024
    dropout: float = 0.1
    label_smoothing: float = 0.1
    target_tokens: int = 4096
    """Target tokens of one update, without padding."""


@dataclass(frozen=True)
class PieceCorpus:
    """The corpus as pieces between spaces, and its number of tokens, with EOS."""

    folder: Path
    source_language: str
    target_language: str
    pairs: int
    source_tokens: int
    target_tokens: int

    def path(self, split: Split, language: str) -> Path:
        return self.folder / f"{split}.{language}"

    @property
    def vocabulary(self) -> Path:
        return self.folder / "vocabulary.txt"


@dataclass(frozen=True)
class Update:
    """One update of the weights."""

    seconds: float
    source_tokens: float
    target_tokens: float

    @property
    def tokens_per_s(self) -> float:
        return (self.source_tokens + self.target_tokens) / self.seconds


@dataclass(frozen=True)
class TrainingTask:
    """A model to train, its corpus, the number of updates, and a folder for outputs."""

    size: ModelSize
    corpus: PieceCorpus
    updates: int
    threads: int
    folder: Path


@dataclass(frozen=True)
class Toolkit:
    package: str
    requirements: Sequence[str]
    """Packages to install: the toolkit, and undeclared dependencies."""
    train: Callable[[Path, TrainingTask], list[Update]]
    """Trains with the programs of a folder, and returns the first `task.updates` updates."""
    differences: str
    """Differences from our training, and the method of counting tokens."""
    needs_torch: bool = True


def install(toolkit: Toolkit) -> Path:
    """Create the virtual environment of a toolkit, if it does not exist yet. Returns the folder of its programs."""
    folder = cache_root() / "peers" / toolkit.package
    programs, stamp = folder / "bin", folder / "installed.txt"
    wanted = "\n".join(toolkit.requirements) + "\n"
    if stamp.is_file() and stamp.read_text() == wanted:
        return programs
    print(f"installing {toolkit.package} in {folder}", flush=True)
    if not (programs / "python").exists():
        venv.create(folder, with_pip=True, symlinks=True)
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The same torch as ours. First, and with its exact version: a toolkit's own range may select another build.
    torch = f"torch=={importlib.metadata.version('torch').partition('+')[0]}"
    constraint = folder / "constraint.txt"
    constraint.write_text(f"{torch}\n")
    if toolkit.needs_torch:
        _run([*pip, torch])
    _run([*pip, "--constraint", constraint, *toolkit.requirements])
    stamp.write_text(wanted)
    return programs


def installed_version(toolkit: Toolkit, programs: Path) -> str:
    code = f"import importlib.metadata as m; print(m.version({toolkit.package!r}))"
    return _run([programs / "python", "-c", code]).strip()


def write_corpus(data: DataSet, folder: Path) -> PieceCorpus:
    """Write a prepared data set as text for other toolkits."""
    folder.mkdir(parents=True, exist_ok=True)
    languages, pieces = data.languages, data.tokenizer.pieces
    train = data.manifest.splits["train"]
    corpus = PieceCorpus(
        folder, languages.source, languages.target, train.pairs, train.source_tokens, train.target_tokens
    )  # fmt: skip
    corpus.vocabulary.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    for split in ("train", "valid"):
        pairs = data.pairs(split)
        for side, language in enumerate((languages.source, languages.target)):
            lines = (" ".join(pieces[token] for token in pairs[index][side][:-1]) for index in range(len(pairs)))
            corpus.path(split, language).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return corpus


def _train_joeynmt(programs: Path, task: TrainingTask) -> list[Update]:
    size, corpus = task.size, task.corpus
    stack = {
        "type": "transformer", "num_layers": size.layers, "num_heads": size.heads, "hidden_size": size.d_model,
        "ff_size": size.feed_forward, "dropout": size.dropout, "layer_norm": "pre",
        "embeddings": {"embedding_dim": size.d_model, "scale": True, "dropout": 0.0},
    }  # fmt: skip
    side = {"level": "word", "lowercase": False, "max_length": 1000, "voc_file": str(corpus.vocabulary)}
    config = {
        "name": "benchmark", "model_dir": str(task.folder / "model"), "use_cuda": False, "fp16": False,
        "random_seed": 1, "num_workers": 0,
        "data": {
            "train": str(corpus.folder / "train"), "dev": str(corpus.folder / "valid"), "dataset_type": "plain",
            "src": {"lang": corpus.source_language, **side}, "trg": {"lang": corpus.target_language, **side},
        },
        "model": {
            "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "tied_embeddings": True,
            "tied_softmax": True, "encoder": stack, "decoder": stack,
        },
        "training": {
            "optimizer": "adamw", "adam_betas": [ADAM["beta1"], ADAM["beta2"]], "learning_rate": ADAM["learning_rate"],
            "learning_rate_min": 0.0, "scheduling": "warmupinversesquareroot", "learning_rate_warmup": WARMUP_STEPS,
            "clip_grad_norm": CLIP_NORM, "normalization": "tokens",
            "label_smoothing": size.label_smoothing, "batch_type": "token",
            "batch_size": round(JOEYNMT_PADDING * size.target_tokens / JOEYNMT_MICRO_BATCHES),
            "batch_multiplier": JOEYNMT_MICRO_BATCHES, "epochs": NEVER, "updates": task.updates + 1,
            "logging_freq": NEVER, "validation_freq": NEVER,
        },
        "testing": {},
    }  # fmt: skip
    path = task.folder / "joeynmt.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return _train_logged("joeynmt", programs, task, ["train", path, "--skip-test"], JOEYNMT_MICRO_BATCHES)


JOEYNMT_MICRO_BATCHES = 4
"""Batches of an update. One batch is slower, because it has more padding and larger logits."""
JOEYNMT_PADDING = 2.2
"""JoeyNMT's batch size counts padding, and the longer side: ratio to real target tokens."""


def _train_eole(programs: Path, task: TrainingTask) -> list[Update]:
    size, corpus = task.size, task.corpus
    config = {
        "data": {
            "corpus": {
                "path_src": str(corpus.path("train", corpus.source_language)),
                "path_tgt": str(corpus.path("train", corpus.target_language)),
            }
        },
        "src_vocab": str(corpus.vocabulary), "share_vocab": True, "save_data": str(task.folder / "data"),
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
        "seed": 1, "report_every": NEVER,
        "model": {
            "architecture": "transformer", "layers": size.layers, "heads": size.heads, "hidden_size": size.d_model,
            "transformer_ff": size.feed_forward, "mlp_activation_fn": "relu", "layer_norm": "standard",
            "add_qkvbias": True, "add_ffnbias": True, "generator_bias": False,
            "share_embeddings": True, "share_decoder_embeddings": True,
            "embeddings": {
                "word_vec_size": size.d_model, "position_encoding": True,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
        "training": {
            "world_size": 1, "gpu_ranks": [], "compute_dtype": "fp32", "num_workers": 0,
            "model_path": str(task.folder / "model"),
            "bucket_size": corpus.pairs, "batch_type": "tokens", "batch_size": round(EOLE_PADDING * size.target_tokens),
            "normalization": "tokens", "optim": "adam", "adam_beta1": ADAM["beta1"], "adam_beta2": ADAM["beta2"],
            "adam_eps": ADAM["epsilon"], "learning_rate": ADAM["learning_rate"], "max_grad_norm": CLIP_NORM,
            "dropout": [size.dropout], "attention_dropout": [0.0], "label_smoothing": size.label_smoothing,
            "param_init_method": "xavier_uniform", "train_steps": task.updates + 1, "valid_steps": NEVER,
            "save_checkpoint_steps": NEVER, "log_attention_entropy": False,
        },
    }  # fmt: skip
    path = task.folder / "eole.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return _train_logged("eole", programs, task, ["train", "-config", path])


EOLE_PADDING = 1.23
"""Eole's batch size counts padding, and the longer side: ratio to real target tokens."""


def _train_logged(
    name: str, programs: Path, task: TrainingTask, arguments: Sequence[str | Path], batches: int = 1
) -> list[Update]:
    """Run a toolkit with the batch logger. An update lasts until the next one begins: reading batches counts."""
    log = task.folder / f"{name}.jsonl"
    _run([programs / "python", BATCH_LOGGER, name, log, *arguments], threads=task.threads)
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    updates = [logged[first : first + batches] for first in range(0, len(logged), batches)]
    return [
        Update(
            following[0]["at_s"] - this[0]["at_s"],
            sum(batch["source_tokens"] for batch in this),
            sum(batch["target_tokens"] for batch in this),
        )
        for this, following in pairwise(updates)
    ]


def _train_marian(programs: Path, task: TrainingTask) -> list[Update]:
    size, corpus = task.size, task.corpus
    vocabulary = task.folder / "vocabulary.yml"
    pieces = corpus.vocabulary.read_text(encoding="utf-8").split("\n")[:-1]
    lines = (f"{json.dumps(piece, ensure_ascii=False)}: {number}\n" for number, piece in enumerate(pieces))
    vocabulary.write_text("".join(lines), encoding="utf-8")
    log = task.folder / "marian.log"
    options: dict[str, Any] = {
        "type": "transformer", "model": task.folder / "model.npz", "log": log, "quiet": True, "seed": 1,
        "train-sets": [corpus.path("train", corpus.source_language), corpus.path("train", corpus.target_language)],
        "vocabs": [vocabulary, vocabulary], "max-length": 1000, "tempdir": task.folder,
        "dim-emb": size.d_model, "transformer-heads": size.heads, "enc-depth": size.layers,
        "dec-depth": size.layers, "transformer-dim-ffn": size.feed_forward, "transformer-ffn-activation": "relu",
        "tied-embeddings-all": True, "transformer-preprocess": "n", "transformer-postprocess": "da",
        "transformer-postprocess-emb": "d", "transformer-postprocess-top": "n",
        "transformer-dropout": size.dropout, "label-smoothing": size.label_smoothing, "optimizer": "adam",
        "optimizer-params": [ADAM["beta1"], ADAM["beta2"], ADAM["epsilon"]], "learn-rate": ADAM["learning_rate"],
        "lr-warmup": WARMUP_STEPS, "clip-norm": CLIP_NORM, "mini-batch": 1000,
        "mini-batch-words": size.target_tokens, "mini-batch-round-up": "false", "cpu-threads": task.threads,
        "sync-sgd": True, "workspace": 4000, "after": f"{task.updates}u", "disp-freq": "1u",
        "disp-label-counts": True, "save-freq": f"{NEVER}u",
    }  # fmt: skip
    arguments: list[str | Path] = []
    for name, value in options.items():
        values = [] if value is True else value if isinstance(value, list) else [value]
        arguments += [f"--{name}", *map(str, values)]
    # Each of Marian's threads is a worker with a part of the batch, so its matrix library gets one thread in each.
    _run([programs / "pymarian", "train", *arguments], threads=1)
    # Ep. 1 : Up. 2 : Sen. 665 : Cost 9.77 * 4,384 @ 4,384 after 8,601 : Time 9.80s : 447.14 words/s
    found = re.findall(r"Up\. [\d,]+ .*? \* ([\d,]+) @ .*?: Time ([\d.]+)s", log.read_text())
    targets = [int(labels.replace(",", "")) for labels, _ in found]
    sources = [target * corpus.source_tokens / corpus.target_tokens for target in targets]
    times_s = [float(seconds) for _, seconds in found]
    return [Update(*update) for update in zip(times_s, sources, targets, strict=True)]


def _run(command: Sequence[str | Path], threads: int | None = None) -> str:
    """Run a program and return its output. If it fails, the last line of its output is the reason."""
    environment: Mapping[str, str] = os.environ
    if threads is not None:
        counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        environment = {**os.environ, **counts, "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=environment, check=False
    )  # fmt: skip
    if process.returncode:
        lines = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()] or ["no output"]
        raise ToolkitError(f"{Path(command[0]).name} exited with status {process.returncode}: {lines[-1].strip()}")
    return process.stdout


TOOLKITS = (
    Toolkit(
        "joeynmt",
        # importlib_metadata is an undeclared dependency.
        ("joeynmt", "importlib_metadata"),
        _train_joeynmt,
        "batches not sorted by length, several for each update; dropout also on attention weights and inside "
        "feed-forward layers, which cannot be turned off; tokens counted from its batches",
    ),
    Toolkit(
        "eole",
        ("eole", "aiohttp"),
        _train_eole,
        "dropout also inside feed-forward layers; tokens counted from its batches, with an EOS for each source, which "
        "Eole does not feed to the encoder",
    ),
    Toolkit(
        "pymarian",
        ("pymarian",),
        _train_marian,
        "target tokens and times of each update from its log; source tokens estimated with the ratio of the corpus",
        needs_torch=False,
    ),
)
