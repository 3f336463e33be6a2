"""Language codes of models with many languages, by the codes of data sets."""

from collections.abc import Collection

from dragoman.corpus.language_codes import single_language
from dragoman.corpus.sources import Languages

_M2M100_CODES = """
    af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id
    ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si
    sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
"""
M2M100_LANGUAGES = {"m2m100": _M2M100_CODES.split(), "wmt21": ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"]}
"""Languages by `language_codes` of the tokenizer's configuration, in the order of their tokens: no file lists them."""

_THREE_LETTER_CODES = """
    af:afr ak:aka am:amh ar:arb as:asm ay:ayr az:azj ba:bak be:bel bg:bul bm:bam bn:ben bo:bod bs:bos ca:cat cs:ces
    cy:cym da:dan de:deu dz:dzo ee:ewe el:ell en:eng eo:epo es:spa et:est eu:eus fa:pes ff:fuv fi:fin fj:fij fo:fao
    fr:fra ga:gle gd:gla gl:glg gn:grn gu:guj ha:hau he:heb hi:hin hr:hrv ht:hat hu:hun hy:hye id:ind ig:ibo is:isl
    it:ita ja:jpn jv:jav ka:kat kg:kon ki:kik kk:kaz km:khm kn:kan ko:kor ku:kmr ky:kir lb:ltz lg:lug li:lim ln:lin
    lo:lao lt:lit lv:lvs mg:plt mi:mri mk:mkd ml:mal mn:khk mr:mar ms:zsm mt:mlt my:mya nb:nob ne:npi nl:nld nn:nno
    no:nob ny:nya oc:oci om:gaz or:ory pa:pan pl:pol ps:pbt pt:por qu:quy rn:run ro:ron ru:rus rw:kin sa:san sc:srd
    sd:snd sg:sag si:sin sk:slk sl:slv sm:smo sn:sna so:som sq:als sr:srp ss:ssw st:sot su:sun sv:swe sw:swh ta:tam
    te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn tr:tur ts:tso tt:tat ug:uig uk:ukr ur:urd uz:uzn vi:vie wo:wol
    xh:xho yi:ydd yo:yor zh:zho zu:zul
"""
_NLLB_CODES = dict(pair.split(":") for pair in _THREE_LETTER_CODES.split())
"""NLLB's code of each language with a two-letter code: of several varieties, the one that the language stands for."""


def match_languages(language: str, available: Collection[str]) -> list[str]:
    """The codes of a model that a language may mean: `de` is `de` for M2M100 and `deu_Latn` for NLLB."""
    if language in available:
        return [language]
    exact = [code for code in available if _plain(code) == _plain(language)]
    if exact:
        return exact
    primary, *details = _plain(language).split("_")
    wanted = {primary, _NLLB_CODES.get(primary, primary)}
    found = [code for code in available if _plain(code).split("_")[0] in wanted]
    detailed = [code for code in found if set(details) & set(_plain(code).split("_")[1:])]
    return detailed or found


def other_direction(first: Languages, second: Languages) -> bool:
    """True if two directions certainly differ: `en` and `eng_Latn` are one language, and a group may include any."""
    return _other_language(first.source, second.source) or _other_language(first.target, second.target)


def _other_language(first: str, second: str) -> bool:
    known = [_three_letter_code(code) for code in (first, second)]
    return None not in known and known[0] != known[1]


def _three_letter_code(code: str) -> str | None:
    """The code of a language, by which codes of all models are compared; None for groups and languages not known."""
    primary = single_language(code)
    if primary is None or len(primary) == 2:
        return _NLLB_CODES.get(primary or "", primary)
    return primary if primary in _NLLB_CODES.values() else None


def _plain(code: str) -> str:
    return code.replace("-", "_").lower()
