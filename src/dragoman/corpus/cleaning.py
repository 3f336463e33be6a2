"""Cleaning of training pairs: rules that rewrite one side, and then the filter of pair_filter.py.

Some rules are applied elsewhere, because they need more than one pair, its tokens or a model: `duplicate`
(pair_selection.py), `tokens` (block_tasks.py), and `score` and `agreement` (model_filter.py).
"""

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dragoman.corpus.pair_filter import PairFilter, exceeds_length_ratio
from dragoman.corpus.sources import Languages
from dragoman.corpus.text_normalization import (
    collapse_whitespace,
    has_plain_spaces,
    limit_combining_marks,
    remove_control_characters,
)
from dragoman.corpus.writing_systems import script_of
from dragoman.settings import CleaningSettings, RuleName

NORMALIZING_RULES = frozenset({"control_characters", "normal_form"})
"""Rules that change pairs and keep them."""
SAMPLES_PER_RULE = 3
SAMPLE_CHARACTERS = 160


@dataclass
class RuleCount:
    """The number of pairs that a rule changed or dropped, with a few samples."""

    pairs: int = 0
    samples: list[tuple[str, str]] = field(default_factory=list)

    def add(self, source: str, target: str) -> None:
        self.pairs += 1
        if len(self.samples) < SAMPLES_PER_RULE:
            self.samples.append((source[:SAMPLE_CHARACTERS], target[:SAMPLE_CHARACTERS]))

    def merge(self, other: "RuleCount") -> None:
        self.pairs += other.pairs
        self.samples = (self.samples + other.samples)[:SAMPLES_PER_RULE]


class Cleaner:
    """Applies the enabled rules to each pair, and counts the pairs that each rule changed or dropped."""

    def __init__(self, settings: CleaningSettings, languages: Languages) -> None:
        self._settings = settings
        self._rules = frozenset(settings.rules)
        self._filter = PairFilter(settings, languages)
        scripts = (script_of(languages.source), script_of(languages.target))
        self._has_fast_path = settings.form == "NFC" and all(script is None or script.is_latin for script in scripts)
        self.counts: dict[str, RuleCount] = {rule: RuleCount() for rule in settings.rules}

    def clean(self, source: bytes, target: bytes) -> tuple[str, str] | None:
        """The normalized pair, or None if a rule drops it."""
        try:
            pair = source.decode(), target.decode()
        except UnicodeDecodeError:
            pair = source.decode(errors="replace"), target.decode(errors="replace")
            if "invalid_utf8" in self._rules:
                self.counts["invalid_utf8"].add(*pair)
                return None
        if self._has_good_form(*pair):
            rule = self._filter.by_content(*pair)
        else:
            pair = self.normalize(*pair)
            rule = self._filter(*pair)
        if rule is not None:
            self.counts[rule].add(*pair)
            return None
        return pair

    def _has_good_form(self, source: str, target: str) -> bool:
        """True if no rule can change the pair, or drop it by its form. This holds for most pairs, and is fast.

        Latin-1 text has only Latin letters, is in normal form, and has no replacement character. Its mojibake always
        contains one of two letters.
        """
        if not self._has_fast_path or source == target or not source or not target:
            return False
        for text in (source, target):
            if not text.isprintable() or "  " in text or text[0] == " " or text[-1] == " ":
                return False
            if not self._settings.min_words <= text.count(" ") + 1 <= self._settings.max_words:
                return False
            if not text.isascii():
                try:
                    text.encode("latin-1")
                except UnicodeEncodeError:
                    return False
                if "Ã" in text or "Â" in text:
                    return False
        return not exceeds_length_ratio(source, target, self._settings.max_length_ratio)

    def normalize(self, source: str, target: str) -> tuple[str, str]:
        """Apply the normalizing rules. Whitespace is always collapsed, so that each side is one line of text."""
        if has_plain_spaces(source) and has_plain_spaces(target):
            if source.isascii() and target.isascii():
                return source, target  # No normalizing rule applies.
        else:
            source, target = collapse_whitespace(source), collapse_whitespace(target)
            if "control_characters" in self._rules:
                source, target = self._apply("control_characters", source, target, remove_control_characters)
        if "normal_form" in self._rules:
            form = self._settings.form
            if not (unicodedata.is_normalized(form, source) and unicodedata.is_normalized(form, target)):
                source, target = self._apply(
                    "normal_form", source, target, lambda text: unicodedata.normalize(form, limit_combining_marks(text))
                )
        return source, target

    def _apply(self, rule: RuleName, source: str, target: str, rewrite: Callable[[str], str]) -> tuple[str, str]:
        rewritten = collapse_whitespace(rewrite(source)), collapse_whitespace(rewrite(target))
        if rewritten != (source, target):
            self.counts[rule].add(source, target)
        return rewritten


def merge_counts(total: dict[str, RuleCount], part: Mapping[str, RuleCount]) -> None:
    """Add counts to a total, in place."""
    for rule, count in part.items():
        total.setdefault(rule, RuleCount()).merge(count)
