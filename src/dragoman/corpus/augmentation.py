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

WORDS_PER_TYPO = (3, 5, 10)
"""Each pair draws its own number: some people type worse than others, and many errors teach more than few."""
MIN_TYPO_LETTERS = 3
"""Letters of a word that may get a typing error: shorter ones become other words."""
RUN_ON_SHARE = 0.12
"""Share of typing errors in which a space is left out (Kukich 1992)."""
KEYBOARDS = (("qwertyuiop", "asdfghjkl", "zxcvbnm"), ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"))
"""Rows of letters. Layouts of the same script differ in few keys."""
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
    """Typing errors on the source side: in one word of three, five or ten, and in at least one."""
    words = [f"{word} " for word in pair[0].split(" ")]
    candidates = [index for index, word in enumerate(words) if len(word) > MIN_TYPO_LETTERS and _typo_places(word)]
    errors = -(-len(words) // rng.choice(WORDS_PER_TYPO))
    for index in rng.sample(candidates, min(len(candidates), errors)):
        words[index] = words[index].rstrip(" ") if rng.random() < RUN_ON_SHARE else _mistype(words[index], rng)
    return unicodedata.normalize("NFC", "".join(words).strip(" ")), pair[1]


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
    """Places of letters that carry no combining marks. None in addresses and numbers."""
    if any(character.isdigit() or character in "@/\\_<>&{}" for character in word):
        return []
    followers = [*word[1:], " "]
    return [
        place
        for place, (letter, follower) in enumerate(zip(word, followers, strict=True))
        if letter.isalpha() and not unicodedata.combining(follower)
    ]


def _mistype(word: str, rng: random.Random) -> str:
    """Two letters swapped, one left out or doubled, or a key beside it hit instead of it or with it."""
    places = _typo_places(word)
    place = rng.choice([*places[:1], *places[1:] * 2])  # First letters are wrong less often than others.
    before, letter, after = word[:place], word[place], word[place + 1 :]
    match rng.randrange(0 if place + 1 in places else 1, 5):
        case 0:
            return f"{before}{after[0]}{letter}{after[1:]}"
        case 1:
            return f"{before}{after}"
        case 2:
            return f"{before}{letter}{letter}{after}"
        case 3:
            return f"{before}{_key_beside(letter, word, rng)}{after}"
        case _:
            return f"{before}{letter}{_key_beside(letter, word, rng)}{after}"


def _key_beside(letter: str, word: str, rng: random.Random) -> str:
    """A letter whose key lies beside that of another; of unknown keyboards, another letter of the word."""
    if beside := _KEYS_BESIDE.get(letter.lower()):
        key = rng.choice(beside)
        return key.upper() if letter.isupper() else key
    return rng.choice([other for other in word if other.isalpha()])


def _find_keys_beside() -> dict[str, str]:
    """For each letter, those left and right of it, and those above and below: rows are shifted by half a key."""
    beside: dict[str, str] = {}
    for rows in KEYBOARDS:
        keys = {(row, place): key for row, letters in enumerate(rows) for place, key in enumerate(letters)}
        for (row, place), key in keys.items():
            around = ((0, -1), (0, 1), (-1, 0), (-1, 1), (1, -1), (1, 0))
            beside[key] = "".join(keys.get((row + down, place + right), "") for down, right in around)
    return beside


_KEYS_BESIDE = _find_keys_beside()
