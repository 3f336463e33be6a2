"""Cleaning rules for training pairs, as small pure functions.

A *normalizing* rule rewrites one side; a *filtering* rule drops the pair. Two rules are applied elsewhere, because they
need more than one pair or its tokens: `duplicate` (pair_selection.py) and `tokens` (block_tasks.py).
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from dragoman.corpus.sources import Languages
from dragoman.settings import CleaningSettings, RuleName

NORMALIZING_RULES = frozenset({"control_characters", "normal_form"})
SAMPLES_PER_RULE = 3
SAMPLE_CHARACTERS = 160

# C0 and C1 controls, zero-width spaces, directional marks, the byte-order mark. Joiners (U+200C, U+200D) are kept:
# several languages need them for spelling.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
# UTF-8 that was decoded as Latin-1 or Windows-1252 and encoded again, and the replacement character U+FFFD.
_MOJIBAKE = re.compile("[ÂÃ][\u0080-\u00bf\u2018-\u2122]|â€|\ufffd")
_LENGTH_SLACK = 10
_MAX_COMBINING_MARKS = 30
_COMBINING_GRAPHEME_JOINER = "\u034f"

_SCRIPT_RANGES = {
    "latin": "A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff",
    "cyrillic": "\u0400-\u052f",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "arabic": "\u0600-\u06ff\u0750-\u077f",
    "hebrew": "\u0590-\u05ff",
    "devanagari": "\u0900-\u097f",
    "bengali": "\u0980-\u09ff",
    "tamil": "\u0b80-\u0bff",
    "thai": "\u0e00-\u0e7f",
    "georgian": "\u10a0-\u10ff",
    "armenian": "\u0530-\u058f",
    "hangul": "\uac00-\ud7af\u1100-\u11ff",
    "han": "\u3400-\u4dbf\u4e00-\u9fff",
    "kana": "\u3040-\u30ff",
}
_LANGUAGES_OF_SCRIPTS = {
    ("latin",): (
        "en de fr es it pt nl da sv no nb nn is fi et lv lt pl cs sk sl hr bs hu ro sq mt ga cy ca eu gl tr az id ms "
        "vi sw tl af"
    ),
    ("cyrillic",): "ru uk bg be mk",
    ("cyrillic", "latin"): "sr",
    ("greek",): "el",
    ("arabic",): "ar fa ur",
    ("hebrew",): "he",
    ("devanagari",): "hi mr ne",
    ("bengali",): "bn",
    ("tamil",): "ta",
    ("thai",): "th",
    ("georgian",): "ka",
    ("armenian",): "hy",
    ("hangul", "han"): "ko",
    ("han",): "zh",
    ("han", "kana"): "ja",
}
_SCRIPTS_OF_LANGUAGE = {code: scripts for scripts, codes in _LANGUAGES_OF_SCRIPTS.items() for code in codes.split()}


@dataclass(frozen=True)
class Script:
    """Patterns for letters of a language's own scripts, and for letters of the other scripts listed here."""

    own: re.Pattern[str]
    foreign: re.Pattern[str]
    is_latin: bool


def script_of(language: str) -> Script | None:
    """The scripts of a language, or None if unknown: then the rule drops nothing."""
    names = _SCRIPTS_OF_LANGUAGE.get(language.split("-", maxsplit=1)[0].lower())
    if names is None:
        return None
    own = "".join(_SCRIPT_RANGES[name] for name in names)
    foreign = "".join(ranges for name, ranges in _SCRIPT_RANGES.items() if name not in names)
    return Script(re.compile(f"[{own}]"), re.compile(f"[{foreign}]"), "latin" in names)


def remove_control_characters(text: str) -> str:
    return _CONTROL.sub("", text)


def has_plain_spaces(text: str) -> bool:
    """True if there is no whitespace to collapse and no control character. `isprintable` is a fast table lookup."""
    return text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " "


def collapse_whitespace(text: str) -> str:
    return text if has_plain_spaces(text) else " ".join(text.split())


def limit_combining_marks(text: str) -> str:
    """Stream-safe text (Unicode Annex 15): a joiner after each 30 combining marks on one letter.

    No language needs as many. Normalization sorts the marks of a letter, in a time that is quadratic in their number.
    """
    return _combining_mark_run().sub(rf"\g<0>{_COMBINING_GRAPHEME_JOINER}", text)


