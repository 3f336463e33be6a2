"""The frontier of small models as an SVG picture: size on one axis, speed on the other."""

from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.recipe import resolve

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 460, 70, 60
MAX_MEGABYTES, MAX_SPEEDUP = 24.0, 30.0
LIMIT_MEGABYTES, LIMIT_SPEEDUP = 20, 5
RECIPES = ("student", "student-tiny")
SPEED = "speedup_as_shipped"
TITLE = "words a second on one core in int8: greedy, against transformer-base with its beam of 4"
LETTER = 6.6
"""Width of a letter of a label."""


def draw(rows: Sequence[Mapping[str, Any]]) -> str:
    """A point for each model that fits into the picture. The recipes are named; the limits are dashed."""
    recipes = {recipe_cell(recipe): recipe for recipe in RECIPES}
    shown = [row for row in rows if row["size_bytes"] / 1e6 <= MAX_MEGABYTES]
    best = frontier(shown)
    labels = _Labels([_place(row) for row in shown])
    ranked = sorted(shown, key=lambda row: (row["name"] not in recipes, row["name"] not in best))
    marks = [_axes(), *(_point(row, recipes.get(row["name"]), row["name"] in best, labels) for row in ranked)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" '
        f'font-size="13" role="img"><title>Speed and size of students in int8</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fffdf9"/>{"".join(marks)}</svg>\n'
    )


def recipe_cell(recipe: str) -> str:
    """The name of a recipe's cell in the grid."""
    settings = resolve(recipe).settings
    model, pieces = settings.model, settings.tokenizer.vocabulary_size // 1024
    return f"{model.encoder_layers}-{model.decoder_layers}-{model.d_model}-{model.feed_forward}-{pieces}k"


def frontier(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """The models than which no larger one is faster: of two with the same speed, more parameters are better."""
    return {
        row["name"]
        for row in rows
        if not any(other["parameters"] >= row["parameters"] and other[SPEED] > row[SPEED] for other in rows)
    }


def _x(megabytes: float) -> float:
    return LEFT + (WIDTH - LEFT - 30) * megabytes / MAX_MEGABYTES


def _y(speedup: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 30) * min(speedup, MAX_SPEEDUP) / MAX_SPEEDUP


def _axes() -> str:
    bottom, top, right = _y(0), _y(MAX_SPEEDUP), _x(MAX_MEGABYTES)
    ticks = [
        f'<text x="{_x(value):.0f}" y="{bottom + 20:.0f}" text-anchor="middle">{value}</text>'
        for value in range(0, 21, 5)
    ]
    ticks += [
        f'<text x="{LEFT - 10}" y="{_y(value) + 4:.0f}" text-anchor="end">{value} x</text>' for value in range(0, 31, 5)
    ]
    limits = (
        f'<path d="M{_x(LIMIT_MEGABYTES):.0f} {top:.0f}V{bottom:.0f}M{LEFT} {_y(LIMIT_SPEEDUP):.0f}H{right:.0f}" '
        'stroke="#b3261e" stroke-dasharray="5 5" fill="none"/>'
    )
    return (
        f'<path d="M{LEFT} {top:.0f}V{bottom:.0f}H{right:.0f}" stroke="#1d2733" fill="none"/>{limits}{"".join(ticks)}'
        f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle">size of the int8 export, MB</text>'
        f'<text x="{LEFT}" y="18">{TITLE}</text>'
    )


class _Labels:
    """Places labels beside their points so that none covers another. One that fits nowhere is left out."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        self._boxes = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]

    def place(self, x: float, y: float, text: str, style: str) -> str:
        width = LETTER * len(text)
        for left, base in ((x + 9, y + 4), (x - 9 - width, y + 4), (x - width / 2, y - 10), (x - width / 2, y + 19)):
            box = (left, base - 11, left + width, base + 3)
            if left > LEFT and box[2] < WIDTH and not any(_overlap(box, other) for other in self._boxes):
                self._boxes.append(box)
                return f'<text x="{left:.1f}" y="{base:.1f}" {style}>{text}</text>'
        return ""


def _overlap(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def _point(row: Mapping[str, Any], recipe: str | None, is_best: bool, labels: _Labels) -> str:
    x, y = _place(row)
    color = "#b3261e" if recipe else "#1b5e7a" if is_best else "#8a9099"
    bleu = "" if row["bleu"] is None else f", {row['bleu']:.1f} BLEU"
    text = f"{recipe}: {row['name']}{bleu}" if recipe else f"{row['name']}{bleu}"
    style = f'fill="{color}" textLength="{LETTER * len(text):.0f}"' + (' font-weight="bold"' if recipe else "")
    point = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{6 if recipe else 4}" fill="{color}"/>'
    return point + labels.place(x, y, text, style)


def _place(row: Mapping[str, Any]) -> tuple[float, float]:
    return _x(row["size_bytes"] / 1e6), _y(row[SPEED])
