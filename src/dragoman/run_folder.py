"""The folder of a run: where its settings, events, checkpoints and curves lie."""

from pathlib import Path

from dragoman.event_log import read_events
from dragoman.events import Event

CONFIG_FILE = "config.json"
CHECKPOINT_FILES = {
    "weights.safetensors": "the weights to translate with",
    "trained.safetensors": "the weights as trained; the others are their running average",
    "optimizer.safetensors": "the optimizer's state: what a resume needs besides the weights",
    "state.json": "step, place in the data, best scores so far",
    "model.json": "architecture, languages, decoding settings",
    "tokenizer.model": "the SentencePiece tokenizer",
    "checksums.json": "the hash of every other file",
}
"""What the files of a checkpoint are for."""


class RunFolder:
    """The folder of a run: `config.json`, `events-WORKER.jsonl`, `checkpoints/`, `tensorboard/`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config(self) -> Path:
        return self.path / CONFIG_FILE

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def events_of(self, worker: int) -> Path:
        return self.path / f"events-{worker}.jsonl"

    def events(self, worker: int = 0) -> list[Event]:
        path = self.events_of(worker)
        return read_events(path)[0] if path.exists() else []
