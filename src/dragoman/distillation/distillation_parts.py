"""The parts of a distillation. Each calls the function of the command that one would type for it."""

from pathlib import Path

from dragoman import pipeline
from dragoman.corpus.dataset import TOKENIZER_FILE, text_files
from dragoman.distillation.distillation_folder import DistillationFolder, Part, StudentFolder
from dragoman.distillation.distillation_inputs import DistillationInputs, cost_of
from dragoman.distillation.quality_ledger import QualityLedger
from dragoman.distillation.training_text import write_training_text
from dragoman.errors import DragomanError
from dragoman.files import write_json
from dragoman.progress_callback import Progress

CORPUS = "corpus"
"""Name of the files of a synthetic corpus, without the language."""
COMPARISON = "comparison"


def make_parts(
    folder: DistillationFolder, inputs: DistillationInputs, progress: Progress, *, compare: bool
) -> list[Part]:
    """All parts in order. With `compare`, the same student is also trained without a teacher."""
    builder = _PartBuilder(folder, inputs, progress)
    parts = [builder.text(), builder.synthetic(), *builder.student(folder.student, "")]
    if compare:
        parts += builder.student(folder.baseline, "baseline ")
    return [*parts, builder.comparison(parts)]


class _PartBuilder:
    def __init__(self, folder: DistillationFolder, inputs: DistillationInputs, progress: Progress) -> None:
        self._folder, self._inputs, self._progress = folder, inputs, progress

    def text(self) -> Part:
        folder, data = self._folder.text, self._inputs.data
        return Part(
            "text", folder, f"the training pairs of {data.path} as text",
            lambda: _ignore(write_training_text(data, folder, self._progress)), ("synthetic", "baseline data"),
        )  # fmt: skip

    def synthetic(self) -> Part:
        inputs, out = self._inputs, self._folder.synthetic
        texts = [str(self._training_text()[0]), *inputs.text]
        beam = "" if inputs.beam is None else f" decoding.beam={inputs.beam}"

        def make() -> None:
            pipeline.synthesize(
                inputs.teacher, texts, out, hosts=inputs.hosts, progress=self._progress, beam=inputs.beam
            )

        command = f"dragoman synthesize {inputs.teacher} {' '.join(texts)} --out {out}{beam}"
        return Part("synthetic", out, command, make, ("data",))

    def student(self, student: StudentFolder, prefix: str) -> list[Part]:
        """Data set, run and export of a student: the one with a teacher, or with `prefix` the one without."""
        recipe, folders = self._inputs.recipe, student
        pairs = self._synthetic_corpus() if not prefix else self._training_text()
        inputs = f"{pairs[0]} {pairs[1]}"
        return [
            Part(
                f"{prefix}data", folders.data, f"dragoman prepare {inputs} --recipe {recipe} --out {folders.data}",
                lambda: self._prepare(pairs, student, is_baseline=bool(prefix)), (f"{prefix}run",),
            ),
            Part(
                f"{prefix}run", folders.run, f"dragoman train {recipe} --data {folders.data} --out {folders.run}",
                lambda: self._train(student), (f"{prefix}export", COMPARISON),
            ),
            Part(
                f"{prefix}export", folders.export, f"dragoman export {folders.run} --out {folders.export}",
                lambda: _ignore(pipeline.export(folders.run, folders.export, overwrite=True)),
                ("baseline data", COMPARISON),
            ),
        ]  # fmt: skip

    def comparison(self, parts: list[Part]) -> Part:
        systems = f"{self._inputs.teacher} {self._folder.student.export}"
        command = f"dragoman score --compare {systems} --data {self._inputs.data.path}"
        return Part(COMPARISON, self._folder.result, command, lambda: self._compare(parts), ())

    def _prepare(self, pairs: tuple[Path, Path], student: StudentFolder, *, is_baseline: bool) -> None:
        """The real validation and test sets, and the tokenizer of the student for the one that it is compared with."""
        data, languages = self._inputs.data, self._inputs.data.languages
        sets = {
            split: [",".join(str(path.resolve()) for path in text_files(data.path, split, languages))]
            if split in data.manifest.splits
            else []
            for split in ("valid", "test")
        }
        pipeline.prepare(
            pairs, student.data, valid=sets["valid"], test=sets["test"],
            languages=f"{languages.source}-{languages.target}", file_format="lines",
            tokenizer=self._folder.student.export / TOKENIZER_FILE if is_baseline else None,
            recipe=self._inputs.recipe, settings=self._inputs.overrides, overwrite=True, progress=self._progress,
        )  # fmt: skip

    def _train(self, student: StudentFolder) -> None:
        inputs = self._inputs
        trained = pipeline.train(
            inputs.recipe, student.data, student.run, settings=inputs.overrides, workers=inputs.workers
        )
        if trained.reason == "interrupted":
            raise KeyboardInterrupt
        if trained.reason == "diverged":
            raise DragomanError(
                f"The training in {student.run} diverged: lower schedule.learning_rate, and choose another --out."
            )

    def _compare(self, parts: list[Part]) -> None:
        folder, inputs = self._folder, self._inputs
        measured = QualityLedger(folder, Path(inputs.teacher), inputs.data, self._progress).measure()
        records, money = folder.records(), inputs.resolved.settings.money
        made = [
            {
                "name": part.name,
                "state": folder.state(part),
                "seconds": None if part.name not in records else records[part.name].seconds,
                "cost": None if part.name not in records else cost_of(records[part.name].seconds, money),
            }
            for part in parts
        ]
        facts = {"name": folder.path.name, "teacher": inputs.teacher, "recipe": inputs.recipe}
        write_json(folder.result, {**facts, **measured, "parts": made, "currency": money.currency})

    def _training_text(self) -> tuple[Path, Path]:
        return text_files(self._folder.text, "train", self._inputs.data.languages)

    def _synthetic_corpus(self) -> tuple[Path, Path]:
        return text_files(self._folder.synthetic, CORPUS, self._inputs.data.languages)


def _ignore(_: object) -> None:
    """Drop a result that nobody needs."""