@cache
def _combining_mark_run() -> re.Pattern[str]:
    marks = "".join(mark for mark in map(chr, range(0x300, 0x20000)) if unicodedata.combining(mark))
    return re.compile(f"[{marks}]{{{_MAX_COMBINING_MARKS}}}(?=[{marks}])")


def is_mojibake(text: str) -> bool:
    return _MOJIBAKE.search(text) is not None


def has_words_between(text: str, min_words: int, max_words: int) -> bool:
    """Count words by their spaces; whitespace was collapsed before."""
    return min_words <= text.count(" ") + 1 <= max_words


def exceeds_length_ratio(source: str, target: str, max_length_ratio: float) -> bool:
    ratio = (len(source) + _LENGTH_SLACK) / (len(target) + _LENGTH_SLACK)
    return ratio > max_length_ratio or ratio * max_length_ratio < 1


def is_in_wrong_script(text: str, script: Script) -> bool:
    """True if letters of other scripts outnumber those of the language's own."""
    if not script.foreign.search(text):
        return False
    return len(script.foreign.findall(text)) > len(script.own.findall(text))


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
        self._source_script = script_of(languages.source)
        self._target_script = script_of(languages.target)
        self._filters = self._filtering_rules()
        self._min_words, self._max_words = settings.min_words, settings.max_words
        self._max_length_ratio = settings.max_length_ratio
        scripts = (self._source_script, self._target_script)
        self._has_fast_path = settings.form == "NFC" and all(script is None or script.is_latin for script in scripts)
        self.counts: dict[RuleName, RuleCount] = {rule: RuleCount() for rule in settings.rules}

    def clean(self, source: bytes, target: bytes) -> tuple[str, str] | None:
        """The normalized pair, or None if a rule drops it."""
        try:
            pair = source.decode(), target.decode()
        except UnicodeDecodeError:
            pair = source.decode(errors="replace"), target.decode(errors="replace")
            if "invalid_utf8" in self._rules:
                self.counts["invalid_utf8"].add(*pair)
                return None
        if self._passes_fast_path(*pair):
            return pair
        source_text, target_text = self.normalize(*pair)
        for rule, drops in self._filters:
            if drops(source_text, target_text):
                self.counts[rule].add(source_text, target_text)
                return None
        return source_text, target_text

    def _passes_fast_path(self, source: str, target: str) -> bool:
        """True if no rule can change or drop the pair. This holds for most pairs, and takes a third of the time.

        Latin-1 text has only Latin letters, is in normal form, and has no replacement character. Its mojibake always
        contains one of two letters.
        """
        if not self._has_fast_path or source == target or not source or not target:
            return False
        for text in (source, target):
            if not text.isprintable() or "  " in text or text[0] == " " or text[-1] == " ":
                return False
            if not self._min_words <= text.count(" ") + 1 <= self._max_words:
                return False
            if not text.isascii():
                try:
                    text.encode("latin-1")
                except UnicodeEncodeError:
                    return False
                if "Ã" in text or "Â" in text:
                    return False
        return not exceeds_length_ratio(source, target, self._max_length_ratio)

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

    def _filtering_rules(self) -> list[tuple[RuleName, Callable[[str, str], bool]]]:
        """The enabled filtering rules in the order in which they run; cheap and selective ones come first."""
        settings = self._settings
        min_words, max_words, max_length_ratio = settings.min_words, settings.max_words, settings.max_length_ratio
        source_script, target_script = self._source_script, self._target_script

        def wrong_words(source: str, target: str) -> bool:
            return not (
                has_words_between(source, min_words, max_words) and has_words_between(target, min_words, max_words)
            )

        def wrong_script(source: str, target: str) -> bool:
            return (source_script is not None and is_in_wrong_script(source, source_script)) or (
                target_script is not None and is_in_wrong_script(target, target_script)
            )

        all_filters: list[tuple[RuleName, Callable[[str, str], bool]]] = [
            ("empty", lambda source, target: not source or not target),
            ("words", wrong_words),
            ("identical", lambda source, target: source == target),
            ("ratio", lambda source, target: exceeds_length_ratio(source, target, max_length_ratio)),
            ("mojibake", lambda source, target: is_mojibake(source) or is_mojibake(target)),
            ("script", wrong_script),
        ]
        return [(rule, drops) for rule, drops in all_filters if rule in self._rules]


def merge_counts(total: dict[RuleName, RuleCount], part: dict[RuleName, RuleCount]) -> None:
    """Add counts to a total, in place."""
    for rule, count in part.items():
        total.setdefault(rule, RuleCount()).merge(count)
