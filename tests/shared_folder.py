"""Folders that are made once in a test run, though several processes run its tests."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.files import locked


def shared_folder(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills. The first process that asks makes it, the others wait. Its files are read-only."""
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    place.mkdir(exist_ok=True)
    folder, made = place / name, place / "made"
    with locked(place):
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # Another process may have failed halfway.
            folder.mkdir()
            make(folder)
            for path in folder.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    path.chmod(0o444)
            made.touch()
    return folder
