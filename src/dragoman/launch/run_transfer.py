"""Copy a run from one host to another as a stream: `send RUN` on the one, `receive RUN` on the other."""

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from dragoman.files import apply_umask, publish_folder
from dragoman.run_folder import RunFolder
from dragoman.training import checkpoint


def send(run: RunFolder, stream: IO[bytes]) -> None:
    """Write settings, logs and checkpoints of a run. Temporary files, whose names begin with a dot, are left out."""
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for path in sorted(run.path.iterdir()):
            if not path.name.startswith("."):
                archive.add(path, path.name, filter=_without_temporary_files)


def _without_temporary_files(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name.startswith(".") else member


def receive(run: RunFolder, stream: IO[bytes]) -> None:
    """Add what this host lacks. Intact files here are kept, and each checkpoint appears in one atomic step."""
    run.path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=run.path, prefix=".incoming-") as temporary:
        incoming = RunFolder(Path(temporary))
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extractall(temporary, filter="data")
        apply_umask(Path(temporary))
        run.checkpoints.mkdir(exist_ok=True)
        for name in checkpoint.names(incoming.checkpoints):
            if checkpoint.find_damage(run.checkpoints / name) is not None:
                publish_folder(incoming.checkpoints / name, run.checkpoints / name)
        for link in (path for path in incoming.checkpoints.iterdir() if path.is_symlink()):
            if (run.checkpoints / link.readlink()).exists():
                checkpoint.replace_link(run.checkpoints / link.name, str(link.readlink()))
        for path in incoming.path.iterdir():
            if path != incoming.checkpoints and not (run.path / path.name).exists():
                shutil.move(path, run.path / path.name)


def main() -> None:
    direction, folder = sys.argv[1:]
    run = RunFolder(Path(folder).expanduser())
    if direction == "send":
        send(run, sys.stdout.buffer)
    else:
        receive(run, sys.stdin.buffer)


if __name__ == "__main__":
    main()
