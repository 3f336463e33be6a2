"""Other translation toolkits, each in an environment of its own, training the same model on the same tokens.

All are given one corpus as text whose words are our tokenizer's pieces, and its list of pieces as their vocabulary. So
a token is the same everywhere: a piece, or the end mark of a side.
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

from dragoman.corpus.dataset import DataSet, Split
from dragoman.corpus.download_cache import cache_root

WATCHED = Path(__file__).with_name("watched.py")
NEVER = 10**6
ADAM = {"beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9, "rate": 3e-4}
WARMUP_STEPS = 400
CLIP_NORM = 1.0


class ToolkitError(Exception):
    """A toolkit could not be installed or would not train, and why, in one line."""


@dataclass(frozen=True)
class Shape:
    """The model and the batch that all of them train."""

    d_model: int = 256
    heads: int = 4
    layers: int = 4
    feed_forward: int = 1024
    dropout: float = 0.1
    label_smoothing: float = 0.1
    target_tokens: int = 4096
    """Of one update, without padding."""


@dataclass(frozen=True)
class Text:
    """The corpus as pieces between spaces, and how many tokens it has, end marks included."""

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
class Task:
    """What to train, for how long, and where to put it."""

    shape: Shape
    text: Text
    updates: int
    threads: int
    folder: Path


@dataclass(frozen=True)
class Toolkit:
    package: str
    requirements: Sequence[str]
    """What pip installs: the package, and what it imports without saying so."""
    train: Callable[[Path, Task], list[Update]]
    """Given the folder of its environment's programs, the first `task.updates` updates."""
    remarks: str
    """What differs from ours, and how its tokens are counted."""
    needs_torch: bool = True


def install(toolkit: Toolkit) -> Path:
    """The folder of the programs of a toolkit's environment, which is made at first use."""
    folder = cache_root() / "peers" / toolkit.package
    programs, stamp = folder / "bin", folder / "installed.txt"
    wanted = "\n".join(toolkit.requirements) + "\n"
    if stamp.is_file() and stamp.read_text() == wanted:
        return programs
    print(f"installing {toolkit.package} in {folder}", flush=True)
    if not (programs / "python").exists():
        venv.create(folder, with_pip=True, symlinks=True)
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The same torch as ours. It comes first and by its exact version: a toolkit's own range may take another build.
    torch = f"torch=={importlib.metadata.version('torch').partition('+')[0]}"
    constraint = folder / "constraint.txt"
    constraint.write_text(f"{torch}\n")
    if toolkit.needs_torch:
        _run([*pip, torch])
    _run([*pip, "--constraint", constraint, *toolkit.requirements])
    stamp.write_text(wanted)
    return programs


def version(toolkit: Toolkit, programs: Path) -> str:
    asked = f"import importlib.metadata as m; print(m.version({toolkit.package!r}))"
    return _run([programs / "python", "-c", asked]).strip()


def write_text(data: DataSet, folder: Path) -> Text:
    """A prepared data set as text for others."""
    folder.mkdir(parents=True, exist_ok=True)
    languages, pieces = data.languages, data.tokenizer.pieces
    train = data.manifest.splits["train"]
    text = Text(
        folder, languages.source, languages.target, train.pairs, train.source_tokens, train.target_tokens
    )  # fmt: skip
    text.vocabulary.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    for split in ("train", "valid"):
        pairs = data.pairs(split)
        for side, language in enumerate((languages.source, languages.target)):
            lines = (" ".join(pieces[token] for token in pairs[index][side][:-1]) for index in range(len(pairs)))
            text.path(split, language).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return text


