"""Checkpoints: folders written atomically and in the background, read without running any code.

```
checkpoints/
  step-00001000/
    weights.safetensors      weights to translate with: as trained, or their moving average
    trained.safetensors      weights as trained; only where the above are a moving average
    optimizer.safetensors    optimizer state
    state.json               step, position in the data, best scores so far
    model.json               architecture, languages, decoding settings
    tokenizer.model          SentencePiece
    checksums.json           hash of every file above
  last -> step-00001000      newest; best-loss, best-bleu and best-trade-off likewise
```
"""

import hashlib
import math
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from dragoman.errors import DragomanError, write_remedy
from dragoman.events import CheckpointFailed, CheckpointRejected, CheckpointSaved, CheckpointSkipped, Event
from dragoman.files import (
    draft_path,
    publish_folder,
    publish_new_folder,
    read_json,
    remove_orphaned_drafts,
    sync_folder,
    write_json,
)
from dragoman.model.model_folder import WEIGHTS_FILE, ModelDescription, read_tensors
from dragoman.settings import CheckpointSettings
from dragoman.training.snapshot import OPTIMIZER_FILE, TRAINED_FILE, Snapshot, TrainingState

STATE_FILE = "state.json"
CHECKSUMS_FILE = "checksums.json"
LAST, BEST_LOSS, BEST_BLEU, AVERAGED = "last", "best-loss", "best-bleu", "averaged"
BEST_TRADE_OFF = "best-trade-off"
"""The checkpoint with the highest net gain: see `net_gain`."""
LINKS = (LAST, BEST_LOSS, BEST_BLEU, BEST_TRADE_OFF)
Record = Callable[[Event], None]


def folder_name(step: int) -> str:
    return f"step-{step:08d}"


class Checkpoints:
    """The checkpoints of a run: writes them in the background, and prunes old ones."""

    def __init__(
        self, folder: Path, description: ModelDescription, settings: CheckpointSettings, record: Record
    ) -> None:
        self.folder = folder
        self._description = description
        # The checkpoints to be averaged must be kept until the end.
        self._keep_last = max(settings.keep_last, settings.average if settings.average_of == "last" else 0)
        self._keep_best = settings.average if settings.average_of == "best" else 0
        self._record = record
        self._writer: threading.Thread | None = None
        self._is_behind = False
        """True if the last checkpoint was skipped, because another part of a split world was ahead."""
        self.failure = ""
        """The reason why the last checkpoint could not be written; empty if it was."""

    def save(self, take_snapshot: Callable[[], Snapshot], links: Sequence[str]) -> None:
        """Take a snapshot, and write it while training continues. Waits for the previous write, if necessary."""
        started = time.perf_counter()
        self.wait()
        snapshot = take_snapshot()
        stall_s = time.perf_counter() - started
        self._writer = threading.Thread(target=self._write, args=(snapshot, links, stall_s), name="checkpoint")
        self._writer.start()

    def raise_if_failed(self) -> None:
        """Raise if the last checkpoint of the run could not be written."""
        if self.failure:
            raise DragomanError(
                f"The last checkpoint could not be written ({self.failure}) to {self.folder}: "
                f"{write_remedy(self.failure)} and repeat the command; it resumes from the newest checkpoint."
            )

    def wait(self) -> None:
        """Wait for a write in progress to end."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def _write(self, snapshot: Snapshot, links: Sequence[str], stall_s: float) -> None:
        started = time.perf_counter()
        name = folder_name(snapshot.state.step)
        draft = draft_path(self.folder / name)
        try:
            draft.mkdir()
            snapshot.move_to_cpu()
            for file, tensors in snapshot.files().items():
                save_file(dict(tensors), draft / file)
            self._description.write(draft)
            write_json(draft / STATE_FILE, asdict(snapshot.state))
            write_json(draft / CHECKSUMS_FILE, _checksums(draft))
            files = {file.name: file.stat().st_size for file in sorted(draft.iterdir())}
            published = self._publish(draft, snapshot.state)
            if published:
                for link in (LAST, *links):
                    replace_link(self.folder / link, name)
                self._prune()
        except Exception as error:  # Any kind: an error that this thread does not report is lost.
            self._fail(snapshot.state.step, draft, error)
            return
        self.failure = ""
        if published:
            self._record(
                CheckpointSaved(
                    step=snapshot.state.step,
                    name=name,
                    size_bytes=sum(files.values()),
                    files=files,
                    stall_s=stall_s,
                    write_s=time.perf_counter() - started,
                )
            )

    def _publish(self, draft: Path, state: TrainingState) -> bool:
        """Give a complete checkpoint its name, unless another part of a split world is ahead in this folder.

        When the parts are joined again, all take over the state that is ahead, so that one is kept. The part that is
        behind reports it, once, and writes again when it is ahead itself, or in the next common world.
        """
        path = self.folder / folder_name(state.step)
        place, ahead = draft, _ahead_in_another_world(self.folder, state)
        if ahead is None:
            place = path if publish_new_folder(draft, path) else draft
            # Meanwhile it may have published this step, or so many later ones that it has removed this one again.
            if place == draft or path.name not in names(self.folder)[: self._keep_last]:
                ahead = _ahead_in_another_world(self.folder, state)
        if ahead is None and place == draft:
            publish_folder(draft, path)  # The earlier one is damaged, or from before a rollback.
        if ahead is not None:
            shutil.rmtree(place, ignore_errors=True)  # It may be removing it, too.
            if not self._is_behind:
                self._record(CheckpointSkipped(step=state.step, ahead=ahead))
        self._is_behind = ahead is not None
        return not self._is_behind

    def _prune(self) -> None:
        """Remove all checkpoints but the newest, the targets of links, and the best ones that are to be averaged."""
        present = names(self.folder)
        linked = {(self.folder / link).resolve().name for link in LINKS}
        kept = {*present[: self._keep_last], *best(self.folder, self._keep_best), *linked}
        for name in present:
            if name not in kept:
                # On shared storage, another writer may be removing it, too.
                shutil.rmtree(self.folder / name, ignore_errors=True)

    def start_writing(self) -> None:
        """Prepare the folder: remove the drafts of killed writers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_orphaned_drafts(self.folder)

    def newest_valid(self) -> Path | None:
        """The newest checkpoint with correct checksums. Damaged ones are reported and skipped."""
        for name in names(self.folder):
            problem = find_damage(self.folder / name)
            if problem is None:
                return self.folder / name
            self._record(CheckpointRejected(name=name, reason=problem))
        return None

    def write_average(self, step: int, chosen: Sequence[str]) -> Path | None:
        """Write a model with the mean of several checkpoints' weights; None if it could not be written."""
        draft = draft_path(self.folder / AVERAGED)
        try:
            draft.mkdir()
            save_file(average([self.folder / name for name in chosen]), draft / WEIGHTS_FILE)
            self._description.write(draft)
            write_json(draft / STATE_FILE, _average_state(step, chosen))
            write_json(draft / CHECKSUMS_FILE, _checksums(draft))
            publish_folder(draft, self.folder / AVERAGED)
        except Exception as error:
            self._fail(step, draft, error)
            return None
        return self.folder / AVERAGED

    def _fail(self, step: int, draft: Path, error: Exception) -> None:
        """Remove the draft and report the failure: training continues."""
        shutil.rmtree(draft, ignore_errors=True)
        self.failure = getattr(error, "strerror", None) or str(error) or type(error).__name__
        self._record(CheckpointFailed(step=step, reason=self.failure))


