"""Convert OpenSeq2Seq's own configurations, and count what becomes of their settings.

    python -m benchmarks.openseq2seq FOLDER

FOLDER holds configurations, such as `example_configs/text2text` of OpenSeq2Seq. Those that are not for translation are
refused, and counted as such. A setting is lost if it is neither mapped nor listed; the keys are counted a second time,
by the syntax tree alone. The exit code is 1 if one is lost.
"""

import ast
import sys
import tomllib
from pathlib import Path

from benchmarks.reporting import print_json, print_row
from dragoman.errors import DragomanError
from dragoman.openseq2seq.conversion import convert
from dragoman.openseq2seq.recipe_text import as_recipe


def keys_in(path: Path) -> set[str]:
    """All constant keys of dictionaries in a file, and all keywords of `dict(...)`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Dict):
            found |= {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            found |= {keyword.arg for keyword in node.keywords if keyword.arg}
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    files, refused, lost_keys = 0, 0, 0
    print_row("configuration", "settings", "mapped", "without counterpart", "statements not evaluated", "lost")
    print_row(*["---"] * 6)
    for path in sorted(folder.rglob("*.py")):
        try:
            conversion = convert(path)
        except DragomanError as error:
            refused += 1
            print(f"refused: {error}", file=sys.stderr)
            continue
        recipe = as_recipe(conversion)
        tomllib.loads(recipe)
        lost = sorted(key for key in keys_in(path) if key not in recipe)
        files, lost_keys = files + 1, lost_keys + len(lost)
        counts = (len(conversion.converted), len(conversion.mapped), len(conversion.without_counterpart))
        print_row(path.relative_to(folder), *counts, len(conversion.skipped), " ".join(lost) or "none")
    print_json("openseq2seq", files=files, refused=refused, lost=lost_keys)
    sys.exit(1 if lost_keys else 0)


if __name__ == "__main__":
    main()
