"""Faults in a worker, for `benchmarks.fault_injection`.

Python imports this module at the start of every process that has this folder in its PYTHONPATH. `DRAGOMAN_FAULT` holds
the kind of the fault, the worker it happens to, and the folder where faults that happen only once leave a mark.
"""

import importlib.abc
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

FAULT_STEP = 10
STEP = 2
"""Place of the step's number in the arguments of `TrainStep.__call__`."""
Patch = Callable[[ModuleType], None]


def _is_here() -> bool:
    return os.environ.get("RANK") == str(FAULT["worker"])


def _first_time(name: str) -> bool:
    """True once for each name, in all processes of the worker together."""
    if not _is_here():
        return False
    try:
        (Path(FAULT["folder"]) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _die_once(name: str) -> None:
    if _first_time(name):
        os.kill(os.getpid(), signal.SIGKILL)


def _before(owner: Any, method: str, act: Callable[..., None]) -> None:
    original = getattr(owner, method)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        act(*arguments, **options)
        return original(*arguments, **options)

    setattr(owner, method, wrapped)


def _spoil_gradient(module: ModuleType) -> None:
    original = module.TrainStep.__call__

    def spoiled(self: Any, batch: Any, step: int, *others: Any) -> Any:
        result = original(self, batch, step, *others)
        if step == FAULT_STEP and _first_time("nan"):
            next(iter(self._parameters)).grad.fill_(float("nan"))
        return result

    module.TrainStep.__call__ = spoiled


def _raise_in_step(module: ModuleType) -> None:
    def act(*arguments: Any) -> None:
        if arguments[STEP] == FAULT_STEP and _is_here():
            raise ValueError("the injected fault")

    _before(module.TrainStep, "__call__", act)


def _die_in_step(module: ModuleType) -> None:
    def act(*arguments: Any) -> None:
        if arguments[STEP] == FAULT_STEP:
            _die_once("step")

    _before(module.TrainStep, "__call__", act)


def _die_in_join(module: ModuleType) -> None:
    """In an elastic world: in the join after a death, when the others are training."""

    def act(*_: Any) -> None:
        if not FAULT["elastic"] or (Path(FAULT["folder"]) / "step").exists():
            _die_once("join")

    _before(module.WorkerProcessGroup, "_connect", act)


PATCHES: dict[str, dict[str, Patch]] = {
    "nan": {"dragoman.training.train_step": _spoil_gradient},
    "exception": {"dragoman.training.train_step": _raise_in_step},
    "evaluation": {
        "dragoman.training.trainer": lambda module: _before(
            module.Trainer, "_evaluate", lambda *_: _die_once("evaluation")
        )
    },
    "checkpoint": {
        "dragoman.training.checkpoint": lambda module: _before(module, "write_json", lambda *_: _die_once("checkpoint"))
    },
    "join": {"dragoman.training.train_step": _die_in_step, "dragoman.distributed.process_group": _die_in_join},
}


class _PatchingFinder(importlib.abc.MetaPathFinder):
    """Finds the modules to patch with the usual finders, and patches them after their import."""

    def __init__(self, patches: dict[str, Patch]) -> None:
        self._patches = patches

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        patch = self._patches.pop(name, None)
        spec = importlib.util.find_spec(name) if patch is not None else None
        if patch is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


FAULT: dict[str, Any] = json.loads(os.environ.get("DRAGOMAN_FAULT", "null")) or {}
if FAULT and FAULT["kind"] in PATCHES:
    sys.meta_path.insert(0, _PatchingFinder(dict(PATCHES[FAULT["kind"]])))
