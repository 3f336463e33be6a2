"""Draw the picture of local steps: a timeline of one interval, and the measured loss against the bytes sent.

The points are finished cells of `benchmarks.exchange_quality`, kept in `exchange-quality.jsonl` beside this file.

    python docs/exchange_picture.py
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
WIDTH, HEIGHT = 960, 330
COLORS = {"int8": "#2563eb", "int4": "#059669", "int2": "#dc2626"}
INK, FAINT, PAPER = "#1f2937", "#d1d5db", "#ffffff"
PLOT = (540, 50, 390, 220)
"""Left, top, width and height of the plot."""
STEPS, PARTS = 12, 4
"""Of the timeline."""


def text(x: float, y: float, content: str, size: int = 12, anchor: str = "start", color: str = INK) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" fill="{color}">{content}</text>'


def box(x: float, y: float, width: float, height: float, color: str, opacity: float = 1.0) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} rx="3" fill="{color}" opacity="{opacity}"/>'


def line(x1: float, y1: float, x2: float, y2: float, color: str = FAINT) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def draw_timeline() -> Iterator[str]:
    """Two workers that compute all the time, and one part of the weights after the other on the link between them."""
    left, width = 100, 32
    yield text(20, 28, f"exchange.every={STEPS}, exchange.overlap={STEPS // PARTS}: {PARTS} parts", 14)
    for worker, top in ((0, 60), (1, 190)):
        yield text(20, top + 22, f"worker {worker}")
        for step in range(STEPS):
            yield box(left + step * width, top, width - 3, 34, INK, 0.75)
            yield text(left + step * width + (width - 3) / 2, top + 21, str(step + 1), 11, "middle", PAPER)
    yield text(20, 147, "link")
    span = STEPS // PARTS * width
    for part in range(PARTS):
        yield box(left + part * span, 125, span - 3, 34, COLORS["int4"], 0.9)
        yield text(left + part * span + span / 2, 146, f"part {part + 1}, 4 bits", 11, "middle", PAPER)
        x = left + (part + 1) * span - 2
        yield line(x, 94, x, 190, INK)
    notes = (
        "Workers never wait. After its steps of overlap, the mean of a part's changes",
        "replaces its weights; what a worker has learned meanwhile is added to them.",
        "What rounding to 4 bits has lost is sent with the next change of the same part.",
    )
    for number, note in enumerate(notes):
        yield text(20, 260 + 18 * number, note)


def draw_plot(cells: list[dict[str, Any]]) -> Iterator[str]:
    """Loss against synchronous training over the part of plain's bytes."""
    left, top, width, height = PLOT
    baseline = next(cell["nll"] for cell in cells if cell["cell"] == "sync")
    points = [
        (cell["plain_bytes_per_step"] / cell["bytes_per_step"], 100 * (cell["nll"] / baseline - 1), cell)
        for cell in cells
        if cell["workers"] == 2 and (cell["outer_learning_rate"], cell["outer_momentum"]) == (1.0, 0.0)
    ]
    most, least_log, most_log = 2 * math.ceil(max(loss for _, loss, _ in points) / 2), math.log(50), math.log(10_000)

    def place(reduction: float, loss: float) -> tuple[float, float]:
        x = left + width * (math.log(reduction) - least_log) / (most_log - least_log)
        return x, top + height * (1 - loss / most)

    yield text(left, 28, "Loss against synchronous training, 2 workers", 14)
    for percent in range(0, most + 1, 2):
        _, y = place(100, percent)
        yield line(left, y, left + width, y)
        yield text(left - 6, y + 4, f"+{percent} %", 11, "end")
    for reduction in (100, 400, 1000, 4000, 10_000):
        x, _ = place(reduction, 0)
        yield text(x, top + height + 18, f"1/{reduction:,}", 11, "middle")
    yield text(left + width / 2, top + height + 38, "bytes a step and worker, against plain", 12, "middle")
    for wire_format, color in COLORS.items():
        places = sorted(
            (*place(each, loss), cell["every"]) for each, loss, cell in points if cell["wire_format"] == wire_format
        )
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
        for x, y, every in places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>'
            yield text(x + 7, y + 14, str(every), 11, color=color)
    for number, (wire_format, color) in enumerate(COLORS.items()):
        yield text(left + 12, top + 16 + 16 * number, f"{wire_format}, by interval", 12, color=color)


def main() -> None:
    cells = [json.loads(each) for each in (FOLDER / "exchange-quality.jsonl").read_text(encoding="utf-8").splitlines()]
    title = "Local steps: two workers compute while parts of the weights are averaged; loss against bytes sent"
    shapes = "\n".join([box(0, 0, WIDTH, HEIGHT, PAPER), *draw_timeline(), *draw_plot(cells)])
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" role="img">\n'
        f"<title>{title}</title>\n{shapes}\n</svg>\n"
    )
    (FOLDER / "images" / "exchange-quality.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
