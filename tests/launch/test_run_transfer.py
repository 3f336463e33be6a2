import io
import json
from pathlib import Path

from dragoman.launch.run_transfer import receive, send
from dragoman.run_folder import RunFolder
from dragoman.training.checkpoint import CHECKSUMS_FILE, _checksums, find_damage, replace_link


def make_run(path: Path, *steps: int) -> RunFolder:
    run = RunFolder(path)
    for step in steps:
        folder = run.checkpoints / f"step-{step:08d}"
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_bytes(bytes([step]) * 1000)
        (folder / CHECKSUMS_FILE).write_text(json.dumps(_checksums(folder)))
        replace_link(run.checkpoints / "last", folder.name)
    run.config.write_text(f"from {path.name}")
    (run.checkpoints / ".temporary").mkdir()
    return run


def move(source: RunFolder, target: RunFolder) -> None:
    stream = io.BytesIO()
    send(source, stream)
    stream.seek(0)
    receive(target, stream)


def test_a_run_arrives_complete_and_without_temporary_files(tmp_path):
    source, target = make_run(tmp_path / "here", 1, 2), RunFolder(tmp_path / "there")
    move(source, target)
    assert sorted(path.name for path in target.checkpoints.iterdir()) == ["last", "step-00000001", "step-00000002"]
    assert find_damage(target.checkpoints / "last") is None
    assert (target.checkpoints / "last").resolve().name == "step-00000002"
    assert target.config.read_text() == "from here"
    assert sorted(path.name for path in target.path.iterdir()) == ["checkpoints", "config.json"]


def test_intact_files_are_kept_and_damaged_checkpoints_are_replaced(tmp_path):
    source, target = make_run(tmp_path / "here", 1, 2), make_run(tmp_path / "there", 1, 2)
    (target.checkpoints / "step-00000002" / "weights.safetensors").write_bytes(b"cut sh")
    (target.checkpoints / "step-00000001" / "kept").touch()
    (target.path / "events-0.jsonl").write_text("theirs")
    move(source, target)
    assert find_damage(target.checkpoints / "step-00000002") is None
    assert (target.checkpoints / "step-00000001" / "kept").exists()
    assert target.config.read_text() == "from there"
    assert (target.path / "events-0.jsonl").read_text() == "theirs"
