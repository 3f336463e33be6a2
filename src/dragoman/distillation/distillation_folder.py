"""The folder of a distillation.

```
DIR/
  job.json             teacher, data and settings, so that the folder is not mixed up with another distillation
  parts.json           parts that were begun here, their time, and whether they are complete
  text/                the training pairs of the data set as text, for the teacher to translate
  synthetic/           the teacher's translations: corpus.en, corpus.de
  data/  run/  export/ the student's data set, training run and int8 export
  baseline/            with --compare: data/, run/ and export/ of the same student without a teacher
  measurements/        translations of the test set, exports that were measured
  distillation.json    sizes, speeds, scores and the ledger; written last
```
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dragoman.errors import DragomanError
from dragoman.files import read_json, write_json
from dragoman.insight.distillation_report import DISTILLATION_FILE

JOB_FILE = "job.json"
PARTS_FILE = "parts.json"
PartState = Literal["to do", "begun", "complete", "own"]


@dataclass(frozen=True)
class PartRecord:
    """A part that was begun by this command."""

    seconds: float = 0.0
    """Time of all sessions that ended by themselves; a killed one is not counted."""
    is_complete: bool = False


@dataclass(frozen=True)
class Part:
    """One step of a distillation. The folder that it makes can be replaced by one's own."""

    name: str
    folder: Path
    command: str
    """The command that does the same; or, where there is none, what the part makes."""
    make: Callable[[], None]
    used_by: tuple[str, ...]
    """Parts that need this one. If none of them is made, neither is this one."""


class DistillationFolder:
    """Paths and records of a distillation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text, self.synthetic = path / "text", path / "synthetic"
        self.student, self.baseline = StudentFolder(path), StudentFolder(path / "baseline")
        self.measurements, self.result = path / "measurements", path / DISTILLATION_FILE

    def check_same(self, job: Mapping[str, Any]) -> None:
        """Raise an error if the folder holds other files, or a distillation with other inputs or settings."""
        path = self.path / JOB_FILE
        recorded = read_json(path) if path.exists() else {}
        if "teacher" not in recorded:  # Not the job of a distillation.
            own = {path.name for path in (self.text, self.synthetic, self.measurements, self.baseline.path)}
            own |= {path.name for path in (self.student.data, self.student.run, self.student.export)}
            if self.path.exists() and any(each.name not in own and each.name[0] != "." for each in self.path.iterdir()):
                raise DragomanError(f"{self.path} has other files in it: choose another --out.")
            return
        differing = [name for name in job if recorded.get(name) != job[name]]
        if differing:
            changes = "; ".join(f"{name} was {recorded.get(name)}, now {job[name]}" for name in differing)
            raise DragomanError(
                f"{self.path} holds a distillation with other inputs ({changes}): choose another --out, or remove it."
            )

    def claim(self, job: Mapping[str, Any]) -> None:
        """Record the inputs and settings, if this is the beginning."""
        path = self.path / JOB_FILE
        if not path.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(path, dict(job))

    def records(self) -> dict[str, PartRecord]:
        path = self.path / PARTS_FILE
        return {name: PartRecord(**each) for name, each in read_json(path).items()} if path.exists() else {}

    def state(self, part: Part) -> PartState:
        """`own` is a folder that exists although this command has not begun it: it is used as it is."""
        record = self.records().get(part.name)
        exists = part.folder.exists() and (part.folder.is_file() or any(part.folder.iterdir()))
        if record is None:
            return "own" if exists else "to do"
        return "complete" if record.is_complete and exists else "begun"

    def plan(self, parts: Sequence[Part]) -> dict[str, bool]:
        """The parts in order, and whether each has to be made or resumed."""
        states = {part.name: self.state(part) for part in parts}
        # A part that was complete before one that it uses was asked for, such as a comparison without `--compare`.
        outdated = {user for part in parts if states[part.name] == "to do" for user in part.used_by}
        is_made: dict[str, bool] = {}
        for part in reversed(parts):
            state = states[part.name]
            is_needed = not part.used_by or any(is_made.get(user, False) for user in part.used_by)
            is_made[part.name] = is_needed and (
                state in ("to do", "begun") or (state == "complete" and part.name in outdated)
            )
        return {part.name: is_made[part.name] for part in parts}

    def run(self, part: Part, later: Sequence[str]) -> None:
        """Make a part, or resume it. Parts that come later are made again."""
        self._record({**self.records(), part.name: self._begun(part.name)})
        started_s = time.monotonic()
        try:
            part.make()
        except BaseException:
            self._add(part.name, time.monotonic() - started_s, is_complete=False)
            raise
        records = self.records()
        stale = {name: PartRecord(records[name].seconds) for name in later if name in records}
        self._record({**records, **stale})
        self._add(part.name, time.monotonic() - started_s, is_complete=True)

    def _begun(self, name: str) -> PartRecord:
        return PartRecord(self.records().get(name, PartRecord()).seconds)

    def _add(self, name: str, seconds: float, *, is_complete: bool) -> None:
        self._record({**self.records(), name: PartRecord(self._begun(name).seconds + seconds, is_complete)})

    def _record(self, records: Mapping[str, PartRecord]) -> None:
        write_json(self.path / PARTS_FILE, {name: asdict(record) for name, record in records.items()})


class StudentFolder:
    """Data set, run and export of a student."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data, self.run, self.export = path / "data", path / "run", path / "export"
