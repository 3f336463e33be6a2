"""HTML page of the sentences that two systems translate most differently, self-contained."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dragoman.decoding.scoring import Comparison, Difference

MAX_SENTENCES = 100
"""Most sentences on the page."""

_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1d2733, #e9e4da); --ground: light-dark(#f6f1e9, #12161b);
  --sheet: light-dark(#fffdf9, #1a2027); --line: light-dark(#e4dccf, #2c343d); --faint: light-dark(#5f6672, #a0a6ae);
  --better: light-dark(#1b7a45, #7fd3a0); --worse: light-dark(#b3261e, #ff9d8f); }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 1100px; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } p.note { color: var(--faint); }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: start; padding: .35rem 1rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
article { background: var(--sheet); border: 1px solid var(--line); border-radius: 12px; padding: .4rem 1.2rem .8rem;
  margin: 1rem 0; }
article h2 { font-size: .95rem; margin: .5rem 0; font-variant-numeric: tabular-nums; }
article th { color: var(--faint); font-weight: 500; white-space: nowrap; width: 1%; } article table { width: 100%; }
.better { color: var(--better); } .worse { color: var(--worse); }
mark { color: inherit; background: color-mix(in srgb, currentColor 14%, transparent); border-radius: 3px; }
@media (max-width: 40rem) {
  body { overflow-wrap: anywhere; }
  table { width: 100%; font-size: .9rem; }
  th, td { padding-right: .4rem; }
  body > table :is(th:first-child, th:nth-child(4)) { overflow-wrap: normal; }
  article th, article td { display: block; width: auto; white-space: normal; overflow-wrap: anywhere;
    border: 0; padding: .1rem 0; }
}
"""


@dataclass(frozen=True)
class SentenceDifference:
    """One sentence as two systems translated it."""

    line: int
    """Line number, from 1."""
    source: str | None
    reference: str
    baseline: str
    system: str
    gain: float
    """chrF of the system minus that of the baseline."""


def sentence_differences(
    sources: Sequence[str] | None, references: Sequence[str], baseline: Sequence[str], system: Sequence[str]
) -> list[SentenceDifference]:
    """The sentences that two systems translate differently, the largest difference in chrF first."""
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF()
    found = []
    for index, (reference, before, after) in enumerate(zip(references, baseline, system, strict=True)):
        if before != after:
            gain = chrf.sentence_score(after, [reference]).score - chrf.sentence_score(before, [reference]).score
            source = None if sources is None else sources[index]
            found.append(SentenceDifference(index + 1, source, reference, before, after, gain))
    return sorted(found, key=lambda item: (-abs(item.gain), item.line))


def as_html(names: Sequence[str], comparison: Comparison, found: Sequence[SentenceDifference], sentences: int) -> str:
    """The page. `sentences` is the size of the test set."""
    better, worse = sum(item.gain > 0 for item in found), sum(item.gain < 0 for item in found)
    baseline, system = map(escape, names)
    rows = "".join(_metric_row(difference) for difference in (comparison.bleu, comparison.chrf))
    shown = "".join(_article(baseline, system, item) for item in found[:MAX_SENTENCES])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{baseline} and {system}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{baseline} and {system}, side by side</h1>"
        f"<table><tr><th></th><th>{baseline}</th><th>{system}</th><th>difference</th><th>p</th></tr>{rows}</table>"
        f"<p>Of {sentences:,} sentences, {len(found):,} differ: {system} is better in {better:,} and worse in "
        f"{worse:,} by chrF. Below are the {min(len(found), MAX_SENTENCES):,} with the largest differences.</p>"
        '<p class="note">Highlighted words occur in only one of the two translations.</p>'
        f"{shown}</body></html>\n"
    )


def _metric_row(difference: Difference) -> str:
    kind = "better" if difference.gain > 0 else "worse"
    note = "" if difference.significant else " (not significant)"
    return (
        f"<tr><th>{escape(difference.name)}</th><td>{difference.baseline:.2f} ± {difference.baseline_margin:.2f}</td>"
        f"<td>{difference.system:.2f} ± {difference.system_margin:.2f}</td>"
        f'<td class="{kind}">{difference.gain:+.2f}</td><td>{difference.p_value:.3f}{note}</td></tr>'
    )


def _article(baseline: str, system: str, item: SentenceDifference) -> str:
    before, after = _highlight(item.baseline, item.system)
    source = "" if item.source is None else _row("source", escape(item.source))
    kind = "better" if item.gain > 0 else "worse"
    return (
        f'<article><h2>Line {item.line:,}: <span class="{kind}">{item.gain:+.1f} chrF</span></h2><table>{source}'
        f"{_row('reference', escape(item.reference))}{_row(baseline, before)}{_row(system, after)}</table></article>"
    )


def _row(name: str, content: str) -> str:
    return f'<tr><th>{name}</th><td dir="auto">{content}</td></tr>'


def _highlight(first: str, second: str) -> tuple[str, str]:
    """Both texts as HTML, with the words highlighted that the other lacks."""
    sides: tuple[list[str], list[str]] = ([], [])
    words = first.split(), second.split()
    for operation, a, b, c, d in difflib.SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for side, part in zip(sides, (words[0][a:b], words[1][c:d]), strict=True):
            text = escape(" ".join(part))
            if text:
                side.append(text if operation == "equal" else f"<mark>{text}</mark>")
    return " ".join(sides[0]), " ".join(sides[1])
