"""The rules by which training pairs are mended or left out. Each is a small pure function.

A *mending* rule maps one side to better text; a *dropping* rule says that a pair is of no use. Two rules need to see
more than one pair and live elsewhere: `duplicate` (duplicates.py) and `tokens` (after encoding, in prepare.py).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from unicodedata import is_normalized, normalize

from dragoman.corpus.sources import Languages
from dragoman.settings import CleaningSettings, RuleName

MENDING_RULES = frozenset({"control_characters", "normal_form"})
SAMPLES_PER_RULE = 3
SAMPLE_CHARACTERS = 160

# C0 and C1 controls, zero-width marks, directional marks, the byte-order mark. Joiners (U+200C, U+200D) spell words in
# several languages and stay.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
# UTF-8 that was read as Latin-1 or Windows-1252 and encoded again, and the mark of undecodable text.
_MOJIBAKE = re.compile("[ÂÃ][\u0080-\u00bf\u2018-\u2122]|â€|\ufffd")
_LENGTH_SLACK = 10

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
    """Matches letters of a language's own scripts, and letters of any other script that this module knows."""

    own: re.Pattern[str]
    foreign: re.Pattern[str]
    is_latin: bool


def script_of(language: str) -> Script | None:
    """The scripts that a language is written in; None where they are not known, and the rule is silent."""
    names = _SCRIPTS_OF_LANGUAGE.get(language.split("-", maxsplit=1)[0].lower())
    if names is None:
        return None
    own = "".join(_SCRIPT_RANGES[name] for name in names)
    foreign = "".join(ranges for name, ranges in _SCRIPT_RANGES.items() if name not in names)
    return Script(re.compile(f"[{own}]"), re.compile(f"[{foreign}]"), "latin" in names)


def without_control_characters(text: str) -> str:
    return _CONTROL.sub("", text)


def is_tidy(text: str) -> bool:
    """Whether no white space needs folding and no control character is there. Python keeps a table for this."""
    return text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " "


def fold_space(text: str) -> str:
    return text if is_tidy(text) else " ".join(text.split())


def is_mojibake(text: str) -> bool:
    return _MOJIBAKE.search(text) is not None


def has_words_between(text: str, fewest: int, most: int) -> bool:
    """Words are what stands between spaces; white space was folded before."""
    return fewest <= text.count(" ") + 1 <= most


def is_lopsided(source: str, target: str, max_length_ratio: float) -> bool:
    ratio = (len(source) + _LENGTH_SLACK) / (len(target) + _LENGTH_SLACK)
    return ratio > max_length_ratio or ratio * max_length_ratio < 1


def is_in_wrong_script(text: str, script: Script) -> bool:
    """Whether other scripts' letters outnumber those of the language's own."""
    if not script.foreign.search(text):
        return False
    return len(script.foreign.findall(text)) > len(script.own.findall(text))


@dataclass
class RuleCount:
    """What one rule did: how many pairs, and a few of them to look at."""

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
    """Applies the rules in use to pairs, one after the other, and counts what each did."""

    def __init__(self, settings: CleaningSettings, languages: Languages) -> None:
        self._settings = settings
        self._rules = frozenset(settings.rules)
        self._source_script = script_of(languages.source)
        self._target_script = script_of(languages.target)
        self._dropping = self._dropping_rules()
        self._min_words, self._max_words, self._max_ratio = (
            settings.min_words,
            settings.max_words,
            settings.max_length_ratio,
        )
        scripts = (self._source_script, self._target_script)
        self._can_glance = settings.form == "NFC" and all(script is None or script.is_latin for script in scripts)
        self.counts: dict[RuleName, RuleCount] = {rule: RuleCount() for rule in settings.rules}

    def clean(self, source: bytes, target: bytes) -> tuple[str, str] | None:
        """The mended pair, or None where a rule drops it."""
        try:
            pair = source.decode(), target.decode()
        except UnicodeDecodeError:
            pair = source.decode(errors="replace"), target.decode(errors="replace")
            if "invalid_utf8" in self._rules:
                self.counts["invalid_utf8"].add(*pair)
                return None
        if self._is_fine_at_a_glance(*pair):
            return pair
        source_text, target_text = self.mend(*pair)
        for rule, drops in self._dropping:
            if drops(source_text, target_text):
                self.counts[rule].add(source_text, target_text)
                return None
        return source_text, target_text

    def _is_fine_at_a_glance(self, source: str, target: str) -> bool:
        """Whether no rule could object or mend. So it is with most pairs, and this takes a third of asking them all.

        Latin-1 holds Latin letters alone, all of them in normal form, and no mark of undecodable text. What it holds of
        mojibake begins with one of two letters.
        """
        if not self._can_glance or source == target or not source or not target:
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
        return not is_lopsided(source, target, self._max_ratio)

    def mend(self, source: str, target: str) -> tuple[str, str]:
        """Apply the mending rules, and fold white space always, so that a pair is one line of text."""
        if is_tidy(source) and is_tidy(target):
            if source.isascii() and target.isascii():
                return source, target  # Nothing that a mending rule could touch.
        else:
            source, target = fold_space(source), fold_space(target)
            if "control_characters" in self._rules:
                source, target = self._mend("control_characters", source, target, without_control_characters)
        if "normal_form" in self._rules:
            form = self._settings.form
            if not (is_normalized(form, source) and is_normalized(form, target)):
                source, target = self._mend("normal_form", source, target, lambda text: normalize(form, text))
        return source, target

    def _mend(self, rule: RuleName, source: str, target: str, mending: Callable[[str], str]) -> tuple[str, str]:
        mended = fold_space(mending(source)), fold_space(mending(target))
        if mended != (source, target):
            self.counts[rule].add(source, target)
        return mended

    def _dropping_rules(self) -> list[tuple[RuleName, Callable[[str, str], bool]]]:
        """The dropping rules in use, in the order in which they are asked; the cheap and telling ones come first."""
        settings = self._settings
        fewest, most, max_length_ratio = settings.min_words, settings.max_words, settings.max_length_ratio
        source_script, target_script = self._source_script, self._target_script

        def wrong_words(source: str, target: str) -> bool:
            return not (has_words_between(source, fewest, most) and has_words_between(target, fewest, most))

        def wrong_script(source: str, target: str) -> bool:
            return (source_script is not None and is_in_wrong_script(source, source_script)) or (
                target_script is not None and is_in_wrong_script(target, target_script)
            )

        every: list[tuple[RuleName, Callable[[str, str], bool]]] = [
            ("empty", lambda source, target: not source or not target),
            ("words", wrong_words),
            ("identical", lambda source, target: source == target),
            ("ratio", lambda source, target: is_lopsided(source, target, max_length_ratio)),
            ("mojibake", lambda source, target: is_mojibake(source) or is_mojibake(target)),
            ("script", wrong_script),
        ]
        return [(rule, drops) for rule, drops in every if rule in self._rules]


def merge_counts(total: dict[RuleName, RuleCount], part: dict[RuleName, RuleCount]) -> None:
    """Add a part's counts to a total, in place."""
    for rule, count in part.items():
        total.setdefault(rule, RuleCount()).merge(count)