def _train_joeynmt(programs: Path, task: Task) -> list[Update]:
    shape, text = task.shape, task.text
    stack = {
        "type": "transformer", "num_layers": shape.layers, "num_heads": shape.heads, "hidden_size": shape.d_model,
        "ff_size": shape.feed_forward, "dropout": shape.dropout, "layer_norm": "pre",
        "embeddings": {"embedding_dim": shape.d_model, "scale": True, "dropout": 0.0},
    }  # fmt: skip
    side = {"level": "word", "lowercase": False, "max_length": 1000, "voc_file": str(text.vocabulary)}
    config = {
        "name": "benchmark", "model_dir": str(task.folder / "model"), "use_cuda": False, "fp16": False,
        "random_seed": 1, "num_workers": 0,
        "data": {
            "train": str(text.folder / "train"), "dev": str(text.folder / "valid"), "dataset_type": "plain",
            "src": {"lang": text.source_language, **side}, "trg": {"lang": text.target_language, **side},
        },
        "model": {
            "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "tied_embeddings": True,
            "tied_softmax": True, "encoder": stack, "decoder": stack,
        },
        "training": {
            "optimizer": "adamw", "adam_betas": [ADAM["beta1"], ADAM["beta2"]], "learning_rate": ADAM["rate"],
            "learning_rate_min": 0.0, "scheduling": "warmupinversesquareroot", "learning_rate_warmup": WARMUP_STEPS,
            "clip_grad_norm": CLIP_NORM, "normalization": "tokens",
            "label_smoothing": shape.label_smoothing, "batch_type": "token",
            "batch_size": round(JOEYNMT_PADDED * shape.target_tokens / JOEYNMT_PIECES),
            "batch_multiplier": JOEYNMT_PIECES, "epochs": NEVER, "updates": task.updates + 1,
            "logging_freq": NEVER, "validation_freq": NEVER,
        },
        "testing": {},
    }  # fmt: skip
    path = task.folder / "joeynmt.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return _watched("joeynmt", programs, task, ["train", path, "--skip-test"], JOEYNMT_PIECES)


JOEYNMT_PIECES = 4
"""Batches of an update. It is slower in one piece, where more is padding and the logits are larger."""
JOEYNMT_PADDED = 2.2
"""Its batch size counts padding, and the longer side: so much more than real target tokens."""


