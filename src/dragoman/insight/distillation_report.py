"""The report of a distillation: the table of systems and the ledger of quality, as Markdown or as an HTML page."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError, write_remedy
from dragoman.files import read_json, write_atomic
from dragoman.number_format import count, size, span

DISTILLATION_FILE = "distillation.json"
SYSTEM_COLUMNS = ("system", "int8 size", "words/s on one core", "beam", "BLEU", "chrF")
LEDGER_COLUMNS = ("cause", "BLEU", "95 % interval", "to win it back")
PART_COLUMNS = ("part", "time", "cost")

_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1d2733, #e9e4da); --ground: light-dark(#f6f1e9, #12161b);
  --line: light-dark(#e4dccf, #2c343d); --faint: light-dark(#5f6672, #a0a6ae); --bar: light-dark(#b3261e, #ff9d8f);
  --gain: light-dark(#1b7a45, #7fd3a0); }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 1000px; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } p.note { color: var(--faint); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: start; padding: .35rem 1rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
svg { width: 100%; height: auto; } text { font: 13px system-ui, sans-serif; fill: currentColor; }
.scroll { overflow-x: auto; }
@media (max-width: 40rem) { table { font-size: .8rem; } th, td { padding-inline-end: .5rem; } }
.loss { fill: var(--bar); } .gain { fill: var(--gain); } .axis, .interval { stroke: currentColor; }
"""


def is_distillation(folder: Path) -> bool:
    return (folder / DISTILLATION_FILE).is_file()


def read_distillation(folder: Path) -> dict[str, Any]:
    """The result of a distillation."""
    content = read_json(folder / DISTILLATION_FILE)
    if not isinstance(content, dict) or not {"ledger", "upper_bound"} <= content.keys():
        raise DragomanError(
            f"{folder / DISTILLATION_FILE} is damaged, or of an older version: remove it, and run `dragoman distill` "
            "again, which only compares."
        )
    return content


def describe(content: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    systems = {system["name"]: system for system in content["systems"]}
    teacher, student = systems["teacher"], systems["student"]
    speed = student["words_per_s"] / teacher["words_per_s"]
    whole = next(row for row in content["ledger"] if row["cause"] == "all together")
    return (
        f"The student has {size(student['size_bytes'])}, translates {count(student['words_per_s'])} words a second on "
        f"one core ({speed:.1f} x the teacher), and has {student['bleu']:.1f} BLEU on the {content['set']} set, "
        f"{_signed(whole['bleu'])} against the teacher."
    )


def system_rows(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            each["name"], size(each["size_bytes"]), count(each["words_per_s"]), str(each["beam"]),
            f"{each['bleu']:.1f}", f"{each['chrf']:.1f}",
        )
        for each in content["systems"]
    ]  # fmt: skip


def ledger_rows(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    bound = content["upper_bound"]
    interval = f"{bound['low']:.2f} to {bound['high']:.2f}"
    rows: list[tuple[str, ...]] = [("data and teacher", f"{bound['bleu']:.2f}", interval, bound["win_back"])]
    for each in content["ledger"]:
        low, high = _signed(each["low"]), _signed(each["high"])
        rows.append((each["cause"], _signed(each["bleu"]), f"{low} to {high}", each["win_back"]))
    return rows


def part_rows(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            each["name"] + (" (given)" if each["state"] == "own" else ""),
            "-" if each["seconds"] is None else span(each["seconds"]),
            "-" if each["cost"] is None else f"{each['cost']:.2f} {content['currency']}",
        )
        for each in content["parts"]
    ]


def to_markdown(content: Mapping[str, Any]) -> str:
    """The tables, and the sentence above them."""
    lines = [f"# {content['name']}", "", describe(content), ""]
    for title, columns, rows in _tables(content):
        lines += [f"## {title}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(row)} |" for row in rows] + [""]
    return "\n".join([*lines, describe_measurement(content)]) + "\n"


def write_page(content: Mapping[str, Any], path: Path) -> None:
    """Write the page."""
    try:
        write_atomic(path, to_html(content))
    except OSError as error:
        raise DragomanError(
            f"{path} cannot be written ({error.strerror}): {write_remedy(error.strerror)}, or choose another --out."
        ) from None


def to_html(content: Mapping[str, Any]) -> str:
    """The page, self-contained."""
    tables = [
        f'<h2>{title}</h2><div class="scroll" tabindex="0" role="region" aria-label="{title}"><table>'
        f"<tr>{''.join(f'<th>{column}</th>' for column in columns)}</tr>"
        + "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        + "</table></div>"
        for title, columns, rows in _tables(content)
    ]
    name, note = escape(content["name"]), escape(describe_measurement(content))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{name}</h1><p>{escape(describe(content))}</p>"
        f'{tables[0]}{tables[1]}{_chart(content["ledger"])}{tables[2]}<p class="note">{note}</p>'
        "</body></html>\n"
    )


def _tables(content: Mapping[str, Any]) -> list[tuple[str, Sequence[str], list[tuple[str, ...]]]]:
    return [
        ("Systems", SYSTEM_COLUMNS, system_rows(content)),
        ("Where BLEU was lost", LEDGER_COLUMNS, ledger_rows(content)),
        ("Time and cost", PART_COLUMNS, part_rows(content)),
    ]


def describe_measurement(content: Mapping[str, Any]) -> str:
    """Where and how the figures were measured."""
    chosen = " The student's checkpoint was chosen on the same set." if content["set"] == "valid" else ""
    return (
        f"{count(content['sentences'])} sentences of the {content['set']} set; intervals by bootstrap, of differences "
        f"paired; {content['signature']}. The teacher's scores are those of the model as it was given, its size and "
        f"speed those of its int8 export. Words are source words, per second of CPU time.{chosen}"
    )


def _chart(ledger: Sequence[Mapping[str, Any]]) -> str:
    """A bar for each row, with its interval."""
    reach = max(0.1, *(max(abs(row["low"]), abs(row["high"])) for row in ledger))
    middle, scale, height = 520.0, 300.0 / reach, 30
    marks = []
    for number, row in enumerate(ledger):
        y, end = 10 + number * height, middle + row["bleu"] * scale
        low, high = (middle + row[name] * scale for name in ("low", "high"))
        kind = "gain" if row["bleu"] > 0 else "loss"
        marks.append(
            f'<text x="0" y="{y + 14}">{escape(row["cause"])}</text>'
            f'<rect class="{kind}" x="{min(middle, end):.1f}" y="{y}" width="{abs(end - middle):.1f}" height="18"/>'
            f'<line class="interval" x1="{low:.1f}" x2="{high:.1f}" y1="{y + 9}" y2="{y + 9}"/>'
            f'<text x="{max(high, end, middle) + 8:.1f}" y="{y + 14}">{_signed(row["bleu"])}</text>'
        )
    bottom = 10 + len(ledger) * height
    axis = f'<line class="axis" x1="{middle}" x2="{middle}" y1="0" y2="{bottom}"/>'
    return f'<svg viewBox="0 0 900 {bottom}" role="img" aria-label="BLEU by cause">{"".join(marks)}{axis}</svg>'


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-0.00", "0.00").replace("+0.00", "0.00")
