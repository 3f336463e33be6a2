"""The version of this installation: equal version numbers may still be different code."""

import functools
import hashlib
from pathlib import Path

from dragoman import __version__


def code_digest() -> str:
    """A short hash of this installation's source."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


@functools.cache
def dragoman_version() -> str:
    """The version number and the hash of the source, as it was at the first call."""
    return f"{__version__} ({code_digest()})"
