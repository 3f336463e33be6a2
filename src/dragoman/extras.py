"""The extras of the installation, and the error of a function or command whose extra is missing."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dragoman.errors import DragomanError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

EXTRA_OF_MODULE = {
    "prometheus_client": "serve",
    "psutil": "train",
    "pynvml": "train",
    "python_multipart": "serve",
    "safetensors": "train",
    "starlette": "serve",
    "tensorboard": "train",
    "torch": "train",
    "torchft": "elastic",
    "uvicorn": "serve",
}
"""Modules that only some functions and commands need, with the extra of `pyproject.toml` that installs them."""


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The sentence for a missing module, or None if no extra installs it: then it is a bug."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF_MODULE.get(module)
    if extra is None:
        return None
    return f"This needs {module}, which is not installed: run `pip install 'dragoman[{extra}]'`."


def explain_missing_extra(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function of the Python API that names the extra if a module is missing which it imports."""

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except ModuleNotFoundError as error:
            if (sentence := missing_extra(error)) is None:
                raise
            raise DragomanError(sentence) from error

    return call
