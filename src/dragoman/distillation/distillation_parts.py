"""The parts of a distillation. Each calls the function of the command that one would type for it."""

from pathlib import Path

from dragoman import pipeline
from dragoman.command_line import command_line
from dragoman.corpus.dataset import MANIFEST_FILE, TOKENIZER_FILE, DataSet, text_files
from dragoman.corpus.sources import Languages
from dragoman.distillation.distillation_folder import DistillationFolder, Part, StudentFolder
from dragoman.distillation.distillation_inputs import DistillationInputs, cost_of, read_languages
from dragoman.distillation.quality_ledger import QualityLedger, compared_split
from dragoman.distillation.training_text import write_training_text
from dragoman.errors import DragomanError
from dragoman.files import write_json
from dragoman.progress_callback import Progress
from dragoman.run_folder import RunFolder

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


def check_own_folders(folder: DistillationFolder, languages: Languages) -> None:
    """Raise one error for data sets and runs in the folder that have another direction."""
    found: dict[Path, Languages] = {}
    for student in (folder.student, folder.baseline):
        if (student.data / MANIFEST_FILE).exists():
            found[student.data] = DataSet(student.data).languages
        if RunFolder(student.run).checkpoints.exists() and any(RunFolder(student.run).checkpoints.iterdir()):
            found[student.run] = read_languages(str(student.run))
    wrong = [
        f"{path} is {its.direction}, and the data set is {languages.direction}: remove it, or put one of this "
        "direction there."
        for path, its in found.items()
        if its != languages
    ]
    if wrong:
        raise DragomanError("\n  ".join(wrong))


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
        hosts = ["--hosts", ",".join(inputs.hosts)] if inputs.hosts else []
        backward = [] if inputs.score_back_with is None else ["--score-back-with", inputs.score_back_with]
        beam = [] if inputs.beam is None else [f"decoding.beam={inputs.beam}"]

        def make() -> None:
            pipeline.synthesize(
                inputs.teacher, texts, out, score_back_with=inputs.score_back_with, hosts=inputs.hosts,
                settings=inputs.cleaning_arguments, progress=self._progress, beam=inputs.beam,
            )  # fmt: skip

        settings = [*beam, *inputs.cleaning_arguments]
        command = command_line("synthesize", inputs.teacher, *texts, "--out", out, *backward, *hosts, *settings)
        return Part("synthetic", out, command, make, ("data",))

    def student(self, student: StudentFolder, prefix: str) -> list[Part]:
        """Data set, run and export of a student: the one with a teacher, or with `prefix` the one without."""
        pairs = self._synthetic_corpus() if not prefix else self._training_text()
        # The one without a teacher has the tokenizer of the one that it is compared with.
        tokenizer = self._folder.student.export / TOKENIZER_FILE if prefix else None
        return [
            Part(
                f"{prefix}data", student.data, self._prepare_command(pairs, student, tokenizer),
                lambda: self._prepare(pairs, student, tokenizer), (f"{prefix}run",),
            ),
            Part(
                f"{prefix}run", student.run, self._train_command(student),
                lambda: self._train(student), (f"{prefix}export", COMPARISON),
            ),
            Part(
                f"{prefix}export", student.export,
                command_line("export", student.run, "--out", student.export, "--overwrite"),
                lambda: _ignore(pipeline.export(student.run, student.export, overwrite=True)),
                ("baseline data", COMPARISON),
            ),
        ]  # fmt: skip

    def comparison(self, parts: list[Part]) -> Part:
        data, student = self._inputs.data, self._folder.student.export
        split = ["--split", compared_split(data)]
        command = command_line("score", "--compare", self._inputs.teacher, student, "--data", data.path, *split)
        return Part(COMPARISON, self._folder.result, command, lambda: self._compare(parts), ())

    def _evaluation_sets(self) -> dict[str, str]:
        """The real validation and test sets, as `prepare` takes them."""
        data = self._inputs.data
        return {
            split: ",".join(str(path.resolve()) for path in text_files(data.path, split, data.languages))
            for split in ("valid", "test")
            if split in data.manifest.splits
        }

    def _prepare(self, pairs: tuple[Path, Path], student: StudentFolder, tokenizer: Path | None) -> None:
        sets = {split: [files] for split, files in self._evaluation_sets().items()}
        pipeline.prepare(
            pairs, student.data, valid=sets.get("valid", []), test=sets.get("test", []),
            languages=self._inputs.data.languages.direction, file_format="lines", tokenizer=tokenizer,
            recipe=self._inputs.recipe, settings=self._inputs.overrides, overwrite=True, progress=self._progress,
        )  # fmt: skip

    def _prepare_command(self, pairs: tuple[Path, Path], student: StudentFolder, tokenizer: Path | None) -> str:
        sets = [word for split, files in self._evaluation_sets().items() for word in (f"--{split}", files)]
        return command_line(
            "prepare", *pairs, "--out", student.data, *sets,
            "--languages", self._inputs.data.languages.direction, "--format", "lines",
            *(["--tokenizer", tokenizer] if tokenizer else []), "--recipe", self._inputs.recipe, "--overwrite",
            *self._inputs.override_arguments,
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

    def _train_command(self, student: StudentFolder) -> str:
        inputs = self._inputs
        workers = ["--workers", inputs.workers] if inputs.workers else []
        return command_line(
            "train", inputs.recipe, "--data", student.data, "--out", student.run, *workers, *inputs.override_arguments
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
