"""Tables of a data set, as `prepare`, `demo` and `inspect` print them."""

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.text import Text

from dragoman.corpus.cleaning import NORMALIZING_RULES
from dragoman.corpus.dataset_summary import histogram
from dragoman.corpus.dropped_pairs import augmented_copies, dropped_by_rule
from dragoman.number_format import count, size
from dragoman.settings import AUGMENTATIONS
from dragoman.terminal import table

if TYPE_CHECKING:
    from dragoman.corpus.dataset import DataSet, SourceReport, TextCounts

BAR_WIDTH = 40
EXAMPLE_CHARACTERS = 60


def show_dataset(data: "DataSet", console: Console) -> None:
    """Print sizes, splits, sources, cleaning rules and sentence lengths."""
    manifest = data.manifest
    total_bytes = sum(file.size_bytes for file in manifest.files.values())
    console.print(f"[bold]{manifest.name}[/bold]  {manifest.languages.source} to {manifest.languages.target}")
    console.print(
        f"{size(total_bytes)} on disk in {len(manifest.files)} files; {count(manifest.pieces)} pieces "
        f"({manifest.settings['tokenizer']['algorithm']}); identity {manifest.identity[:16]}\n",
        highlight=False,
    )
    show_splits(data, console)
    for source in manifest.sources:
        console.print()
        _show_source(source, console)
    console.print()
    _show_lengths(data, console)


def show_splits(data: "DataSet", console: Console) -> None:
    """Print the size and the sources of each split."""
    manifest = data.manifest
    splits = table("split", "pairs", "text", "source tokens", "target tokens", "from", right=(1, 2, 3, 4))
    for split, counts in manifest.splits.items():
        sources = ", ".join(manifest.evaluation_sources.get(split, [source.name for source in manifest.sources]))
        splits.add_row(split, *_cells(counts), sources)
    console.print(splits)


def show_dropped_pairs(data: "DataSet", console: Console) -> None:
    """Print how many pairs cleaning dropped, by rule."""
    manifest = data.manifest
    before = sum(source.before.pairs for source in manifest.sources)
    dropped = dropped_by_rule(manifest)
    total = sum(entry.pairs for entry in dropped)
    console.print(f"Cleaning dropped {count(total)} of {count(before)} pairs ({total / before:.1%}).", highlight=False)
    if dropped:
        rows = table("dropped by", "pairs", "share", right=(1, 2))
        for entry in dropped:
            rows.add_row(entry.rule, count(entry.pairs), f"{entry.share:.2%}")
        console.print(rows)
    if manifest.min_score is not None:
        console.print(
            f"The models' scores of pairs that were kept are at least {manifest.min_score:g}.", highlight=False
        )
    if added := augmented_copies(manifest):
        copies = ", ".join(f"{count(pairs)} {name}" for name, pairs in added.items())
        console.print(f"Augmentation added copies of pairs: {copies}.", highlight=False)


def show_samples(data: "DataSet", console: Console) -> None:
    """Print samples of the pairs that each rule changed or dropped, and of augmented pairs."""
    for source in data.manifest.sources:
        for name, rule in source.rules.items():
            for sample in rule.samples:
                console.print(Text.assemble((f"{name}  ", "bold"), " | ".join(sample)), soft_wrap=True)


def _show_source(source: "SourceReport", console: Console) -> None:
    weight = "" if source.weight == 1 else f", weight {source.weight:g}"
    synthetic = f"; synthetic {source.synthetic}" if source.synthetic else ""
    console.print(f"[bold]{source.name}[/bold]{weight}{synthetic}; licence: {source.licence}", highlight=False)
    sizes = table("", "pairs", "text", "source tokens", "target tokens", right=(1, 2, 3, 4))
    sizes.add_row("before cleaning", *_cells(source.before))
    sizes.add_row("after cleaning", *_cells(source.after))
    console.print(sizes)
    rules = table("rule", "pairs", "share", "example", right=(1, 2))
    for name, rule in source.rules.items():
        if rule.pairs:
            example = " | ".join(rule.samples[0]) if rule.samples else ""
            effect = "changed" if name in NORMALIZING_RULES else "added" if name in AUGMENTATIONS else None
            label = name if effect is None else f"{name} ({effect})"
            share = f"{rule.pairs / source.before.pairs:.2%}"
            rules.add_row(label, count(rule.pairs), share, Text(example[:EXAMPLE_CHARACTERS], "dim"))
    if source.held_out:
        rules.add_row("held out", count(source.held_out), f"{source.held_out / source.before.pairs:.2%}", "")
    if rules.row_count:
        console.print(rules)


def _show_lengths(data: "DataSet", console: Console) -> None:
    lengths = data.pairs("train").lengths()
    for side, language in enumerate((data.languages.source, data.languages.target)):
        values = lengths[:, side]
        title = (
            f"{language}: {values.mean():.1f} tokens on average, median {np.median(values):.0f}, longest {values.max()}"
        )
        bars = table("tokens", "sentences", "", title=title, right=(0, 1))
        rows = histogram(values)
        largest = max(number for _, number in rows)
        for label, number in rows:
            bars.add_row(label, count(number), Text("█" * round(BAR_WIDTH * number / largest), "cyan"))
        console.print(bars)
        console.print()


def _cells(counts: "TextCounts") -> tuple[str, str, str, str]:
    return count(counts.pairs), size(counts.text_bytes), count(counts.source_tokens), count(counts.target_tokens)
