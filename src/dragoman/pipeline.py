"""The Python API: each step of the pipeline as a function. The commands call the same functions.

Heavy modules are imported only when a function runs, so that `import dragoman` is fast. Problems with a remedy are
raised as `DragomanError`. Without a `progress` callback, functions that take long show progress bars, in a terminal or
a notebook.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dragoman.errors import DragomanError
from dragoman.extras import explain_missing_extra
from dragoman.progress_callback import Progress
from dragoman.synthetic_corpus import SyntheticCorpus, synthesize

if TYPE_CHECKING:
    from dragoman.corpus.catalog import Corpus
    from dragoman.corpus.dataset import DataSet
    from dragoman.decoding.line_translator import LineTranslator
    from dragoman.decoding.scoring import Comparison, Score
    from dragoman.decoding.system_translations import EvaluationText
    from dragoman.insight.data_forecast import LearningCurve
    from dragoman.insight.report_content import ReportContent
    from dragoman.insight.run_result import RunResult

__all__ = [
    "PreparedData",
    "Report",
    "SyntheticCorpus",
    "TrainedRun",
    "compare",
    "export",
    "learning_curve",
    "load",
    "prepare",
    "report",
    "score",
    "synthesize",
    "train",
    "translate",
    "translate_files",
]

PathLike = str | Path
Overrides = Mapping[str, Any] | Sequence[str]
"""Settings that differ from the recipe's: `{"training.steps": 100}`, or `["training.steps=100"]`."""


@dataclass(frozen=True)
class PreparedData:
    """A data set, and the corpus that it was made from."""

    path: Path
    corpus: "Corpus"
    is_new: bool
    """False if it existed already, made from the same inputs and settings."""

    @property
    def dataset(self) -> "DataSet":
        """Its manifest, tokenizer, pairs and text."""
        from dragoman.corpus.dataset import DataSet

        return DataSet(self.path)


