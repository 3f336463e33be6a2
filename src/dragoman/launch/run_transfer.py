"""A run on its way from one host to another, as a stream: `send RUN` on the one, `receive RUN` on the other."""

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from dragoman.files import publish_folder
from dragoman.run_folder import RunFolder
from dragoman.training import checkpoint


def send(run: RunFolder, stream: IO[bytes]) -> None:
    """Write a run's settings, logs and checkpoints; drafts, whose names begin with a dot, stay behind."""
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for path in sorted(run.path.iterdir()):
            if not path.name.startswith("."):
                archive.add(path, path.name, filter=_without_drafts)


def _without_drafts(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name.startswith(".") else member


def receive(run: RunFolder, stream: IO[bytes]) -> None:
    """Take in what this host does not have. What is whole here stays as it is; checkpoints come whole or not at all."""
    run.path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=run.path, prefix=".incoming-") as draft:
        incoming = RunFolder(Path(draft))
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extractall(draft, filter="data")
        run.checkpoints.mkdir(exist_ok=True)
        for name in checkpoint.names(incoming.checkpoints):
            if checkpoint.find_damage(run.checkpoints / name) is not None:
                publish_folder(incoming.checkpoints / name, run.checkpoints / name)
        for link in (path for path in incoming.checkpoints.iterdir() if path.is_symlink()):
            if (run.checkpoints / link.readlink()).exists():
                checkpoint.point(run.checkpoints / link.name, str(link.readlink()))
        for path in incoming.path.iterdir():
            if path != incoming.checkpoints and not (run.path / path.name).exists():
                shutil.move(path, run.path / path.name)


def main() -> None:
    verb, folder = sys.argv[1:]
    run = RunFolder(Path(folder).expanduser())
    if verb == "send":
        send(run, sys.stdout.buffer)
    else:
        receive(run, sys.stdin.buffer)


if __name__ == "__main__":
    main()
