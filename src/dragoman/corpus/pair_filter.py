"""Rules that drop a pair by its text alone, as small pure functions, and the filter that applies them.

The same filter serves corpora and translations that a model made.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from dragoman.corpus.language_detection import is_in_another_language
from dragoman.corpus.sources import Languages
from dragoman.corpus.writing_systems import is_in_wrong_script, script_of
from dragoman.settings import CleaningSettings, RuleName

# UTF-8 that was decoded as Latin-1 or Windows-1252 and encoded again, and the replacement character U+FFFD.
_MOJIBAKE = re.compile("[ÂÃ][\u0080-\u00bf\u2018-\u2122]|â€|\ufffd")
_WORD = re.compile(r"[^\W\d_]{3,}")
"""Words that can show a copied text: numbers and very short words are often the same in two languages."""
_SENTENCE_ENDS = (".", "!", "?", "…", "؟", "۔", "।", "։")
_CLOSING_MARKS = "\"'”’»“)]"
_LENGTH_SLACK = 10
_CASE_LENGTH_SLACK = 2
_TRUNCATED_LENGTH_RATIO = 1.6
"""Of the first 40,000 pairs of Europarl and of Tatoeba, none is above it; of those without their second half, most."""
_MIN_COPYABLE_WORDS = 3
_LETTERS_PER_WORD = 12
"""More than this on average means that words are not separated by spaces."""
_MAX_LOOP_WORDS = 6
_MIN_LOOP_REPEATS = 3
_MIN_REPEATED_WORDS = 4


def is_mojibake(text: str) -> bool:
    return _MOJIBAKE.search(text) is not None


def has_words_between(text: str, min_words: int, max_words: int) -> bool:
    """Count words by their spaces; whitespace was collapsed before."""
    return min_words <= text.count(" ") + 1 <= max_words


def exceeds_length_ratio(source: str, target: str, max_length_ratio: float, weights: Sequence[int] = (1, 1)) -> bool:
    """Compare the lengths of both sides in characters, each times its weight."""
    ratio = (len(source) * weights[0] + _LENGTH_SLACK) / (len(target) * weights[1] + _LENGTH_SLACK)
    return ratio > max_length_ratio or ratio * max_length_ratio < 1


def is_truncated(source: str, target: str) -> bool:
    """True if the longer side ends with the end of a sentence, and the shorter one, by far, in the middle of one."""
    longer, shorter = (source, target) if len(source) > len(target) else (target, source)
    return (
        (shorter[-1:].isalnum() or shorter.endswith(","))
        and longer.rstrip(_CLOSING_MARKS).endswith(_SENTENCE_ENDS)
        and exceeds_length_ratio(source, target, _TRUNCATED_LENGTH_RATIO)
    )


class SplitText(NamedTuple):
    """A text with its words, which several rules need."""

    text: str
    words: list[str]
    distinct: set[str]

    @classmethod
    def of(cls, text: str) -> Self:
        words = text.split(" ")
        return cls(text, words, set(words))


def copies_source(source: SplitText, target: SplitText, max_copied: float) -> bool:
    """True if more than `max_copied` of the words of the side with fewer words also occur on the other side.

    Each word counts once, without case. Of very few words, which may be names, all must be equal. Equal sides are the
    business of the rule `identical`.
    """
    if source.text == target.text:
        return False
    shares_words = 3 * len(source.distinct & target.distinct) >= min(len(source.distinct), len(target.distinct))
    # Punctuation changes some words of a copy, not most of them. Case may change all, but not the length.
    if not shares_words and abs(len(source.text) - len(target.text)) > _CASE_LENGTH_SLACK:
        return False
    source_words, target_words = (set(_WORD.findall(side.text.casefold())) for side in (source, target))
    words = min(len(source_words), len(target_words))
    if words < _MIN_COPYABLE_WORDS:
        return words > 0 and source_words == target_words
    return len(source_words & target_words) > max_copied * words


def repeats_itself(side: SplitText, max_repeated: float) -> bool:
    """True if more than `max_repeated` of the trigrams repeat earlier ones, or if words loop.

    A loop is a sequence of at most six words that occurs four times in a row, or one word five times. Where words are
    not separated by spaces, characters take their place.
    """
    words: Sequence[str] = side.words
    if len(words) * _LETTERS_PER_WORD < len(side.text):
        words = side.text
    elif len(words) - len(side.distinct) < _MIN_REPEATED_WORDS:
        return False
    trigrams = max(1, len(words) - 2)
    repeated = trigrams - len(set(zip(words, words[1:], words[2:], strict=False)))
    return repeated > 1 and (repeated > max_repeated * trigrams or _has_loop(words))


def _has_loop(words: Sequence[str]) -> bool:
    for period in range(1, _MAX_LOOP_WORDS + 1):
        needed = max(_MIN_REPEATED_WORDS, _MIN_LOOP_REPEATS * period)
        run = 0
        for word, earlier in zip(words[period:], words, strict=False):
            run = run + 1 if word == earlier else 0
            if run == needed:
                return True
    return False


Drops = Callable[[str, str], bool]
DropsSplit = Callable[[SplitText, SplitText], bool]


class PairFilter:
    """Names the first enabled rule that drops a pair of normalized texts, or None for a pair to keep."""

    def __init__(self, settings: CleaningSettings, languages: Languages) -> None:
        self._form_rules = [rule for rule in _form_rules(settings, languages) if rule[0] in settings.rules]
        self._content_rules = [rule for rule in _content_rules(settings, languages) if rule[0] in settings.rules]

    def __call__(self, source: str, target: str) -> RuleName | None:
        for rule, drops in self._form_rules:
            if drops(source, target):
                return rule
        return self.by_content(source, target)

    def by_content(self, source: str, target: str) -> RuleName | None:
        """The same for a pair that no rule can drop by its form: only the rules that look at words run."""
        source_side, target_side = SplitText.of(source), SplitText.of(target)
        for rule, drops in self._content_rules:
            if drops(source_side, target_side):
                return rule
        return None


def _form_rules(settings: CleaningSettings, languages: Languages) -> list[tuple[RuleName, Drops]]:
    """Rules about lengths and characters, in the order in which they run; cheap and selective ones come first."""
    min_words, max_words = settings.min_words, settings.max_words
    source_script, target_script = scripts = script_of(languages.source), script_of(languages.target)
    weights = [1 if script is None else script.letters_per_character for script in scripts]

    def wrong_words(source: str, target: str) -> bool:
        return not (has_words_between(source, min_words, max_words) and has_words_between(target, min_words, max_words))

    def wrong_script(source: str, target: str) -> bool:
        return (source_script is not None and is_in_wrong_script(source, source_script)) or (
            target_script is not None and is_in_wrong_script(target, target_script)
        )

    return [
        ("empty", lambda source, target: not source or not target),
        ("words", wrong_words),
        ("identical", lambda source, target: source == target),
        ("ratio", lambda source, target: exceeds_length_ratio(source, target, settings.max_length_ratio, weights)),
        ("mojibake", lambda source, target: is_mojibake(source) or is_mojibake(target)),
        ("script", wrong_script),
    ]


def _content_rules(settings: CleaningSettings, languages: Languages) -> list[tuple[RuleName, DropsSplit]]:
    """Rules about words, in the order in which they run; the slowest comes last."""
    scripts = script_of(languages.source), script_of(languages.target)
    has_ends = all(script is not None and script.marks_sentence_ends for script in scripts)

    def repeats(source: SplitText, target: SplitText) -> bool:
        return repeats_itself(source, settings.max_repeated) or repeats_itself(target, settings.max_repeated)

    def other_language(source: SplitText, target: SplitText) -> bool:
        return is_in_another_language(source.text, languages.source) or is_in_another_language(
            target.text, languages.target
        )

    return [
        ("truncated", lambda source, target: has_ends and is_truncated(source.text, target.text)),
        ("copied", lambda source, target: copies_source(source, target, settings.max_copied)),
        ("repetition", repeats),
        ("language", other_language),
    ]
