"""The page that shows runs: live, or as one self-contained file."""

import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any


def render(runs: Sequence[dict[str, Any]], comparison: dict[str, Any] | None = None, *, live: bool = False) -> str:
    """The complete page, with its style sheet, script and data."""
    title = ", ".join(run["run"] for run in runs)
    parts = {
        "title": escape(title),
        "style": _read("page.css"),
        "script": _read("page.js"),
        "data": to_script_json({"runs": list(runs), "comparison": comparison, "live": live}),
    }
    # One pass over the template, so that text of a run that looks like a placeholder is not replaced.
    first, *rest = _read("page.html").split("{{")
    return first + "".join(parts[name] + text for name, _, text in (piece.partition("}}") for piece in rest))


def to_script_json(content: Any) -> str:
    """JSON that cannot close the script element around it."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_bytes().decode()
