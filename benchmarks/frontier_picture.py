"""The frontier of small models as an SVG picture: size on one axis, speed on the other."""

from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.recipe import resolve

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 460, 70, 60
MAX_MEGABYTES, MAX_SPEEDUP = 22.0, 14.0
LIMIT_MEGABYTES, LIMIT_SPEEDUP = 20, 5
RECIPES = ("student", "student-tiny")


def draw(rows: Sequence[Mapping[str, Any]]) -> str:
    """A point for each model that fits into the picture. The recipes are named; the limits are dashed."""
    recipes = {recipe_cell(recipe): recipe for recipe in RECIPES}
    shown = [row for row in rows if row["size_bytes"] / 1e6 <= MAX_MEGABYTES]
    best = frontier(shown)
    marks = [_axes(), *(_point(row, recipes.get(row["name"]), row["name"] in best) for row in shown)]
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
        if not any(other["parameters"] >= row["parameters"] and other["speedup"] > row["speedup"] for other in rows)
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
        f'<text x="{LEFT - 10}" y="{_y(value) + 4:.0f}" text-anchor="end">{value} x</text>' for value in range(0, 15, 2)
    ]
    limits = (
        f'<path d="M{_x(LIMIT_MEGABYTES):.0f} {top:.0f}V{bottom:.0f}M{LEFT} {_y(LIMIT_SPEEDUP):.0f}H{right:.0f}" '
        'stroke="#b3261e" stroke-dasharray="5 5" fill="none"/>'
    )
    return (
        f'<path d="M{LEFT} {top:.0f}V{bottom:.0f}H{right:.0f}" stroke="#1d2733" fill="none"/>{limits}{"".join(ticks)}'
        f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle">size of the int8 export, MB</text>'
        f'<text x="{LEFT}" y="18">words a second on one core, against transformer-base; both int8, greedy</text>'
    )


def _point(row: Mapping[str, Any], recipe: str | None, is_best: bool) -> str:
    x, y = _x(row["size_bytes"] / 1e6), _y(row["speedup"])
    color = "#b3261e" if recipe else "#1b5e7a" if is_best else "#a0a6ae"
    bleu = "" if row["bleu"] is None else f", {row['bleu']:.1f} BLEU"
    label = f"{recipe}: {row['name']}" if recipe else row["name"]
    weight = ' font-weight="bold"' if recipe else ""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{6 if recipe else 4}" fill="{color}"/>'
        f'<text x="{x + 9:.1f}" y="{y + 4:.1f}" fill="{color}"{weight}>{label}{bleu}</text>'
    )
