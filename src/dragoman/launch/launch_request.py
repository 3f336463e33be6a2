"""A request to launch: the training command, and the machines to run it on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.launch.ssh import Machine
from dragoman.settings import Settings


@dataclass(frozen=True)
class LaunchRequest:
    """A training command, and the machines to run it on."""

    machines: Sequence[Machine]
    recipe: str
    data: Sequence[str]
    """Arguments of `--data`."""
    out: Path
    overrides: Sequence[str]
    settings: Settings
    """As this machine reads the recipe and the overrides."""
    push: bool = False
    also_evaluate: Sequence[str] = ()
    """Arguments of `--also-evaluate`."""
    elastic: bool = False
    """Whether the run continues without machines that are lost."""
    start: Path | None = None
    """The model to begin with."""

    @property
    def arguments(self) -> list[str]:
        """Arguments of `dragoman` for each worker."""
        options = [argument for each in self.data for argument in ("--data", each)]
        options += [argument for each in self.also_evaluate for argument in ("--also-evaluate", each)]
        options += [] if self.start is None else ["--from", str(self.start)]
        return ["train", self.recipe, *options, "--out", str(self.out), *self.overrides]

    @property
    def hosts(self) -> list[str]:
        return [machine.name for machine in self.machines]

    @property
    def first(self) -> str:
        """The host of rank 0, which writes the run."""
        return self.machines[0].name


def working_folder() -> str:
    """The current folder, relative to the home folder where it is below it: homes differ between machines."""
    here = Path.cwd()
    return f"~/{here.relative_to(Path.home())}" if here.is_relative_to(Path.home()) else str(here)
