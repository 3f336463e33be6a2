"""The one page that shows runs: live, or as a single file that needs nothing else."""

import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any


def render(digests: Sequence[dict[str, Any]], *, live: bool = False) -> str:
    """The whole page, with its style, its program and what it shows."""
    title = ", ".join(digest["run"] for digest in digests)
    parts = {
        "title": escape(title),
        "style": _file("page.css"),
        "script": _file("page.js"),
        "data": to_script_json({"runs": list(digests), "live": live}),
    }
    page = _file("page.html")
    # One pass over the template: text of a run that looks like a placeholder stays text.
    pieces = page.split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces[1:]))


def to_script_json(content: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _file(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
