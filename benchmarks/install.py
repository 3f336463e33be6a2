"""A fresh installation for serving: its packages, its size, and the time to the first translation.

    python -m benchmarks.install
    python -m benchmarks.install --model models/en-de

Builds the wheel, and installs it with the extra `serve` in a new virtual environment.
"""

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from benchmarks.command_line import make_parser, run_dragoman
from benchmarks.reporting import Figure, print_figures

ROOT = Path(__file__).parents[1]
SENTENCE = "The teacher reads a book."
EXTRA = "serve"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path, help="export to translate with (default: one that is made here)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        model = options.model or make_export(Path(folder))
        print_figures("install", measure(Path(folder), model))


def make_export(folder: Path) -> Path:
    from benchmarks.toy_models import make_trained_model

    make_trained_model(folder / "model")
    run_dragoman("export", folder / "model", "--out", folder / "export")
    return folder / "export"


def measure(folder: Path, model: Path) -> Iterator[Figure]:
    wheel = build_wheel(folder / "dist")
    started_at = time.perf_counter()
    environment = make_environment(folder / "environment")
    install(environment, wheel, EXTRA)
    install_s = time.perf_counter() - started_at
    first_s, again_s = (measure_translation_s(environment, model) for _ in range(2))
    packages = installed_packages(environment)
    torch = "torch" in packages
    yield Figure("torch is installed", "yes" if torch else "no", "no", torch)
    yield Figure("packages", str(len(packages)), "", len(packages))
    size_mb = size_bytes(environment) / 1e6
    yield Figure("size of the environment", f"{size_mb:.0f} MB", "under 400 MB", size_mb)
    yield Figure("time of `pip install`, with the environment", f"{install_s:.0f} s", "", install_s)
    yield Figure("first translation after it", f"{first_s:.1f} s", "under 60 s", first_s)
    yield Figure("second translation", f"{again_s:.1f} s", "", again_s)


def build_wheel(folder: Path) -> Path:
    """Build the wheel with the tools that are installed here."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def make_environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True, symlinks=True)
    return folder


def install(environment: Path, wheel: Path, extra: str) -> None:
    """Install a wheel with an extra, in the versions that are tested together."""
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", f"{wheel}[{extra}]"], check=True)


def measure_translation_s(environment: Path, model: Path) -> float:
    started_at = time.perf_counter()
    command = [environment / "bin" / "dragoman", "translate", model, SENTENCE]
    translated = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert translated.strip()
    return time.perf_counter() - started_at


def installed_packages(environment: Path) -> set[str]:
    command = [environment / "bin" / "python", "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.partition("==")[0] for line in listing.splitlines()}


def size_bytes(folder: Path) -> int:
    """Bytes of all files, without those that links lead to elsewhere."""
    return sum((Path(parent) / name).lstat().st_size for parent, _, names in os.walk(folder) for name in names)


if __name__ == "__main__":
    main()
