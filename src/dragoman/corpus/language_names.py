"""English names of languages."""

_NAMES = """
    ar Arabic|bg Bulgarian|bn Bengali|ca Catalan|cs Czech|cy Welsh|da Danish|de German|el Greek|en English|
    eo Esperanto|es Spanish|et Estonian|eu Basque|fa Persian|fi Finnish|fr French|ga Irish|gl Galician|
    he Hebrew|hi Hindi|hr Croatian|hu Hungarian|hy Armenian|id Indonesian|is Icelandic|it Italian|ja Japanese|
    ka Georgian|kk Kazakh|ko Korean|lt Lithuanian|lv Latvian|mk Macedonian|mn Mongolian|ms Malay|mt Maltese|
    nb Norwegian|nl Dutch|nn Nynorsk|no Norwegian|pl Polish|pt Portuguese|ro Romanian|ru Russian|sk Slovak|
    sl Slovenian|sq Albanian|sr Serbian|sv Swedish|sw Swahili|ta Tamil|te Telugu|th Thai|tr Turkish|
    uk Ukrainian|ur Urdu|vi Vietnamese|zh Chinese
"""
_NAMES_BY_CODE = dict(entry.strip().split(" ", 1) for entry in _NAMES.split("|"))


def language_name(code: str) -> str:
    """English name of a language, or its code if the name is unknown."""
    return _NAMES_BY_CODE.get(code.partition("-")[0].lower(), code)
