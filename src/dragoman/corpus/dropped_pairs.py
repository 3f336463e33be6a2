"""The pairs that cleaning dropped: counts by rule, and what to do where a rule dropped many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.corpus.cleaning import NORMALIZING_RULES
from dragoman.corpus.dataset import Manifest, SourceReport
from dragoman.corpus.source_arguments import STANDARD_INPUT, TWO_FILE_FORMATS
from dragoman.corpus.sources import Languages, Source
from dragoman.corpus.text_encodings import likely_encoding
from dragoman.settings import AUGMENTATIONS

WARNING_SHARE = 0.1
"""Share of the pairs of a source above which a rule that dropped them is worth a warning."""
TEXT_FORMATS = TWO_FILE_FORMATS | {"tsv", "csv", "jsonl"}
"""The formats that --encoding applies to."""


@dataclass(frozen=True)
class DroppedPairs:
    """The pairs that one rule dropped, of all sources together."""

    rule: str
    pairs: int
    share: float


def dropped_by_rule(manifest: Manifest) -> list[DroppedPairs]:
    """The rules that dropped pairs, in the order in which they run."""
    total = sum(source.before.pairs for source in manifest.sources)
    counts: dict[str, int] = {}
    for source in manifest.sources:
        for rule, pairs in _dropped(source).items():
            counts[rule] = counts.get(rule, 0) + pairs
    return [DroppedPairs(rule, pairs, pairs / total) for rule, pairs in counts.items()]


def _dropped(source: SourceReport) -> dict[str, int]:
    return {
        rule: report.pairs
        for rule, report in source.rules.items()
        if report.pairs and rule not in NORMALIZING_RULES and rule not in AUGMENTATIONS
    }


def augmented_copies(manifest: Manifest) -> dict[str, int]:
    """The augmented copies of pairs of all sources, by what was changed."""
    return {
        name: sum(source.rules[name].pairs for source in manifest.sources if name in source.rules)
        for name in AUGMENTATIONS
        if any(name in source.rules for source in manifest.sources)
    }


def warnings_of(manifest: Manifest, sources: Sequence[Source]) -> list[str]:
    """A sentence with a remedy for each rule that dropped more than a tenth of a source."""
    read = {source.name: source for source in sources}
    return [
        f"{report.name}: the rule '{rule}' dropped {pairs / report.before.pairs:.0%} of the pairs: "
        + remedy_of(rule, manifest.settings["cleaning"], read.get(report.name), manifest.languages)
        for report in manifest.sources
        for rule, pairs in _dropped(report).items()
        if pairs > WARNING_SHARE * report.before.pairs
    ]


def remedy_of(rule: str, settings: Mapping[str, Any], source: Source | None, languages: Languages) -> str:
    """What to do about the pairs that a rule dropped."""
    match rule:
        case "invalid_utf8":
            return _encoding_remedy(source, languages)
        case "empty":
            return "check that both sides are filled."
        case "words":
            limits = f"{settings['min_words']} to {settings['max_words']} words"
            return f"sides of {limits} are kept; change cleaning.min_words or cleaning.max_words for others."
        case "identical":
            return "check that the target side is translated."
        case "ratio":
            return "check that the sides are aligned, or raise cleaning.max_length_ratio."
        case "mojibake":
            return "the text was decoded with a wrong encoding before: get the original, or give its --encoding."
        case "script":
            return f"check that the sides are {languages.source} and {languages.target}, in this order."
        case "truncated":
            return (
                "check that lines are whole sentences on both sides, or turn the rule off: cleaning.rules=-truncated."
            )
        case "copied":
            return "check that the target side is translated, or raise cleaning.max_copied."
        case "repetition":
            return "check that the text is not made of lists or menus, or raise cleaning.max_repeated."
        case "language":
            return f"check that the sides are {languages.source} and {languages.target}, in this order."
        case "score" | "agreement":
            return "check that the sides are aligned, or lower cleaning.min_score."
        case "duplicate":
            return "the corpus repeats itself, or contains the validation or test set; nothing is to be done."
        case "tokens":
            return f"sides of up to {settings['max_tokens']} tokens are kept; raise cleaning.max_tokens for others."
    raise AssertionError(rule)


def _encoding_remedy(source: Source | None, languages: Languages) -> str:
    if source is not None and source.format in TEXT_FORMATS:
        for path, language in _sides(source, languages):
            if path != STANDARD_INPUT and (encoding := likely_encoding(path, language)):
                return f"{path} looks like {encoding}: give --encoding {encoding}."
    return "the text is in another encoding than UTF-8: name it with --encoding, or convert the file with iconv."


def _sides(source: Source, languages: Languages) -> list[tuple[Path, str]]:
    codes = (languages.source, languages.target)
    if len(source.paths) == 2:
        return list(zip(source.paths, codes, strict=True))
    return [(source.paths[0], code) for code in codes]
