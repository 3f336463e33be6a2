"""A data set in words and numbers: what `dragoman inspect DATA` shows."""

from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.text import Text

from dragoman.corpus.cleaning import MENDING_RULES
from dragoman.corpus.dataset import DataSet, SourceReport, Split, Volume
from dragoman.terminal import count, size, table

BUCKETS = 12
BUCKET_WIDTHS = (1, 2, 5, 10, 20, 50, 100, 1000, 10000)
BAR_WIDTH = 40


def histogram(lengths: npt.NDArray[np.int32]) -> list[tuple[str, int]]:
    """How many sentences have how many tokens, in a dozen buckets of equal and round width; the last takes the rest."""
    typical = float(np.quantile(lengths, 0.995))
    width = next(width for width in BUCKET_WIDTHS if typical <= width * BUCKETS)
    counts = np.bincount(np.minimum(lengths // width, BUCKETS - 1), minlength=1)
    first = int(np.flatnonzero(counts)[0])
    labels = [f"{bucket * width}-{bucket * width + width - 1}" for bucket in range(BUCKETS - 1)]
    labels.append(f"{(BUCKETS - 1) * width}+")
    return [(labels[bucket], int(counts[bucket])) for bucket in range(first, len(counts))]


def as_json(data: DataSet) -> dict[str, Any]:
    """The manifest with the length histograms of each split."""
    lengths = {split: data.pairs(_split(split)).lengths() for split in data.manifest.splits}
    return {
        **data.manifest.to_json(),
        "lengths": {
            split: {
                side: dict(histogram(lengths[split][:, number])) for number, side in enumerate(("source", "target"))
            }
            for split in lengths
        },
    }


def show(data: DataSet, console: Console) -> None:
    """Sizes, splits, sources, rules and lengths, each as a table."""
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


def show_splits(data: DataSet, console: Console) -> None:
    """How much text each split holds."""
    manifest = data.manifest
    splits = table("split", "pairs", "text", "source tokens", "target tokens", "from", right=(1, 2, 3, 4))
    for split, volume in manifest.splits.items():
        origin = ", ".join(manifest.evaluation_sources.get(split, [source.name for source in manifest.sources]))
        splits.add_row(split, *_cells(volume), origin)
    console.print(splits)


def _show_source(source: SourceReport, console: Console) -> None:
    weight = "" if source.weight == 1 else f", weight {source.weight:g}"
    console.print(f"[bold]{source.name}[/bold]{weight}; licence: {source.licence}", highlight=False)
    volumes = table("", "pairs", "text", "source tokens", "target tokens", right=(1, 2, 3, 4))
    volumes.add_row("before cleaning", *_cells(source.before))
    volumes.add_row("after cleaning", *_cells(source.after))
    console.print(volumes)
    rules = table("rule", "pairs", "share", "for example", right=(1, 2))
    for name, rule in source.rules.items():
        if rule.pairs:
            example = " | ".join(rule.samples[0]) if rule.samples else ""
            shown = f"{name} (mended)" if name in MENDING_RULES else name
            rules.add_row(
                shown, count(rule.pairs), f"{rule.pairs / source.before.pairs:.2%}", Text(example[:60], "dim")
            )
    if source.held_out:
        rules.add_row("held out", count(source.held_out), f"{source.held_out / source.before.pairs:.2%}", "")
    if rules.row_count:
        console.print(rules)


def _show_lengths(data: DataSet, console: Console) -> None:
    lengths = data.pairs("train").lengths()
    for side, language in enumerate((data.languages.source, data.languages.target)):
        values = lengths[:, side]
        title = (
            f"{language}: {values.mean():.1f} tokens on average, median {np.median(values):.0f}, longest {values.max()}"
        )
        bars = table("tokens", "sentences", "", title=title, right=(0, 1))
        rows = histogram(values)
        most = max(number for _, number in rows)
        for label, number in rows:
            bars.add_row(label, count(number), Text("█" * round(BAR_WIDTH * number / most), "cyan"))
        console.print(bars)
        console.print()


def _cells(volume: Volume) -> tuple[str, str, str, str]:
    return count(volume.pairs), size(volume.text_bytes), count(volume.source_tokens), count(volume.target_tokens)


def _split(name: str) -> Split:
    assert name in ("train", "valid", "test")
    return name  # type: ignore[return-value]
