"""The ledger of a distillation: where BLEU was lost between the teacher and the student that is shipped.

The systems form a chain, and neighbours differ in one thing. So the differences add up to the whole loss, and each has
its own interval, on the same sentences, and its own price.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from dragoman import pipeline
from dragoman.corpus.dataset import DataSet, Split
from dragoman.decoding import scoring
from dragoman.decoding.ctranslate2_translator import is_ctranslate2_folder
from dragoman.decoding.line_translator import LineTranslator
from dragoman.decoding.model_choice import find_model
from dragoman.decoding.one_core_speed import (
    load_on_one_core,
    measure_cpu_s,
    measure_words_per_s,
    one_torch_thread,
)
from dragoman.decoding.system_translations import EvaluationText
from dragoman.decoding.translator_loading import load
from dragoman.distillation.distillation_folder import DistillationFolder
from dragoman.distillation.kept_test_translations import KeptTestTranslations, TestTranslations
from dragoman.distillation.size_variants import larger_students, measure_variants
from dragoman.distillation.teacher_forecast import describe_better_teacher
from dragoman.exporting.exporter import file_sizes
from dragoman.model.model_folder import read_description
from dragoman.number_format import percent, size
from dragoman.progress_callback import Progress
from dragoman.synthesis.synthesis_folder import SynthesisDescription, SynthesisFolder
from dragoman.synthesis.synthesizer import weights_digest
from dragoman.telemetry.score_gains import Gain

WIDE_BEAM = 4
"""Beam that a student with a smaller one is compared with."""
SPEED_SENTENCES = 200
"""Sentences of the test set that are translated for the speed."""
PRICE_SENTENCES = 64
"""The same for the price of the synthetic text. Fewer: a teacher takes long on one core."""
TEACHER, WRITER, STUDENT, BASELINE = "teacher", "teacher, as it wrote", "student", "student without a teacher"


@dataclass(frozen=True)
class MeasuredSystem:
    """A row of the table of systems. Size and speed are those of its int8 export on one core, with its own beam."""

    name: str
    size_bytes: int
    words_per_s: float
    beam: int
    bleu: float
    chrf: float


@dataclass(frozen=True)
class LedgerRow:
    """The BLEU that one cause took, and what it would cost to win it back."""

    cause: str
    before: str
    after: str
    bleu: float
    low: float
    high: float
    win_back: str


class QualityLedger:
    """Measures the systems of a distillation, and writes the ledger."""

    def __init__(self, folder: DistillationFolder, teacher: Path, data: DataSet, progress: Progress) -> None:
        self._folder, self._teacher, self._data, self._progress = folder, teacher, data, progress
        self._synthesis = SynthesisFolder(folder.synthetic).read()
        """None if the text was written elsewhere."""
        self.split = compared_split(data)
        self._text = EvaluationText.from_dataset(data.path, self.split)
        assert self._text.sources is not None
        self._sources = self._text.sources
        self._kept = KeptTestTranslations(folder.measurements, self._sources, progress)
        student = folder.student.export
        self._description = read_description(student)
        self._beam = self._description.decoding.beam
        self._int8 = {TEACHER: self._teacher_export(), STUDENT: student}
        if folder.baseline.export.exists():
            self._int8[BASELINE] = folder.baseline.export
        self._float32 = self._export_once(folder.student.run, "student-float32", "float32")

    def measure(self) -> dict[str, Any]:
        """Everything that the report shows, as JSON."""
        translations = self._translate()
        speeds, rows = self._speeds(), []
        steps = [
            ("synthetic text", TEACHER, WRITER, self._price_of_text(translations)),
            ("student's size and training", WRITER, f"{STUDENT}, float32, beam {WIDE_BEAM}", self._price_of_size()),
            ("beam", f"{STUDENT}, float32, beam {WIDE_BEAM}", f"{STUDENT}, float32", self._price_of_beam(speeds)),
            ("int8", f"{STUDENT}, float32", STUDENT, self._price_of_float32(speeds)),
            ("all together", TEACHER, STUDENT, self._price_of_teacher(speeds)),
        ]
        if BASELINE in translations:
            steps.append(("what the teacher brought", BASELINE, STUDENT, ""))
        for number, (cause, before, after, price) in enumerate(steps):
            self._progress("Comparing the systems", number, len(steps))
            gain = scoring.measure_gain(
                translations[before].lines, translations[after].lines, self._text.references, self._language
            )
            win_back = price or price_of_teaching(gain)
            rows.append(LedgerRow(cause, before, after, gain.bleu, gain.low, gain.high, win_back))
        self._progress("Comparing the systems", len(steps), len(steps))
        return {
            "set": self.split,
            "sentences": len(self._sources),
            "signature": self._score(translations[TEACHER].lines).bleu.signature,
            "upper_bound": self._upper_bound(translations[TEACHER].lines),
            "systems": [asdict(self._system(name, translations[name].lines, speeds)) for name in self._int8],
            "ledger": [asdict(row) for row in rows],
        }

    @property
    def _language(self) -> str:
        return self._data.languages.target

    def _score(self, lines: Sequence[str]) -> scoring.Score:
        return scoring.score(lines, self._text.references, language=self._language)

    def _upper_bound(self, lines: Sequence[str]) -> dict[str, Any]:
        """The teacher's BLEU with its interval: no student is expected above it."""
        bleu, low, high = scoring.measure_bleu(lines, self._text.references, self._language)
        return {"bleu": bleu, "low": low, "high": high, "win_back": describe_better_teacher(self._teacher)}

    def _system(self, name: str, lines: Sequence[str], speeds: dict[str, float]) -> MeasuredSystem:
        score, export = self._score(lines), self._int8[name]
        return MeasuredSystem(
            name, folder_size(export), speeds[name], read_description(export).decoding.beam, score.bleu.value,
            score.chrf.value,
        )  # fmt: skip

    def _translate(self) -> dict[str, TestTranslations]:
        kept = self._kept
        made = {TEACHER: kept.of(TEACHER, self._teacher)}
        made[WRITER] = made[TEACHER] if self._synthesis is None else self._write_again(self._synthesis)
        wide = f"{STUDENT}, float32, beam {WIDE_BEAM}"
        made[f"{STUDENT}, float32"] = kept.of("student float32", self._float32, "cpu", beam=self._beam)
        made[wide] = kept.of("student float32", self._float32, "cpu", beam=WIDE_BEAM)
        for name in (STUDENT, BASELINE):
            if name in self._int8:
                made[name] = kept.of(name, self._int8[name], "cpu", beam=self._beam)
        return made

    def _write_again(self, synthesis: SynthesisDescription) -> TestTranslations:
        """The test set, translated as the synthetic text was."""
        device = "cpu" if synthesis.job.device == "cpu" else None  # The GPU may have been another machine's.
        return self._kept.of(WRITER, self._writer(), device, **synthesis.job.decoding)

    def _speeds(self) -> dict[str, float]:
        """Words a second on one core: of each int8 export, and of the student with a wider beam and in float32."""
        translators = {name: load_on_one_core(export) for name, export in self._int8.items()}
        translators["beam"] = load_on_one_core(self._folder.student.export, beam=WIDE_BEAM)
        translators["float32"] = load_on_one_core(self._float32)
        self._progress("Measuring the speed on one core", 0, 1)
        speeds = measure_words_per_s(translators, self._sources[:SPEED_SENTENCES])
        self._progress("Measuring the speed on one core", 1, 1)
        return speeds

    def _price_of_text(self, translations: dict[str, TestTranslations]) -> str:
        if self._synthesis is None:
            return "not known: the text was written elsewhere"
        if self._synthesis.job.device == "cpu" and not torch.cuda.is_available():
            ratio = self._compare_on_one_core(self._synthesis)
        else:
            ratio = translations[TEACHER].seconds / translations[WRITER].seconds
        return f"synthesize as the teacher translates: {ratio:.1f} x the time"

    def _compare_on_one_core(self, synthesis: SynthesisDescription) -> float:
        """CPU time of the teacher as it translates, against that as it wrote: other work on the machine is left out."""
        sample = self._sources[:PRICE_SENTENCES]
        own, writer = _load_on_one_core(self._teacher), _load_on_one_core(self._writer(), **synthesis.job.decoding)
        works = {TEACHER: lambda: own.translate(sample), WRITER: lambda: writer.translate(sample)}
        with one_torch_thread():
            times_s = measure_cpu_s(works, rounds=1)
        return times_s[TEACHER][0] / times_s[WRITER][0]

    def _writer(self) -> Path:
        """The teacher as it wrote the synthetic text: the copy that the synthesis made, if it made one."""
        copy = SynthesisFolder(self._folder.synthetic).model
        return copy if copy.exists() else self._teacher

    def _price_of_size(self) -> str:
        variants = larger_students(self._description.architecture)
        pairs = list(zip(self._sources, self._text.references, strict=True))
        costs = measure_variants(self._description, variants, pairs, self._beam)
        return "; ".join(
            f"{name}: {percent(cost.time_ratio - 1)} more time, {size(cost.size_bytes)}" for name, cost in costs.items()
        )

    def _price_of_beam(self, speeds: dict[str, float]) -> str:
        if self._beam >= WIDE_BEAM:
            return f"nothing: the student has a beam of {self._beam}"
        return f"decoding.beam={WIDE_BEAM}: {speeds[STUDENT] / speeds['beam']:.1f} x the time"

    def _price_of_float32(self, speeds: dict[str, float]) -> str:
        ratio = folder_size(self._float32) / folder_size(self._folder.student.export)
        return f"--quantization float32: {ratio:.1f} x the size, {speeds[STUDENT] / speeds['float32']:.1f} x the time"

    def _price_of_teacher(self, speeds: dict[str, float]) -> str:
        ratio = folder_size(self._int8[TEACHER]) / folder_size(self._folder.student.export)
        return f"the teacher in int8: {ratio:.1f} x the size, {speeds[STUDENT] / speeds[TEACHER]:.1f} x the time"

    def _teacher_export(self) -> Path:
        found = find_model(self._teacher)
        return found if is_ctranslate2_folder(found) else self._export_once(self._teacher, "teacher-int8", "int8")

    def _export_once(self, model: Path, name: str, quantization: str) -> Path:
        """An export for the measurements, made again if the model has changed."""
        path = self._folder.measurements / f"{name}-{weights_digest(find_model(model))[:12]}"
        return path if path.exists() else pipeline.export(model, path, quantization=quantization)


def price_of_teaching(gain: Gain) -> str:
    if gain.low > 0:
        return "nothing to win back: this was gained"
    if gain.high < 0:
        return "train the student without this teacher"
    return "nothing: no significant difference"


def compared_split(data: DataSet) -> Split:
    """The set that systems are compared on: the validation set if there is no test set."""
    return "test" if "test" in data.manifest.splits else "valid"


def _load_on_one_core(model: Path, **decoding: Any) -> LineTranslator:
    """A translator on the CPU; one on torch has the number of threads that torch has when it translates."""
    found = find_model(model)
    return load_on_one_core(found, **decoding) if is_ctranslate2_folder(found) else load(found, "cpu", **decoding)


def folder_size(export: Path) -> int:
    """Bytes of all files of an export."""
    return sum(file_sizes(export).values())
