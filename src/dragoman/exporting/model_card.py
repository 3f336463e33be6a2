"""The model card of an export: architecture, scores, data, training and limits, from the events of the run.

Facts that the run did not record are reported as "not known"; nothing is guessed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.corpus.dataset import DataSet, Manifest
from dragoman.corpus.sources import Languages
from dragoman.decoding.ctranslate2_translator import CARD_FILE
from dragoman.errors import DragomanError
from dragoman.event_log import read_events
from dragoman.events import CheckpointsAveraged, Event, RunStarted
from dragoman.files import read_json, write_atomic
from dragoman.insight.run_history import RunHistory, build_history
from dragoman.model.architecture import Architecture, parameter_count
from dragoman.model.model_folder import ModelDescription
from dragoman.number_format import count, size, span
from dragoman.run_folder import RunFolder

NOT_KNOWN = "not known"
LIBRARIES = {
    "ctranslate2": "ctranslate2",
    "argos": "argostranslate",
    "huggingface": "transformers",
    "safetensors": "dragoman",
}

TRANSFORMERS_USAGE = """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("FOLDER"), AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
batch = tokenizer(["A sentence.", "Another one."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
"""


@dataclass(frozen=True)
class CardOptions:
    """Facts for the card that a run does not record."""

    data: DataSet | None = None
    """The training data, whose manifest has sources, sizes and licences."""
    dollars_per_hour: float | None = None
    """Price of each machine."""
    license: str = "unknown"
    """Licence of the weights, as model hubs spell it, such as `cc-by-4.0`: for whoever publishes them to choose."""


def write_card(
    folder: Path,
    model: Path,
    description: ModelDescription,
    export_format: str,
    quantization: str,
    options: CardOptions,
) -> None:
    """Write the card into the folder of an export, after all other files: it reports their size."""
    events = _all_events(model)
    history = build_history(events)
    started = history.sessions[-1] if history.sessions else None
    manifest = options.data.manifest if options.data is not None else None
    if manifest is not None and started is not None and manifest.identity != started.data_hash:
        raise DragomanError(
            f"The run was trained on data {started.data_hash[:12]}, not on {manifest.identity[:12]}: "
            "give its own data set as --data."
        )
    languages = description.languages
    sections = [
        _front_matter(languages, export_format, options.license),
        f"# {languages.source} to {languages.target}, translation with a Transformer\n",
        _overview(folder, description.architecture, export_format, quantization, started),
        _usage(languages, export_format),
        _scores(model, history),
        _data(manifest, started),
        _training(events, history, options),
        _limits(languages, manifest),
    ]
    write_atomic(folder / CARD_FILE, "\n".join(sections))


def _all_events(model: Path) -> list[Event]:
    """The events of all workers of the run that a checkpoint belongs to; empty if there is no run."""
    run = RunFolder(model.resolve().parent.parent)
    if not run.config.exists():
        return []
    return [event for log in run.event_logs() for event in read_events(log)[0]]


def _front_matter(languages: Languages, export_format: str, license_id: str) -> str:
    """Metadata for model hubs, in YAML, which includes JSON."""
    codes = json.dumps([languages.source, languages.target])
    return (
        f"---\nlanguage: {codes}\nlicense: {license_id}\npipeline_tag: translation\n"
        f"library_name: {LIBRARIES[export_format]}\ntags: [dragoman]\n---\n"
    )


def _table(*rows: tuple[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in rows)]) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _overview(folder: Path, a: Architecture, export_format: str, quantization: str, started: RunStarted | None) -> str:
    parts = [f"{a.encoder_layers} + {a.decoder_layers} layers", f"{a.d_model} features", f"{a.heads} heads"]
    parts += [a.activation, a.norm, f"{a.positions} positions"]
    size_bytes = sum(file.stat().st_size for file in folder.iterdir())
    return _table(
        ("architecture", f"encoder-decoder Transformer: {', '.join(parts)}"),
        ("parameters", count(parameter_count(a))),
        ("vocabulary", f"{count(a.vocabulary)} rows, SentencePiece, shared by both languages"),
        ("format", f"{export_format}, {quantization}"),
        ("size", size(size_bytes)),
        ("trained with", f"Dragoman {started.version}, torch {started.torch_version}" if started else NOT_KNOWN),
    )


def _usage(languages: Languages, export_format: str) -> str:
    if export_format == "argos":
        return (
            "## Usage\n\n```python\nimport argostranslate.package, argostranslate.translate\n\n"
            'argostranslate.package.install_from_path("FILE.argosmodel")\n'
            f'argostranslate.translate.translate(text, "{languages.source}", "{languages.target}")\n```\n'
        )
    lines = ["## Usage\n"]
    if export_format == "huggingface":
        lines.append(f"```python\n{TRANSFORMERS_USAGE}```\n")
    lines += [
        "```",
        f"dragoman translate FOLDER text.{languages.source} > text.{languages.target}",
    ]
    if export_format == "ctranslate2":
        lines.append("dragoman serve FOLDER")
    return "\n".join([*lines, "```\n"])


def _scores(model: Path, history: RunHistory) -> str:
    """Scores of these weights if they were evaluated, else of the last evaluation before them."""
    state = model / "state.json"
    step = read_json(state)["step"] if state.exists() else None
    averages = history.incidents_of(CheckpointsAveraged)
    evaluations = [done for done in history.evaluations if step is None or done.step <= step]
    if not evaluations:
        return f"## Scores\n\n{NOT_KNOWN.capitalize()}: the run recorded no evaluation of these weights.\n"
    last = evaluations[-1]
    bleu, chrf, nll, subject = last.bleu, last.chrf, last.nll, f"step {count(last.step)}"
    if averages and model.name == "averaged":
        averaged = averages[-1]
        bleu, chrf, nll = averaged.bleu, averaged.chrf, averaged.nll
        subject = f"the average of {len(averaged.names)} checkpoints"
    rows = [
        (name, f"{value:.2f} ({signature})")
        for name, value, signature in (("BLEU", bleu, last.bleu_signature), ("chrF", chrf, last.chrf_signature))
        if value is not None
    ]
    rows.append(("loss", f"{nll:.4f} nats per token"))
    return f"## Scores\n\nOn the validation set, in float32, at {subject}:\n\n{_table(*rows)}"


def _data(manifest: Manifest | None, started: RunStarted | None) -> str:
    if manifest is None:
        identity = started.data_hash if started else NOT_KNOWN
        return f"## Data\n\nIdentity: `{identity}`. Sources, sizes and licences are {NOT_KNOWN}.\n"
    train = manifest.splits["train"]
    rows = _table(
        ("data set", f"{manifest.name}, identity `{manifest.identity}`"),
        ("training text", f"{count(train.pairs)} pairs, {size(train.text_bytes)}"),
        ("tokens", f"{count(train.source_tokens)} source, {count(train.target_tokens)} target"),
    )
    sources = ["| source | pairs before cleaning | after | licence |", "|---|---|---|---|"]
    sources += [
        f"| {_cell(source.name)} | {count(source.before.pairs)} | {count(source.after.pairs)} "
        f"| {_cell(source.licence) or NOT_KNOWN} |"
        for source in manifest.sources
    ]
    return f"## Data\n\n{rows}\n" + "\n".join(sources) + "\n"


def _training(events: Sequence[Event], history: RunHistory, options: CardOptions) -> str:
    if not history.sessions:
        return f"## Training\n\n{NOT_KNOWN.capitalize()}: this model is not in a run folder.\n"
    started, elapsed_s = history.started, history.elapsed_s
    workers = {event.worker: event for event in events if isinstance(event, RunStarted)}
    hosts = {event.host for event in workers.values()}
    devices = sorted({event.device for event in workers.values()})
    price = options.dollars_per_hour
    cost = NOT_KNOWN if price is None else f"{price * len(hosts) * elapsed_s / 3600:.2f} dollars"
    return "## Training\n\n" + _table(
        ("began with", "random weights" if started.start is None else started.start["model"]),
        ("steps", count(history.step)),
        ("time", f"{span(elapsed_s)} ({elapsed_s / 3600:.2f} h)"),
        ("workers", f"{started.world_size} on {len(hosts)} machine{'s' if len(hosts) > 1 else ''}"),
        ("hardware", f"{', '.join(devices)}; {started.precision}"),
        ("cost", cost),
    )


def _limits(languages: Languages, manifest: Manifest | None) -> str:
    sources = "its training text" if manifest is None else ", ".join(source.name for source in manifest.sources)
    return (
        "## Limits\n\n"
        f"The model translates from {languages.source} to {languages.target} only, sentence by sentence, and was "
        f"trained only on {sources}. Names, rare words and other kinds of text are translated worse than the "
        "scores suggest. Translations can be fluent and wrong: have important text checked by someone who knows "
        "both languages.\n"
    )
