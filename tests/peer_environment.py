"""A virtual environment with packages that only some tests need, beside the packages of the project."""

import site
import subprocess
import sys
import venv
from pathlib import Path

from dragoman.files import locked

FOLDER = Path(sys.prefix) / "peers"
PACKAGES = (
    "mlflow-skinny==3.17.2", "sqlalchemy==2.0.*", "alembic", "wandb==0.31.0", "trackio==0.43.0",
    "ipykernel==7.4.0", "nbclient==0.11.0", "ipywidgets==8.1.9", "triton==3.9.0; sys_platform == 'linux'",
)  # fmt: skip


def peer_python() -> Path:
    """The Python of the environment. The first process that asks makes it."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / "installed.txt"
    FOLDER.mkdir(exist_ok=True)
    with locked(FOLDER.parent / "peers.lock"):
        if not stamp.is_file() or stamp.read_text().splitlines() != list(PACKAGES):
            venv.create(FOLDER, clear=True, symlinks=True, with_pip=False)
            packages = next((FOLDER / "lib").glob("python*/site-packages"))
            shared = [*(path for path in sys.path if path and Path(path).name == "src"), *site.getsitepackages()]
            (packages / "shared.pth").write_text(
                "".join(f"import site; site.addsitedir({path!r})\n" for path in shared)
            )
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
            subprocess.run([*pip, "--disable-pip-version-check", *PACKAGES], check=True)
            stamp.write_text("\n".join(PACKAGES))
    return python