def names(folder: Path) -> list[str]:
    """Names of a run's checkpoints, newest first."""
    return sorted(
        (path.name for path in folder.glob("step-*") if path.is_dir() and not path.is_symlink()), reverse=True
    )


def trained_names(folder: Path) -> list[str]:
    """The same without the model that the run began with, which is no part of an average."""
    return [name for name in names(folder) if name != folder_name(0)]


def best(folder: Path, count: int) -> list[str]:
    """Names of the checkpoints with the lowest validation loss, best first."""
    if count == 0:
        return []
    losses = {name: _read_state(folder / name).get("loss") for name in trained_names(folder)}
    finite = {name: loss for name, loss in losses.items() if loss is not None and math.isfinite(loss)}
    return sorted(finite, key=lambda name: finite[name])[:count]


def _ahead_in_another_world(folder: Path, state: TrainingState) -> str | None:
    """The newest checkpoint, if it is intact, as far as `state` or further, and not from a world of its past."""
    while (newest := next(iter(names(folder)), "")) >= folder_name(state.step):
        worlds = _read_state(folder / newest).get("worlds")
        if worlds and worlds[-1] in state.worlds:
            return None
        if worlds and find_damage(folder / newest) is None:
            return newest
        if newest in names(folder)[:1]:
            return None  # It is damaged; it was not just removed by a writer that is further ahead.
    return None


def _read_state(folder: Path) -> dict[str, Any]:
    """The state of a checkpoint; empty if it is damaged."""
    try:
        return dict(read_json(folder / STATE_FILE))
    except (DragomanError, OSError):
        return {}


def replace_link(link: Path, target: str) -> None:
    """Create or replace a symbolic link atomically."""
    draft = draft_path(link)
    draft.symlink_to(target)
    draft.replace(link)
    sync_folder(link.parent)


def find_damage(folder: Path) -> str | None:
    """The first problem found in a checkpoint; None if every file matches its checksum."""
    try:
        expected = read_json(folder / CHECKSUMS_FILE)
        found = _checksums(folder)
    except (DragomanError, OSError) as error:
        return str(error)
    for file, digest in expected.items():
        if file not in found:
            return f"{file} is missing"
        if found[file] != digest:
            return f"{file} does not match its checksum"
    return None


def identity(folder: Path) -> str:
    """A hash of the contents: equal for copies of a checkpoint, different for any other."""
    return hashlib.sha256((folder / CHECKSUMS_FILE).read_bytes()).hexdigest()[:16]


def load(folder: Path) -> Snapshot:
    """Read a checkpoint."""
    present = [file for file in (WEIGHTS_FILE, TRAINED_FILE, OPTIMIZER_FILE) if (folder / file).exists()]
    state = TrainingState.from_json(read_json(folder / STATE_FILE))
    return Snapshot.from_files(state, {file: read_tensors(folder / file) for file in present})


def is_average_of(folder: Path, step: int, chosen: Sequence[str]) -> bool:
    """True if the average of these checkpoints of a run has been written, and is intact."""
    averaged = folder / AVERAGED
    return _read_state(averaged) == _average_state(step, chosen) and find_damage(averaged) is None


def _average_state(step: int, chosen: Sequence[str]) -> dict[str, Any]:
    return {"step": step, "average_of": list(chosen)}


def average(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, summed in float64 so that the order does not matter."""
    total: dict[str, Tensor] = {}
    for folder in folders:
        for name, tensor in read_tensors(folder / WEIGHTS_FILE).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(folders)).to(torch.float32) for name, tensor in total.items()}


def _checksums(folder: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(folder.iterdir()):
        if path.name != CHECKSUMS_FILE:
            with path.open("rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
