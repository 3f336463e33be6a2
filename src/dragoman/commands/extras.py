"""The extras of the installation, and the sentence for a command whose extra is missing."""

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
"""Modules that only some commands need, with the extra of `pyproject.toml` that installs them."""


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The sentence for a missing module, or None if no extra installs it: then it is a bug."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF_MODULE.get(module)
    if extra is None:
        return None
    return f"This command needs {module}, which is not installed: run `pip install 'dragoman[{extra}]'`."
