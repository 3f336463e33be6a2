import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from dragoman.batching.data_loader import Position
from dragoman.corpus.sources import Languages
from dragoman.errors import DragomanError
from dragoman.events import CheckpointFailed, CheckpointRejected, CheckpointSaved, CheckpointSkipped, Event
from dragoman.files import draft_path
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import ModelDescription, load_model
from dragoman.model.transformer import Transformer
from dragoman.settings import CheckpointSettings, DecodingSettings
from dragoman.training import checkpoint
from dragoman.training.checkpoint import Checkpoints, find_damage
from dragoman.training.snapshot import Snapshot, TrainingState, copy_tensors

from ..small import tiny


@pytest.fixture(scope="module")
def description(data) -> ModelDescription:
    architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **tiny().model.model_dump())
    return ModelDescription(architecture, Languages("en", "de"), DecodingSettings(), data.tokenizer)


def snapshot(description: ModelDescription, step: int, loss: float | None = None) -> Snapshot:
    torch.manual_seed(step)
    weights = copy_tensors(Transformer(description.architecture).state_dict())
    state = TrainingState(step=step, position=Position(1, step), best={"loss": 2.5}, loss=loss, elapsed_s=1.5)
    return Snapshot(state, weights, None, {"a/exp_avg": torch.arange(5.0), "a/step": torch.tensor(3.0)})


class RecordedCheckpoints:
    """Checkpoints in a folder, and the events they recorded."""

    def __init__(self, folder, description, **settings):
        self.events: list[Event] = []
        self.folder = folder
        self.description = description
        settings = CheckpointSettings(**{"keep_last": 2, **settings})
        self.checkpoints = Checkpoints(folder, description, settings, self.events.append)
        self.checkpoints.newest_valid()

    def save(self, step: int, *links: str, loss: float | None = None, worlds: tuple[str, ...] = ()) -> None:
        taken = snapshot(self.description, step, loss)
        taken = replace(taken, state=replace(taken.state, worlds=worlds))
        self.checkpoints.save(lambda: taken, links)
        self.checkpoints.wait()

    @property
    def steps(self) -> list[int]:
        return [int(name[5:]) for name in checkpoint.names(self.folder)]


def test_a_saved_checkpoint_can_be_loaded(tmp_path, description):
    saved = RecordedCheckpoints(tmp_path, description)
    saved.save(7)
    loaded, expected = checkpoint.load(tmp_path / "last"), snapshot(description, 7)
    assert loaded.state == expected.state
    assert all(torch.equal(loaded.weights[name], tensor) for name, tensor in expected.weights.items())
    assert all(torch.equal(loaded.optimizer[name], tensor) for name, tensor in expected.optimizer.items())
    (event,) = saved.events
    assert isinstance(event, CheckpointSaved)
    assert event.size_bytes == sum(file.stat().st_size for file in (tmp_path / "last").iterdir())


def test_a_checkpoint_can_be_loaded_as_a_model(tmp_path, description):
    RecordedCheckpoints(tmp_path, description).save(7)
    stored = load_model(tmp_path / "last")
    assert stored.description.architecture == description.architecture
    assert stored.description.tokenizer.encode("Der Hund") == description.tokenizer.encode("Der Hund")
    assert not stored.model.training


def test_the_newest_and_the_best_checkpoints_are_kept(tmp_path, description):
    saved = RecordedCheckpoints(tmp_path, description, keep_last=2, average=2, average_of="best")
    saved.save(1, "best-loss", loss=1.0)
    saved.save(2, loss=1.1)
    saved.save(3, "best-bleu", loss=3.0)
    for step in (4, 5, 6):
        saved.save(step, loss=2.0)
    assert saved.steps == [6, 5, 3, 2, 1]
    assert (tmp_path / "last").resolve().name == "step-00000006"
    assert (tmp_path / "best-loss").resolve().name == "step-00000001"


def test_a_checkpoint_has_only_safetensors_json_and_the_tokenizer(tmp_path, description):
    RecordedCheckpoints(tmp_path, description).save(1)
    suffixes = {file.suffix for file in (tmp_path / "last").iterdir()}
    assert suffixes == {".safetensors", ".json", ".model"}