@explain_missing_extra
def prepare(
    corpus: PathLike | Sequence[PathLike],
    out: PathLike,
    *,
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    languages: str | None = None,
    file_format: str | None = None,
    encoding: str | None = None,
    mirror: PathLike | None = None,
    tokenizer: PathLike | None = None,
    score_with: PathLike | None = None,
    score_back_with: PathLike | None = None,
    recipe: str | None = None,
    settings: Overrides = (),
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PreparedData:
    """Turn text into a cleaned, tokenized, memory-mapped data set at `out`. Resumes if it was interrupted.

    `corpus` is a name from the catalog, a corpus description (.toml), or one or more files; `valid` and `test` are
    files, or two aligned ones as "A,B". The other arguments are the options of `dragoman prepare`.
    """
    from dragoman.corpus.corpus_choice import find_corpus
    from dragoman.corpus.preparation import prepare as prepare_dataset
    from dragoman.decoding.model_choice import find_tokenizer
    from dragoman.decoding.pair_scoring import load_scorer
    from dragoman.recipe import resolve
    from dragoman.terminal import showing_progress

    if score_back_with is not None and score_with is None:
        raise DragomanError("--score-back-with needs --score-with, a model of the direction of the pairs: add it.")
    arguments = [str(corpus)] if isinstance(corpus, str | Path) else [str(each) for each in corpus]
    resolved = resolve(recipe, settings).settings
    with showing_progress(progress) as show:
        found = find_corpus(
            arguments, list(valid), list(test), languages, file_format, _path(mirror), show, encoding=encoding
        )
        scorer = None
        if score_with is not None:
            scorer = load_scorer(Path(score_with), _path(score_back_with), found.languages)
        is_new = prepare_dataset(
            found, Path(out), resolved, workers=workers or len(os.sched_getaffinity(0)), overwrite=overwrite,
            tokenizer=None if tokenizer is None else find_tokenizer(Path(tokenizer), found.languages),
            scorer=scorer, progress=show,
        )  # fmt: skip
    return PreparedData(Path(out), found, is_new)


@dataclass(frozen=True)
class TrainedRun:
    """A run folder, and why its training ended."""

    path: Path
    reason: str
    """`finished`, `patience` (stopped early), `interrupted` (the same call resumes) or `diverged`."""

    @property
    def result(self) -> "RunResult | None":
        """The best checkpoint with its scores on the validation set; None before the first evaluation."""
        from dragoman.insight.run_history import read_history
        from dragoman.insight.run_result import find_result

        return find_result(read_history(self.path))


@explain_missing_extra
def train(
    recipe: str,
    data: PathLike | Sequence[PathLike],
    out: PathLike,
    *,
    settings: Overrides = (),
    start: PathLike | None = None,
    workers: int | None = None,
    also_evaluate: Sequence[str] = (),
) -> TrainedRun:
    """Train a model on this machine, or resume the run at `out`.

    `data` is a data set, or several with weights: `["new", "old@0.3"]`. `start` is a model whose weights the run begins
    with. `also_evaluate` names other sets to evaluate on: `["news=news.en,news.de"]`.

    `workers` processes train together (default: one per GPU, or one). Several are started as new Python processes: a
    script that trains with them needs the usual `if __name__ == "__main__":`. Ctrl-C, or the stop button of a notebook,
    finishes the step and saves a checkpoint.
    """
    from dragoman.decoding.model_choice import find_model
    from dragoman.decoding.validation_scorer import make_scorer
    from dragoman.distributed.cluster import launched_externally
    from dragoman.launch import local_launcher, scheduler_environment
    from dragoman.recipe import resolve
    from dragoman.training.start_model import StartModel
    from dragoman.training.worker import TrainingJob

    scheduler_environment.join_world()
    resolved = resolve(recipe, settings)
    model = None if start is None else StartModel(find_model(Path(start)), resolved.given)
    count = workers or local_launcher.default_workers()
    job = TrainingJob(resolved.settings, data, Path(out), local_launcher.worker_threads(count), model, also_evaluate)
    if not launched_externally():  # There, workers report it together.
        dataset, _ = job.open_texts()
        if model is not None:
            model.open(resolved.settings, dataset)
    return TrainedRun(Path(out), local_launcher.train(job, count, make_scorer))


@explain_missing_extra
def learning_curve(
    recipe: str,
    data: PathLike,
    out: PathLike,
    *,
    parts: Sequence[float] = (0.1, 0.33, 1),
    settings: Overrides = (),
    start: PathLike | None = None,
    workers: int | None = None,
) -> "LearningCurve":
    """Train on parts of a data set, and forecast what twice as many pairs would bring.

    Each run is a folder in `out`. They differ in the pairs alone: all have the same number of steps, and of each the
    evaluation with the lowest validation loss counts. Runs that exist already are resumed, or used as they are.
    """
    from dragoman.corpus.data_mixture import open_data, parse_parts
    from dragoman.insight.data_forecast import CurvePart, LearningCurve
    from dragoman.insight.run_history import read_history
    from dragoman.insight.run_result import find_lowest_loss

    arguments = {part: f"{data}#{part:f}" for part in parse_parts(parts)}
    pairs = {part: open_data(argument).manifest.splits["train"].pairs for part, argument in arguments.items()}
    if len(set(pairs.values())) < len(pairs):
        listed = ", ".join(f"{part:f} ({count:,})" for part, count in pairs.items())
        raise DragomanError(f"Several parts have the same number of pairs: {listed}. Leave out all but one of them.")
    found = []
    for part, argument in arguments.items():
        run = train(recipe, argument, Path(out) / f"part-{part:f}", settings=settings, start=start, workers=workers)
        if run.reason == "interrupted":
            raise KeyboardInterrupt
        # Not the model that all of them begin with, which no pair has changed.
        if (best := find_lowest_loss(read_history(run.path))) is None:
            raise DragomanError(f"{run.path} has no evaluation: lower evaluation.every, so that each run has some.")
        found.append(CurvePart(pairs[part], best.nll, best.bleu, str(run.path)))
    return LearningCurve(found)


@explain_missing_extra
def load(
    path: PathLike, device: str | None = None, glossary: PathLike | None = None, **decoding: Any
) -> "LineTranslator":
    """A translator from the folder of a run, a checkpoint or an export: `dragoman.load("run").translate(["Hello."])`.

    Without a device, a GPU is used if there is one. `glossary` is a file of terms with their translations. `decoding`
    changes settings such as `beam=8`.
    """
    from dragoman.decoding.translator_loading import load as load_translator

    if glossary is None:
        return load_translator(path, device, **decoding)

    from dragoman.exporting.glossary_model import load_with_glossary

    return load_with_glossary(Path(path), Path(glossary), decoding)


@overload
def translate(model: "PathLike | LineTranslator", text: str, **decoding: Any) -> str: ...
@overload
def translate(model: "PathLike | LineTranslator", text: Sequence[str], **decoding: Any) -> list[str]: ...
@explain_missing_extra
def translate(model: "PathLike | LineTranslator", text: str | Sequence[str], **decoding: Any) -> str | list[str]:
    """Translate a text, or each of several. A model that `load` returned is not read again.

    `decoding` changes settings such as `beam=8`.
    """
    lines = [text] if isinstance(text, str) else text
    translator = load(model, **decoding) if isinstance(model, str | Path) else model
    translations = translator.translate(lines)
    return translations[0] if isinstance(text, str) else translations


@explain_missing_extra
def translate_files(
    model: "PathLike | LineTranslator",
    files: Sequence[PathLike],
    out: PathLike,
    *,
    progress: Progress | None = None,
) -> list[Path]:
    """Translate documents in their own format, into the file or folder `out`. Returns the paths of the translations."""
    from dragoman.documents.file_translation import check_files
    from dragoman.documents.file_translation import translate_files as translate_documents
    from dragoman.terminal import showing_progress

    names = [str(file) for file in files]
    check_files(names, Path(out))
    translator = load(model) if isinstance(model, str | Path) else model
    with showing_progress(progress) as show:
        return [path for _, path in translate_documents(translator, names, Path(out), show)]


@explain_missing_extra
def score(
    system: PathLike,
    *,
    source: PathLike | None = None,
    reference: PathLike | None = None,
    data: PathLike | None = None,
    split: str = "test",
    progress: Progress | None = None,
) -> "Score":
    """BLEU and chrF of a system: a run, a model, or a file of translations.

    The text is a split of the data set `data`, or the files `source` and `reference`.
    """
    from dragoman.decoding import scoring

    outputs, text = _outputs([str(system)], source, reference, data, split, progress)
    return scoring.score(outputs[0], text.references)


@explain_missing_extra
def compare(
    baseline: PathLike,
    system: PathLike,
    *,
    source: PathLike | None = None,
    reference: PathLike | None = None,
    data: PathLike | None = None,
    split: str = "test",
    html: PathLike | None = None,
    progress: Progress | None = None,
) -> "Comparison":
    """Compare two systems by paired bootstrap. `html` is a page to write with the sentences that differ most."""
    from dragoman.decoding import comparison_page, scoring
    from dragoman.files import write_atomic

    systems = [str(baseline), str(system)]
    outputs, text = _outputs(systems, source, reference, data, split, progress)
    comparison = scoring.compare(outputs[0], outputs[1], text.references)
    if html is not None:
        differences = comparison_page.sentence_differences(text.sources, text.references, *outputs)
        write_atomic(Path(html), comparison_page.as_html(systems, comparison, differences, len(text.references)))
    return comparison


@explain_missing_extra
def export(
    model: PathLike,
    out: PathLike,
    to: str = "ctranslate2",
    *,
    quantization: str | None = None,
    data: PathLike | None = None,
    dollars_per_hour: float | None = None,
    license_id: str = "unknown",
    overwrite: bool = False,
) -> Path:
    """Export a model with a model card: `to` is `ctranslate2`, `argos`, `huggingface` or `safetensors`.

    `data`, `dollars_per_hour` and `license_id` are for the model card. Returns the folder, or the file for `argos`.
    """
    from dragoman.corpus.dataset import DataSet
    from dragoman.exporting.exporter import EXPORT_FORMATS, QUANTIZATIONS
    from dragoman.exporting.exporter import export as export_model
    from dragoman.exporting.model_card import CardOptions

    export_format = next((known for known in EXPORT_FORMATS if known == to), None)
    if export_format is None:
        raise DragomanError(f"--to {to} is not known: use {', '.join(EXPORT_FORMATS)}.")
    weight_type = next((known for known in QUANTIZATIONS if known == quantization), None)
    if quantization is not None and weight_type is None:
        raise DragomanError(f"--quantization {quantization} is not known: use {', '.join(QUANTIZATIONS)}.")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", license_id):
        raise DragomanError(f"--license {license_id} is not an identifier: use one such as cc-by-4.0, mit or other.")
    card_options = CardOptions(None if data is None else DataSet(Path(data)), dollars_per_hour, license_id)
    return export_model(Path(model), Path(out), export_format, weight_type, card_options, overwrite=overwrite)


@dataclass(frozen=True)
class Report:
    """The report of one or more runs. In a notebook, it shows itself as Markdown."""

    content: "ReportContent" = field(repr=False)
    """Everything that the page shows, as JSON: summaries of the runs, and the comparison of several."""

    @property
    def markdown(self) -> str:
        """The answers as text, without the charts."""
        from dragoman.insight.report_writer import to_markdown

        return to_markdown(self.content)

    def _repr_markdown_(self) -> str:
        return self.markdown

    def write_html(self, path: PathLike) -> None:
        """Write the page as one self-contained file."""
        from dragoman.insight.report_writer import write_html

        write_html(self.content, Path(path))


@explain_missing_extra
def report(*runs: PathLike) -> Report:
    """What happened in a run, what limits it, and what to do. Several runs are compared."""
    from dragoman.insight.report_writer import read_report
    from dragoman.paired_bootstrap import bootstrap

    return Report(read_report([Path(run) for run in runs], bootstrap))


def _outputs(
    systems: Sequence[str],
    source: PathLike | None,
    reference: PathLike | None,
    data: PathLike | None,
    split: str,
    progress: Progress | None,
) -> "tuple[list[list[str]], EvaluationText]":
    """The translations of systems, and the text that they are scored on."""
    from dragoman.decoding.system_translations import EvaluationText, system_outputs
    from dragoman.terminal import showing_progress

    if data is not None:
        text = EvaluationText.from_dataset(Path(data), split)
    elif reference is not None:
        text = EvaluationText.from_files(_path(source), Path(reference))
    else:
        raise DragomanError("score needs references: give --ref FILE (and --src FILE for models), or --data DATA.")
    with showing_progress(progress) as show:
        return system_outputs(systems, text, show), text


def _path(path: PathLike | None) -> Path | None:
    return None if path is None else Path(path)
