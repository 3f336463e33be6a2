"""The folder of a run: settings, events, checkpoints and curves."""

from pathlib import Path

from dragoman.event_log import read_events
from dragoman.events import Event

CONFIG_FILE = "config.json"
SYNTHESIS_FILE = "synthesis.json"
"""The description of a synthesis, whose folder has events as that of a run has."""
CHECKPOINT_FILES = {
    "weights.safetensors": "weights to translate with",
    "trained.safetensors": "weights as trained; the others are their moving average",
    "optimizer.safetensors": "optimizer state, needed to resume",
    "state.json": "step, position in the data, best scores so far",
    "model.json": "architecture, languages, decoding settings",
    "tokenizer.model": "SentencePiece tokenizer",
    "checksums.json": "hash of every other file",
}
"""The contents of a checkpoint's files."""


def hint_at_runs(path: Path) -> str:
    """A question that leads to the runs in a folder that is not one itself, or else a request to check the path."""
    found = sorted(config.parent for config in path.glob(f"*/{CONFIG_FILE}") if RunFolder(config.parent).event_logs())
    return f"did you mean {' or '.join(map(str, found[:3]))}?" if found else "check the path."


class RunFolder:
    """The folder of a run: `config.json`, `events-WORKER.jsonl`, `checkpoints/`, `translations/`,
    `tensorboard/`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config(self) -> Path:
        return self.path / CONFIG_FILE

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def translations(self) -> Path:
        return self.path / "translations"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def events_of(self, worker: int) -> Path:
        return self.path / f"events-{worker}.jsonl"

    def event_logs(self) -> list[Path]:
        """The logs of all workers that are known here, also of those on other machines."""
        return sorted(self.path.glob("events-*.jsonl"))

    def events(self, worker: int = 0) -> list[Event]:
        path = self.events_of(worker)
        return read_events(path)[0] if path.exists() else []
