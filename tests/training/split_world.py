"""One part of a split world: writes checkpoints of steps 1 to 40 to a folder, and prints the steps that were kept."""

import json
import sys
from pathlib import Path

import torch

from dragoman.corpus.sources import Languages
from dragoman.events import CheckpointFailed, CheckpointSaved, Event
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import ModelDescription
from dragoman.settings import CheckpointSettings, DecodingSettings
from dragoman.training.checkpoint import Checkpoints
from dragoman.training.snapshot import Snapshot, TrainingState


class NoTokenizer:
    model = b"x"


def main() -> None:
    folder, world = Path(sys.argv[1]), sys.argv[2]
    events: list[Event] = []
    description = ModelDescription(
        Architecture(vocabulary=8),
        Languages("en", "de"),
        DecodingSettings(),
        NoTokenizer(),  # type: ignore[arg-type]
    )
    checkpoints = Checkpoints(folder, description, CheckpointSettings(keep_last=2), events.append)
    checkpoints.start_writing()
    print("ready", flush=True)
    sys.stdin.readline()
    for step in range(1, 41):
        state = TrainingState(step=step, worlds=("both", world))
        weights = {"weight": torch.full((4,), float(step))}
        checkpoints.save(lambda state=state, weights=weights: Snapshot(state, weights, None, weights), [])
    checkpoints.wait()
    assert not [event for event in events if isinstance(event, CheckpointFailed)], events
    print(json.dumps([event.step for event in events if isinstance(event, CheckpointSaved)]))


main()