def _train_eole(programs: Path, task: Task) -> list[Update]:
    shape, text = task.shape, task.text
    config = {
        "data": {
            "corpus": {
                "path_src": str(text.path("train", text.source_language)),
                "path_tgt": str(text.path("train", text.target_language)),
            }
        },
        "src_vocab": str(text.vocabulary), "share_vocab": True, "save_data": str(task.folder / "data"),
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
        "seed": 1, "report_every": NEVER,
        "model": {
            "architecture": "transformer", "layers": shape.layers, "heads": shape.heads, "hidden_size": shape.d_model,
            "transformer_ff": shape.feed_forward, "mlp_activation_fn": "relu", "layer_norm": "standard",
            "add_qkvbias": True, "add_ffnbias": True, "generator_bias": False,
            "share_embeddings": True, "share_decoder_embeddings": True,
            "embeddings": {
                "word_vec_size": shape.d_model, "position_encoding": True,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
        "training": {
            "world_size": 1, "gpu_ranks": [], "compute_dtype": "fp32", "num_workers": 0,
            "model_path": str(task.folder / "model"),
            "bucket_size": text.pairs, "batch_type": "tokens", "batch_size": round(EOLE_PADDED * shape.target_tokens),
            "normalization": "tokens", "optim": "adam", "adam_beta1": ADAM["beta1"], "adam_beta2": ADAM["beta2"],
            "adam_eps": ADAM["epsilon"], "learning_rate": ADAM["rate"], "max_grad_norm": CLIP_NORM,
            "dropout": [shape.dropout], "attention_dropout": [0.0], "label_smoothing": shape.label_smoothing,
            "param_init_method": "xavier_uniform", "train_steps": task.updates + 1, "valid_steps": NEVER,
            "save_checkpoint_steps": NEVER, "log_attention_entropy": False,
        },
    }  # fmt: skip
    path = task.folder / "eole.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return _watched("eole", programs, task, ["train", "-config", path])


EOLE_PADDED = 1.23
"""Eole's batch size counts padding, and the longer side: so much more than real target tokens."""


def _watched(name: str, programs: Path, task: Task, arguments: Sequence[str | Path], batches: int = 1) -> list[Update]:
    """Runs a toolkit under `watched`. An update lasts until the next begins, its batches' reading included."""
    notes = task.folder / f"{name}.jsonl"
    _run([programs / "python", WATCHED, name, notes, *arguments], threads=task.threads)
    begun = [json.loads(line) for line in notes.read_text().splitlines()]
    updates = [begun[first : first + batches] for first in range(0, len(begun), batches)]
    return [
        Update(
            following[0]["at_s"] - this[0]["at_s"],
            sum(batch["source_tokens"] for batch in this),
            sum(batch["target_tokens"] for batch in this),
        )
        for this, following in pairwise(updates)
    ]


def _train_marian(programs: Path, task: Task) -> list[Update]:
    shape, text = task.shape, task.text
    vocabulary = task.folder / "vocabulary.yml"
    pieces = text.vocabulary.read_text(encoding="utf-8").split("\n")[:-1]
    lines = (f"{json.dumps(piece, ensure_ascii=False)}: {number}\n" for number, piece in enumerate(pieces))
    vocabulary.write_text("".join(lines), encoding="utf-8")
    log = task.folder / "marian.log"
    options: dict[str, Any] = {
        "type": "transformer", "model": task.folder / "model.npz", "log": log, "quiet": True, "seed": 1,
        "train-sets": [text.path("train", text.source_language), text.path("train", text.target_language)],
        "vocabs": [vocabulary, vocabulary], "max-length": 1000, "tempdir": task.folder,
        "dim-emb": shape.d_model, "transformer-heads": shape.heads, "enc-depth": shape.layers,
        "dec-depth": shape.layers, "transformer-dim-ffn": shape.feed_forward, "transformer-ffn-activation": "relu",
        "tied-embeddings-all": True, "transformer-preprocess": "n", "transformer-postprocess": "da",
        "transformer-postprocess-emb": "d", "transformer-postprocess-top": "n",
        "transformer-dropout": shape.dropout, "label-smoothing": shape.label_smoothing, "optimizer": "adam",
        "optimizer-params": [ADAM["beta1"], ADAM["beta2"], ADAM["epsilon"]], "learn-rate": ADAM["rate"],
        "lr-warmup": WARMUP_STEPS, "clip-norm": CLIP_NORM, "mini-batch": 1000,
        "mini-batch-words": shape.target_tokens, "mini-batch-round-up": "false", "cpu-threads": task.threads,
        "sync-sgd": True, "workspace": 4000, "after": f"{task.updates}u", "disp-freq": "1u",
        "disp-label-counts": True, "save-freq": f"{NEVER}u",
    }  # fmt: skip
    arguments: list[str | Path] = []
    for name, value in options.items():
        values = [] if value is True else value if isinstance(value, list) else [value]
        arguments += [f"--{name}", *map(str, values)]
    # Marian's own threads are workers with a part of the batch each: its matrix library gets no more inside of them.
    _run([programs / "pymarian", "train", *arguments], threads=1)
    # Ep. 1 : Up. 2 : Sen. 665 : Cost 9.77 * 4,384 @ 4,384 after 8,601 : Time 9.80s : 447.14 words/s
    found = re.findall(r"Up\. [\d,]+ .*? \* ([\d,]+) @ .*?: Time ([\d.]+)s", log.read_text())
    targets = [int(labels.replace(",", "")) for labels, _ in found]
    sources = [target * text.source_tokens / text.target_tokens for target in targets]
    times_s = [float(seconds) for _, seconds in found]
    return [Update(*update) for update in zip(times_s, sources, targets, strict=True)]


def _run(command: Sequence[str | Path], threads: int | None = None) -> str:
    """What a program says. If it fails, its last words are the reason."""
    environment: Mapping[str, str] = os.environ
    if threads is not None:
        counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        environment = {**os.environ, **counts, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=environment, check=False
    )  # fmt: skip
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["no word said"]
        raise ToolkitError(f"{Path(command[0]).name} left with {done.returncode}: {said[-1].strip()}")
    return done.stdout


TOOLKITS = (
    Toolkit(
        "joeynmt",
        # It imports importlib_metadata without asking for it.
        ("joeynmt", "importlib_metadata"),
        _train_joeynmt,
        "batches as sentences come, for it does not sort by length, in pieces of an update; dropout of attention "
        "weights and inside feed-forward layers too, which cannot be turned off; tokens counted from its batches",
    ),
    Toolkit(
        "eole",
        ("eole", "aiohttp"),
        _train_eole,
        "dropout inside feed-forward layers too; tokens counted from its batches, with an end mark for each source, "
        "which it does not feed",
    ),
    Toolkit(
        "pymarian",
        ("pymarian",),
        _train_marian,
        "target tokens and times from its log, update by update; source tokens by the corpus's ratio of both",
        needs_torch=False,
    ),
)