@settings(max_examples=40)
@given(st.data())
def test_damage_to_any_file_is_found_and_the_previous_checkpoint_is_used(tmp_path_factory, description, data):
    folder = tmp_path_factory.mktemp("checkpoints")
    saved = RecordedCheckpoints(folder, description, keep_last=3)
    saved.save(1)
    saved.save(2)
    files = sorted((folder / "step-00000002").iterdir())
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    position = data.draw(st.integers(0, len(content.rstrip()) - 1))  # A missing last line break does no damage.
    if data.draw(st.booleans()):
        content = content[:position]
    else:
        content[position] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    assert find_damage(folder / "step-00000002") is not None
    assert saved.checkpoints.newest_valid() == folder / "step-00000001"
    rejected = [event for event in saved.events if isinstance(event, CheckpointRejected)]
    assert [event.name for event in rejected] == ["step-00000002"]


def test_a_missing_file_is_reported(tmp_path, description):
    saved = RecordedCheckpoints(tmp_path, description)
    saved.save(1)
    (tmp_path / "last" / "optimizer.safetensors").unlink()
    assert find_damage(tmp_path / "step-00000001") == "optimizer.safetensors is missing"


def test_drafts_of_a_killed_writer_are_removed(tmp_path, description):
    saved = RecordedCheckpoints(tmp_path, description)
    saved.save(1)
    draft = draft_path(tmp_path / "step-00000002")
    with subprocess.Popen(["true"]) as writer:
        writer.wait()
    shutil.copytree(
        tmp_path / "step-00000001", draft.with_name(draft.name.replace(f"-{os.getpid()}-", f"-{writer.pid}-"))
    )
    assert saved.checkpoints.newest_valid() == tmp_path / "step-00000001"
    saved.checkpoints.start_writing()
    assert not list(tmp_path.glob(".*"))


def test_a_failed_write_is_recorded_and_older_checkpoints_are_kept(tmp_path, description, monkeypatch):
    saved = RecordedCheckpoints(tmp_path, description)
    saved.save(1)

    def raise_disk_full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", raise_disk_full)
    saved.save(2)
    assert isinstance(saved.events[-1], CheckpointFailed)
    assert saved.events[-1].reason == "No space left on device"
    assert saved.steps == [1]
    assert not list(tmp_path.glob(".*"))
    assert saved.checkpoints.newest_valid() == tmp_path / "step-00000001"


