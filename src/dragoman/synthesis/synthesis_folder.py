"""The folder of a synthesis, and the description by which a later start knows what was translated, and how."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dragoman.corpus.sources import Languages
from dragoman.errors import DragomanError
from dragoman.files import read_json, write_json
from dragoman.run_folder import SYNTHESIS_FILE
from dragoman.synthesis.shard_store import ShardStore
from dragoman.synthesis.text_shards import TextSummary, count_shards
from dragoman.synthesis.translation_job import TranslationJob


@dataclass(frozen=True)
class SynthesisDescription:
    """Everything that decides the translations and their scores."""

    model: str
    """Path, as it was given."""
    weights: str
    """Hash of the model's weights."""
    languages: Languages
    """Of the model."""
    texts: tuple[TextSummary, ...]
    job: TranslationJob
    shard_lines: int
    corpus: dict[str, Any] = field(default_factory=dict)
    """The corpus that was made last: files, counts, dropped pairs, machines. Empty until it is complete."""
    backward: str | None = None
    """Path of the backward model that scores the translations, as it was given."""
    backward_weights: str | None = None
    """Hash of its weights."""

    @property
    def lines(self) -> int:
        return sum(text.lines for text in self.texts)

    @property
    def shards(self) -> int:
        return count_shards(self.lines, self.shard_lines)

    def lines_of(self, shard: int) -> int:
        """Lines of a shard: the last one may have fewer."""
        return min(self.shard_lines, self.lines - shard * self.shard_lines)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "SynthesisDescription":
        return cls(**{
            **content,
            "languages": Languages(**content["languages"]),
            "texts": tuple(TextSummary(**text) for text in content["texts"]),
            "job": TranslationJob(**content["job"]),
        })  # fmt: skip

    def differences(self, earlier: "SynthesisDescription") -> list[str]:
        """What makes the translations of an earlier synthesis different ones. Names of files do not."""
        hashes = ([(text.lines, text.sha256) for text in each.texts] for each in (self, earlier))
        pairs = {
            "another model": (self.weights, earlier.weights),
            self._other_backward_model(earlier): (self.backward_weights, earlier.backward_weights),
            "other texts": tuple(hashes),
            "other languages": (self.languages, earlier.languages),
            f"--device {earlier.job.device}": (self.job.device, earlier.job.device),
            f"--n-best {earlier.job.n_best}": (self.job.n_best, earlier.job.n_best),
            "other sampling": (self.job.sampling, earlier.job.sampling),
            "other decoding settings": (self.job.decoding, earlier.job.decoding),
        }
        return [name for name, (mine, theirs) in pairs.items() if mine != theirs]

    def _other_backward_model(self, earlier: "SynthesisDescription") -> str:
        if earlier.backward is None:
            return "no --score-back-with"
        return "another backward model" if self.backward else f"--score-back-with {earlier.backward}"


class SynthesisFolder:
    """Paths of a synthesis, and its description."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shards = ShardStore(path / "shards")
        self.model, self.backward = path / "model", path / "backward"

    def read(self) -> SynthesisDescription | None:
        """The description; None if nothing was begun here."""
        if not (self.path / SYNTHESIS_FILE).exists():
            return None
        try:
            return SynthesisDescription.from_json(read_json(self.path / SYNTHESIS_FILE))
        except (KeyError, TypeError) as error:
            raise DragomanError(
                f"{self.path / SYNTHESIS_FILE} does not describe a synthesis ({error}): choose another --out."
            ) from None

    def write(self, description: SynthesisDescription) -> None:
        write_json(self.path / SYNTHESIS_FILE, description.as_json())

    def check_unused(self) -> None:
        """Raise an error if the folder has other files than the beginning of a synthesis."""
        begun = (self.model, self.backward)
        if self.path.exists() and any(path not in begun and path.name[0] != "." for path in self.path.iterdir()):
            raise DragomanError(f"{self.path} has other files in it: choose another --out.")

    def create(self) -> list[Path]:
        """Create the folder. Returns the folders that were not there, the innermost first."""
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        return missing

    @contextlib.contextmanager
    def removed_if_refused(self, created: Sequence[Path]) -> Iterator[None]:
        """After an error, remove copies of models that were not there before, and the folders that were created."""
        copies = [path for path in (self.model, self.backward) if not path.exists()]
        try:
            yield
        except BaseException:
            for copy in copies:
                shutil.rmtree(copy, ignore_errors=True)
            with contextlib.suppress(OSError):  # Another program may have written there.
                for folder in created:
                    folder.rmdir()
            raise

    def corpus_file(self, language: str) -> Path:
        return self.path / f"corpus.{language}"


def check_same(path: Path, differences: Sequence[str]) -> None:
    if differences:
        raise DragomanError(f"{path} was made with {' and '.join(differences)}: choose another --out, or remove it.")
