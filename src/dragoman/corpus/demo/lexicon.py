"""The words of the demo corpus: `lexicon.toml` as typed entries, with kinds resolved to words."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LEXICON_PATH = Path(__file__).with_name("lexicon.toml")
GENDER_OF_ARTICLE = {"der": "m", "die": "f", "das": "n"}
VERB_PARTICIPANTS = ("subject", "object", "recipient", "of", "at", "to")


# Entries compare by identity: each word exists once, and identity hashes make the caches of word forms fast.
@dataclass(frozen=True, eq=False)
class Noun:
    en: str
    de: str
    gender: str
    kind: str
    plural: str | None = None
    en_plural: str | None = None
    genitive: str | None = None
    weak: bool = False
    mass: bool = False
    at: Sequence[str] | None = None
    """The English and German prepositions for being there."""
    to: Sequence[str] | None = None
    """The English and German prepositions for going there."""


@dataclass(frozen=True, eq=False)
class Name:
    """A person, a town or a country: no article, no plural, no adjective."""

    en: str
    de: str
    kind: str
    at: Sequence[str] = ("in", "in")
    to: Sequence[str] = ("to", "nach")


Referent = Noun | Name


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb, its irregular forms, and the words that can be its participants."""

    key: str
    """Distinguishes uses of one English verb, such as "wait" and "wait.for"."""
    en: str
    de: str
    en_particle: str = ""
    prefix: str = ""
    first: str | None = None
    third: str | None = None
    de_plural: str | None = None
    preterite: str | None = None
    participle: str | None = None
    aux: str = "haben"
    past: str | None = None
    en_participle: str | None = None
    subject: Sequence[Referent] = ()
    object: Sequence[Referent] = ()
    recipient: Sequence[Referent] = ()
    oblique: Sequence[str] | None = None
    """The English and German prepositions of its complement, and the German case."""
    of: Sequence[Referent] = ()
    at: Sequence[Referent] = ()
    to: Sequence[Referent] = ()
    spot: str | None = None
    """The case of "on the table": dative for where a thing lies, accusative for where it is put."""
    means: Sequence[str] = ()
    manner: Sequence[str] = ()
    clause: str | None = None
    """The conjunction of its complement clause: that, whether, to."""
    place_needed: bool = False
    says_to: bool = False
    """English puts "to" before the recipient: "explains the plan to the boy"."""
    stative: bool = False
    involuntary: bool = False
    definite: bool = False
    indefinite: bool = False
    many: bool = False
    """Large numbers of objects are plausible."""
    own_pattern: bool = False
    weight: int = 1


@dataclass(frozen=True, eq=False)
class Adjective:
    en: str
    de: str
    of: Sequence[Referent]
    stem: str | None = None
    more: Sequence[str] | None = None


@dataclass(frozen=True, eq=False)
class Modal:
    key: str
    en: Sequence[str]
    de: str
    third: str
    past: Sequence[str] | None = None
    preterite: str | None = None
    do_support: bool = False


@dataclass(frozen=True, eq=False)
class Conjunction:
    en: str
    de: str
    joins: str


@dataclass(frozen=True)
class Phrase:
    """A fixed expression and its translation: an adverb, a date, an amount."""

    en: str
    de: str


@dataclass(frozen=True, eq=False)
class Lexicon:
    kinds: dict[str, tuple[Referent, ...]]
    nouns: dict[str, Noun]
    verbs: dict[str, Verb]
    adjectives: dict[str, Adjective]
    modals: dict[str, Modal]
    conjunctions: dict[str, Conjunction]
    phrases: dict[str, tuple[Phrase, ...]]
    """By section: manner, frequency, aspect, time.present, weekday, ..."""


@cache
def load_lexicon() -> Lexicon:
    """The shipped lexicon, read once per process."""
    data = tomllib.loads(LEXICON_PATH.read_bytes().decode())
    kinds: dict[str, tuple[Referent, ...]] = {}
    for kind, entries in data["noun"].items():
        kinds[kind] = tuple(_noun(en, kind, entry) for en, entry in entries.items())
    nouns = {word.en: word for words in kinds.values() for word in words if isinstance(word, Noun)}
    for kind, names in data["name"].items():
        kinds[kind] = kinds.get(kind, ()) + tuple(Name(en, de, kind) for en, de in names.items())

    def resolve(names: Sequence[str]) -> tuple[Referent, ...]:
        """The words of a list of groups, kinds and single nouns, each once."""
        words: list[Referent] = []
        for name in names:
            if name in data["group"]:
                words += resolve(data["group"][name])
            else:
                words += kinds[name] if name in kinds else (nouns[name],)
        return tuple(dict.fromkeys(words))

    def verb(key: str, entry: dict[str, Any]) -> Verb:
        en, _, en_particle = key.partition(".")[0].partition("|")
        prefix, bar, stem = entry["de"].partition("|")
        fields: dict[str, Any] = {"subject": ["people"], **entry}
        fields |= {"key": key, "en": en, "en_particle": en_particle}
        fields |= {"de": stem, "prefix": prefix} if bar else {}
        fields |= {field: resolve(fields[field]) for field in VERB_PARTICIPANTS if field in fields}
        return Verb(**fields)

    adjectives = {
        en: Adjective(**{**entry, "en": en, "of": resolve(entry["of"])}) for en, entry in data["adjective"].items()
    }
    sections = {name: data[name] for name in ("manner", "frequency", "aspect", "weekday", "month", "span")}
    sections |= {f"time.{name}": section for name, section in data["time"].items()}
    return Lexicon(
        kinds=kinds,
        nouns=nouns,
        verbs={key: verb(key, entry) for key, entry in data["verb"].items()},
        adjectives=adjectives,
        modals={key: Modal(key=key, **entry) for key, entry in data["modal"].items()},
        conjunctions={en: Conjunction(en=en, **entry) for en, entry in data["conjunction"].items()},
        phrases={name: tuple(Phrase(en, de) for en, de in section.items()) for name, section in sections.items()},
    )


def _noun(en: str, kind: str, entry: dict[str, Any]) -> Noun:
    article, _, word = entry["de"].partition(" ")
    return Noun(**{**entry, "en": en, "de": word, "gender": GENDER_OF_ARTICLE[article], "kind": kind})