@pytest.mark.parametrize(
    "error",
    [OSError(5, "Input/output error"), RuntimeError("storage"), MemoryError(), ValueError("shape"), KeyError("x")],
)
def test_any_error_of_the_writer_is_recorded_and_fails_the_run(tmp_path, description, monkeypatch, error):
    saved = RecordedCheckpoints(tmp_path, description)
    saved.save(1)

    def fail(*arguments, **options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", fail)
        saved.save(2)
    assert isinstance(saved.events[-1], CheckpointFailed)
    with pytest.raises(DragomanError, match="The last checkpoint could not be written"):
        saved.checkpoints.raise_if_failed()
    assert not list(tmp_path.glob(".*"))
    saved.save(3)
    saved.checkpoints.raise_if_failed()
    assert saved.steps == [3, 1]


def test_of_two_halves_of_a_split_world_the_one_that_is_ahead_keeps_its_checkpoints(tmp_path, description):
    first, second = (RecordedCheckpoints(tmp_path, description, keep_last=9) for _ in range(2))
    first.save(10, worlds=("both",))
    for step in (20, 30):
        first.save(step, worlds=("both", "first"))
        second.save(step, "best-loss", worlds=("both", "second"))
    assert [(event.step, event.ahead) for event in second.events] == [(20, "step-00000020")], "it is reported once"
    second.save(40, worlds=("both", "second"))
    first.save(40, worlds=("both", "first"))
    assert [type(event) for event in first.events[-2:]] == [CheckpointSaved, CheckpointSkipped]
    writers = {name: checkpoint.load(tmp_path / name).state.worlds[-1] for name in checkpoint.names(tmp_path)}
    assert list(writers.values()) == ["second", "first", "first", "both"]
    assert (tmp_path / "last").resolve().name == "step-00000040"
    assert not (tmp_path / "best-loss").exists()
    first.checkpoints.raise_if_failed()


@pytest.mark.parametrize(
    ("moment", "present"), [("_read_state", [10]), ("find_damage", [10]), ("publish_new_folder", [])]
)
def test_a_part_that_is_overtaken_while_it_writes_leaves_no_checkpoint(
    tmp_path, description, monkeypatch, moment, present
):
    """The other part has removed its own checkpoint of the same step by then."""
    first, second = (RecordedCheckpoints(tmp_path, description, keep_last=2) for _ in range(2))
    for step in present:
        first.save(step, worlds=("both", "first"))
    original = getattr(checkpoint, moment)

    def call_late(*arguments):
        monkeypatch.setattr(checkpoint, moment, original)
        for step in sorted({10, 20, 30, 40}.difference(present)):
            first.save(step, worlds=("both", "first"))
        return original(*arguments)

    monkeypatch.setattr(checkpoint, moment, call_late)
    second.save(10, worlds=("both", "second"))
    (skipped,) = second.events
    assert skipped == CheckpointSkipped(at_s=skipped.at_s, step=10, ahead="step-00000040")
    assert checkpoint.names(tmp_path) == ["step-00000040", "step-00000030"]
    assert (tmp_path / "last").resolve().name == "step-00000040"
    assert not list(tmp_path.glob(".*"))


def test_a_world_replaces_checkpoints_of_its_own_past_and_damaged_ones(tmp_path, description):
    saved = RecordedCheckpoints(tmp_path, description, keep_last=9)
    saved.save(10, worlds=("a",))
    saved.save(20, worlds=("a", "b"))
    saved.save(20, worlds=("a", "b", "c"))  # After a rollback to step 10.
    assert checkpoint.load(tmp_path / "last").state.worlds == ("a", "b", "c")
    (tmp_path / "last" / "weights.safetensors").write_bytes(b"damaged")
    saved.save(20, worlds=("a", "d"))
    assert checkpoint.load(tmp_path / "last").state.worlds == ("a", "d")
    assert saved.checkpoints.newest_valid() == tmp_path / "step-00000020"


def test_processes_that_write_at_the_same_time_never_replace_each_others_checkpoints(tmp_path):
    command = [sys.executable, "-m", "tests.training.split_world", str(tmp_path)]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(subprocess.Popen([*command, world], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            for world in ("first", "second")
        ]
        for writer in writers:
            assert writer.stdout.readline() == b"ready\n"
        for writer in writers:
            writer.stdin.write(b"start\n")
            writer.stdin.flush()
        saved = {world: json.loads(writer.communicate()[0]) for world, writer in zip("ab", writers, strict=True)}
    assert not set(saved["a"]) & set(saved["b"])
    assert sorted(saved["a"] + saved["b"]) == list(range(1, 41))
    assert [find_damage(tmp_path / name) for name in checkpoint.names(tmp_path)] == [None] * 2
    assert not list(tmp_path.glob(".*"))


def test_an_average_is_the_mean_of_the_weights(tmp_path, description):
    saved = RecordedCheckpoints(tmp_path, description, keep_last=3)
    for step in (1, 2, 3):
        saved.save(step)
    path = saved.checkpoints.write_average(3, checkpoint.names(tmp_path))
    averaged = load_model(path).model.state_dict()
    parts = [snapshot(description, step).weights for step in (1, 2, 3)]
    for name, tensor in averaged.items():
        torch.testing.assert_close(tensor, torch.stack([part[name] for part in parts]).mean(0))


def test_an_error_lists_all_weights_that_do_not_match(tmp_path, description):
    RecordedCheckpoints(tmp_path, description).save(1)
    weights = dict(snapshot(description, 1).weights)
    del weights["encoder_norm.weight"]
    weights["extra"] = torch.zeros(1)
    weights["decoder_norm.weight"] = torch.zeros(3)
    save_file(weights, tmp_path / "last" / "weights.safetensors")
    with pytest.raises(DragomanError, match=r"encoder_norm.weight is missing; extra is unknown; decoder_norm.*\[3\]"):
        load_model(tmp_path / "last")


def test_a_damaged_description_is_refused(tmp_path, description):
    RecordedCheckpoints(tmp_path, description).save(1)
    (tmp_path / "last" / "model.json").write_text(json.dumps({"architecture": {"d_model": 8}}))
    with pytest.raises(DragomanError, match=r"model\.json"):
        load_model(tmp_path / "last")
