"""`dragoman distill`: synthesize, prepare, train, export and compare, each with the function of its own command."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.extras import explain_missing_extra
from dragoman.pipeline import Overrides, PathLike
from dragoman.progress_callback import NotedProgress, Progress

if TYPE_CHECKING:
    from dragoman.distillation.distillation_folder import DistillationFolder
    from dragoman.distillation.distillation_inputs import DistillationInputs
    from dragoman.distillation.remaining_parts import RemainingParts

DEFAULT_RECIPE = "student"


@dataclass(frozen=True)
class PartStart:
    """A part that is about to be made, or that is there already."""

    number: int
    parts: int
    name: str
    command: str
    state: str
    """`to do`, `begun` (it is resumed), `complete` or `own` (it is used as it is)."""
    seconds_so_far: float
    """Time of all parts until now."""
    cost_so_far: float | None
    """None if no price is known."""
    currency: str
    left: "RemainingParts"
    """Time of this part, if it is not complete, and of all that follow."""
    total_cost: float | None
    """The cost at the end. None if a price or the time of a part is not known."""


@dataclass(frozen=True)
class Distillation:
    """A finished distillation."""

    path: Path
    content: dict[str, Any] = field(repr=False)
    """Systems, ledger, parts: the content of `distillation.json`."""

    @property
    def model(self) -> Path:
        """The student's int8 export."""
        return self.path / "export"

    @property
    def markdown(self) -> str:
        """The report as text."""
        from dragoman.insight.distillation_report import to_markdown

        return to_markdown(self.content)

    def _repr_markdown_(self) -> str:
        return self.markdown


@explain_missing_extra
def distill(
    teacher: PathLike,
    data: PathLike,
    out: PathLike,
    *,
    recipe: str = DEFAULT_RECIPE,
    text: Sequence[PathLike] = (),
    settings: Overrides = (),
    beam: int | None = None,
    score_back_with: PathLike | None = None,
    compare: bool = False,
    hosts: Sequence[str] = (),
    workers: int | None = None,
    on_part: Callable[[PartStart], None] | None = None,
    progress: Progress | None = None,
) -> Distillation:
    """Train a small student on what a teacher makes of the source side of a data set, and of more text.

    Each part is a folder in `out`. A part that is complete is skipped, one that was begun is resumed, and a folder
    `synthetic`, `data` or `run` that one has put there oneself is used as it is. With `compare`, the same student is
    also trained on the original pairs. `score_back_with` is a model of the other direction: translations on which it
    disagrees with the teacher are dropped. `hosts` are other machines that translate. Validation and test set are those
    of the data set: real text, never synthetic.
    """
    import torch  # noqa: F401 (where it is not installed, say so before anything is made)

    from dragoman.corpus.dataset import DataSet
    from dragoman.distillation.distillation_folder import DistillationFolder
    from dragoman.distillation.distillation_inputs import DistillationInputs
    from dragoman.terminal import showing_progress

    folder = DistillationFolder(Path(out))
    with showing_progress(progress) as show:
        inputs = DistillationInputs(
            str(teacher), DataSet(Path(data)), tuple(map(str, text)), recipe, settings, beam, tuple(hosts), workers,
            None if score_back_with is None else str(score_back_with),
        )  # fmt: skip
        return Distiller(folder, inputs, compare, show).run(on_part or (lambda _: None))


class _PartProgress:
    """Progress of a part, with the time of those that follow it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.following = ""

    def __call__(self, task: str, done: int, total: int | None) -> None:
        self._progress(task, done, total)

    def note(self, text: str) -> None:
        if isinstance(self._progress, NotedProgress):
            self._progress.note(f"{text}\n{self.following}".rstrip())


class Distiller:
    """Checks the inputs of a distillation, and makes its parts in order."""

    def __init__(
        self, folder: "DistillationFolder", inputs: "DistillationInputs", compare: bool, progress: Progress
    ) -> None:
        from dragoman.distillation.distillation_parts import check_own_folders, make_parts

        self._folder, self._inputs, self._progress = folder, inputs, _PartProgress(progress)
        inputs.check()
        job = inputs.job()
        folder.check_same(job)
        self._parts = make_parts(folder, inputs, self._progress, compare=compare)
        check_own_folders(folder, inputs.data.languages)
        folder.claim(job)

    def run(self, on_part: Callable[[PartStart], None]) -> Distillation:
        """Make all parts that are not complete."""
        from dragoman.distillation.remaining_parts import estimate_parts
        from dragoman.insight.distillation_report import read_distillation

        plan = self._folder.plan(self._parts)
        for number, part in enumerate(self._parts):
            state = self._folder.state(part)
            if plan[part.name] or state in ("complete", "own"):
                on_part(self._describe(number, state, estimate_parts(self._folder, self._parts[number:], plan)))
            if plan[part.name]:
                following = estimate_parts(self._folder, self._parts[number + 1 :], plan)
                self._progress.following = f"The parts that follow: {following}."
                self._folder.run(part, [later.name for later in self._parts[number + 1 :]])
                plan = self._folder.plan(self._parts)
        return Distillation(self._folder.path, read_distillation(self._folder.path))

    def _describe(self, number: int, state: str, left: "RemainingParts") -> PartStart:
        from dragoman.distillation.distillation_inputs import cost_of

        part, money = self._parts[number], self._inputs.resolved.settings.money
        seconds = sum(record.seconds for record in self._folder.records().values())
        return PartStart(
            number + 1, len(self._parts), part.name, part.command, state, seconds, cost_of(seconds, money),
            money.currency, left, None if left.total_s is None else cost_of(seconds + left.total_s, money),
        )  # fmt: skip
