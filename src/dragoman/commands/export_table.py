"""Tables of the contents of an export."""

from pathlib import Path
from typing import Any

from rich.console import Console

from dragoman.command_line import command_line
from dragoman.decoding.ctranslate2_translator import CARD_FILE
from dragoman.number_format import count, size
from dragoman.terminal import table


def show_export(content: dict[str, Any], console: Console) -> None:
    """Print languages, format, architecture and files of an export, and what to do with it."""
    folder = Path(content["export"])
    if "architecture" in content:
        _show_model(folder, content, console)
    else:
        languages = content.get("languages")
        direction = f"{languages['source']} to {languages['target']}; " if languages else ""
        console.print(
            f"[bold]{folder.name}[/bold]  {direction}{content['format']}; {size(content['bytes'])}\n", highlight=False
        )
    rows = table("file", "size", "contents", right=(1,))
    for name, file in content["files"].items():
        rows.add_row(name, size(file["bytes"]), file["holds"])
    console.print(rows)
    use = f"Scores, data and limits: {folder / CARD_FILE}. Try `{command_line('translate', folder)}`."
    if content["format"] == "argos":
        use = "Install it with Argos Translate's `package.install_from_path`."
    console.print(f"\n{use}", highlight=False, soft_wrap=True)


def _show_model(folder: Path, content: dict[str, Any], console: Console) -> None:
    languages, model = content["languages"], content["architecture"]
    kind = ", ".join(part for part in (content["format"], content["quantization"]) if part) or "export"
    console.print(
        f"[bold]{folder.name}[/bold]  {languages['source']} to {languages['target']}; {kind}; "
        f"{count(content['parameters'])} parameters, {size(content['bytes'])}",
        highlight=False,
    )
    console.print(
        f"{model['encoder_layers']} + {model['decoder_layers']} layers, {model['d_model']} features, "
        f"{model['heads']} heads, vocabulary {count(model['vocabulary'])}; beam {content['decoding']['beam']}\n",
        highlight=False,
    )
