"""Scripts of languages, and text in the wrong script."""

import re
from dataclasses import dataclass

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
    letters_per_character: int
    """Letters of an alphabet that say about as much as one character: 2 where characters are syllables or words."""
    marks_sentence_ends: bool
    """Whether sentences end with a full stop or another mark. Thai has none, and Chinese, Japanese and Korean text
    often leaves it out."""


def script_of(language: str) -> Script | None:
    """The scripts of a language, or None if unknown: then the rule drops nothing."""
    names = _SCRIPTS_OF_LANGUAGE.get(language.split("-", maxsplit=1)[0].lower())
    if names is None:
        return None
    own = "".join(_SCRIPT_RANGES[name] for name in names)
    foreign = "".join(ranges for name, ranges in _SCRIPT_RANGES.items() if name not in names)
    is_dense = bool({"han", "hangul"} & set(names))
    marks_ends = not is_dense and "thai" not in names
    return Script(
        re.compile(f"[{own}]"), re.compile(f"[{foreign}]"), "latin" in names, 2 if is_dense else 1, marks_ends
    )


def is_in_wrong_script(text: str, script: Script) -> bool:
    """True if letters of other scripts outnumber those of the language's own."""
    if not script.foreign.search(text):
        return False
    return len(script.foreign.findall(text)) > len(script.own.findall(text))
