"""Changed copies of training pairs, which teach a model text that is not as tidy as its corpus.

Each change is a pure function of a pair, its languages and a random number generator. The target follows the source
where a translator would follow it: not in its typing errors.
"""

import random
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dragoman.corpus.deduplication import Hashes, random_keys
from dragoman.corpus.sources import Languages
from dragoman.settings import AUGMENTATIONS, AugmentationName, AugmentationSettings

WORDS_PER_TYPO = 8
MIN_TYPO_LETTERS = 4
"""Letters of a word that may get a typing error: shorter ones become other words."""
END_PUNCTUATION = ".!?…。！？｡"
INLINE_NOISE = (
    *("😀", "😂", "👍", "🎉", "🙏", "•", "*", "#", "»"),
    *("[1]", "[2]", "(3)", "<br>", "<p>", "&nbsp;", "{0}", "%s"),
)
_DOTTED_I = frozenset({"tr", "az"})
"""Languages with a dotted and a dotless i, each in upper and lower case."""
_RANDOM_STREAM = 100
"""The first of the streams of random numbers of augmentation; lower ones belong to the selection of pairs."""

Pair = tuple[str, str]


class AugmentedCopy(NamedTuple):
    """A changed copy of the pair at a position of a block."""

    position: int
    change: AugmentationName
    pair: Pair


def upper_case(pair: Pair, languages: Languages, _: random.Random) -> Pair:
    return _upper(pair[0], languages.source), _upper(pair[1], languages.target)


def title_case(pair: Pair, languages: Languages, _: random.Random) -> Pair:
    return _title(pair[0], languages.source), _title(pair[1], languages.target)


def typos(pair: Pair, _: Languages, rng: random.Random) -> Pair:
    """Typing errors on the source side: in one word of eight, and in at least one."""
    words = pair[0].split(" ")
    candidates = [index for index, word in enumerate(words) if len(word) >= MIN_TYPO_LETTERS and _typo_places(word)]
    for index in rng.sample(candidates, min(len(candidates), -(-len(words) // WORDS_PER_TYPO))):
        words[index] = _mistype(words[index], rng)
    return unicodedata.normalize("NFC", " ".join(words)), pair[1]


def no_end_punctuation(pair: Pair, _: Languages, __: random.Random) -> Pair:
    """Without the punctuation at the end, if both sides have some, and more than that."""
    source, target = (side.rstrip(END_PUNCTUATION).rstrip() for side in pair)
    return (source, target) if source and target and source != pair[0] and target != pair[1] else pair


def inline_noise(pair: Pair, _: Languages, rng: random.Random) -> Pair:
    """The same emoji, bullet, tag or placeholder at the same end of both sides."""
    noise, is_first = rng.choice(INLINE_NOISE), rng.random() < 0.5
    source, target = (f"{noise} {side}" if is_first else f"{side} {noise}" for side in pair)
    return source, target


_CHANGES: dict[AugmentationName, Callable[[Pair, Languages, random.Random], Pair]] = {
    "upper_case": upper_case,
    "title_case": title_case,
    "typos": typos,
    "no_end_punctuation": no_end_punctuation,
    "inline_noise": inline_noise,
}


def augment(
    pairs: list[Pair], hashes: Hashes, settings: AugmentationSettings, languages: Languages, seed: int
) -> Iterator[AugmentedCopy]:
    """Copies of some pairs, one change each. The choice depends only on a pair's text and the seed.

    A copy that does not differ from its pair is left out, as in scripts without upper case.
    """
    for stream, change in enumerate(AUGMENTATIONS, _RANDOM_STREAM):
        keys = random_keys(hashes, [seed, stream])
        for position in np.flatnonzero(keys < getattr(settings, change)).tolist():
            rng = random.Random(f"{seed} {change} {hashes[position, 0]} {hashes[position, 1]}")
            changed = _CHANGES[change](pairs[position], languages, rng)
            if changed != pairs[position]:
                yield AugmentedCopy(position, change, changed)


def _upper(text: str, language: str) -> str:
    if language.split("-", maxsplit=1)[0].lower() in _DOTTED_I:
        text = text.replace("i", "İ")
    return unicodedata.normalize("NFC", text.upper())


def _title(text: str, language: str) -> str:
    return unicodedata.normalize("NFC", " ".join(_capitalize(word, language) for word in text.split(" ")))


def _capitalize(word: str, language: str) -> str:
    """The first letter in title case, behind quotation marks and brackets; the others as they are."""
    for place, character in enumerate(word):
        if character.isalpha():
            first = "İ" if character == "i" and _upper("i", language) == "İ" else character.title()
            return word[:place] + first + word[place + 1 :]
        if character.isalnum():
            break
    return word


def _typo_places(word: str) -> list[int]:
    """Places of two letters in a row, neither of which carries combining marks. None in addresses and numbers."""
    if any(character.isdigit() or character in "@/\\_<>&{}" for character in word):
        return []
    followers = [*word[2:], " "]
    return [
        place
        for place, (letter, following, follower) in enumerate(zip(word, word[1:], followers, strict=False))
        if place and letter.isalpha() and following.isalpha() and not unicodedata.combining(follower)
    ]


def _mistype(word: str, rng: random.Random) -> str:
    """Two letters swapped, one left out, doubled, or replaced by another one of the word. The first letter stays."""
    place = rng.choice(_typo_places(word))
    before, letter, following, after = word[:place], word[place], word[place + 1], word[place + 2 :]
    match rng.randrange(4):
        case 0:
            return f"{before}{following}{letter}{after}"
        case 1:
            return f"{before}{following}{after}"
        case 2:
            return f"{before}{letter}{letter}{following}{after}"
        case _:
            return f"{before}{rng.choice([other for other in word if other.isalpha()])}{following}{after}"
