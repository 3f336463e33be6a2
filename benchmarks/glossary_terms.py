"""A glossary of 100 terms on Multi30k's test2016: terms that come out right, and BLEU that it costs.

The terms are taken from the references: pairs of words that belong together in the training text, that the references
of the test set agree on, and that the model translates otherwise at least once.

    python -m benchmarks.glossary_terms MODEL [--terms 100]
"""

import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import sacrebleu

import dragoman
from benchmarks.command_line import make_parser, run_dragoman
from benchmarks.corpora import MULTI30K, read_split
from benchmarks.reporting import Figure, print_figures
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.glossary import Glossary, count_forms, missing_terms
from dragoman.decoding.glossary_search import GlossaryTranslator, check_terms

PLACEHOLDER = "77"
MIN_LETTERS = 4
MIN_TIMES = 5
MIN_DICE = 0.3
"""Association of two words in the training text, from which they count as translations of each other."""
MIN_AGREEMENT = 0.6
"""Share of the references that must have the term where the source has it."""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", type=Path, help="run, checkpoint or model folder, English to German")
    parser.add_argument("--terms", type=int, default=100)
    options = parser.parse_args()
    print("Multi30k test2016, int8")
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "exported"
        run_dragoman("export", options.model, "--out", exported)
        print_figures("glossary_terms", measure(exported, options.terms))


def measure(model: Path, wanted_terms: int) -> Iterator[Figure]:
    sources, references = read_split(MULTI30K, "test2016")
    translator = dragoman.load(model, "cpu")
    assert isinstance(translator, CTranslate2Translator)
    plain, plain_s = _timed(translator.translate, sources)
    terms = choose_terms(sources, references, plain, wanted_terms)
    glossary = Glossary(terms, "en")
    with_terms, glossary_s = _timed(GlossaryTranslator(translator, glossary).translate, sources)
    concerned = [index for index, source in enumerate(sources) if glossary.find_terms(source)]
    yield Figure("terms; sentences with terms", f"{len(terms)}; {len(concerned)}", "100 terms", len(terms))
    methods = {
        "without glossary": plain,
        "with glossary": with_terms,
        "the term in the source text": translate_replaced(translator, glossary, sources, plain, None),
        "a number in its place": translate_replaced(translator, glossary, sources, plain, PLACEHOLDER),
    }
    before = sacrebleu.corpus_bleu(plain, [references]).score
    for name, texts in methods.items():
        checks = [check_terms(source, text, glossary) for source, text in zip(sources, texts, strict=True)]
        applied, missing = (sum(len(getattr(check, side)) for check in checks) for side in ("applied", "missing"))
        share, bleu = applied / (applied + missing), sacrebleu.corpus_bleu(texts, [references]).score
        is_ours = texts is with_terms
        yield Figure(f"terms right, {name}", f"{share:.1%} of {applied + missing}", "95 %" if is_ours else "", share)
        yield Figure(f"BLEU (lost), {name}", f"{bleu:.2f} ({before - bleu:.2f})", "0.5 lost" if is_ours else "", bleu)
    changed = sum(map(str.__ne__, plain, with_terms))
    yield Figure("sentences that the glossary changed", f"{changed}", "", changed)
    yield Figure("time with glossary over time without", f"{glossary_s / plain_s:.2f}", "", glossary_s / plain_s)


def translate_replaced(
    translator: CTranslate2Translator,
    glossary: Glossary,
    sources: Sequence[str],
    plain: Sequence[str],
    placeholder: str | None,
) -> list[str]:
    """Two simpler methods: translate with missed terms replaced in the source, by their translations or a number."""
    missed = [missing_terms(glossary.find_terms(source), text) for source, text in zip(sources, plain, strict=True)]
    replaced = list(sources)
    for index, terms in enumerate(missed):
        for term in terms:
            pattern = re.compile(rf"\b{re.escape(term.source)}\w*", re.IGNORECASE)
            replaced[index] = pattern.sub(placeholder or term.target, replaced[index], count=1)
    translations = translator.translate(replaced)
    if placeholder is not None:
        for index, terms in enumerate(missed):
            for term in terms:
                translations[index] = translations[index].replace(placeholder, term.target, 1)
    return translations


def _timed(translate: Callable[[Sequence[str]], list[str]], sources: Sequence[str]) -> tuple[list[str], float]:
    started_at = time.perf_counter()
    return translate(sources), time.perf_counter() - started_at


def choose_terms(
    sources: Sequence[str], references: Sequence[str], translations: Sequence[str], wanted: int
) -> dict[str, str]:
    """The terms that the model misses most often where most references have them."""
    missed: dict[tuple[str, str], int] = {}
    present = {word for source in sources for word in _distinct_words(source.lower())}
    candidates = {word: targets for word, targets in associated_words().items() if targets and word in present}
    for word, targets in candidates.items():
        glossary = Glossary({word: word}, "en")
        lines = [index for index, source in enumerate(sources) if glossary.find_terms(source)]
        for target in targets:
            agreeing = sum(count_forms(references[index], target) > 0 for index in lines)
            absent = sum(count_forms(translations[index], target) == 0 for index in lines)
            if absent and agreeing >= MIN_AGREEMENT * len(lines):
                missed[word, target] = absent
    terms: dict[str, str] = {}
    for word, target in sorted(missed, key=lambda pair: -missed[pair]):
        if word not in terms and len(terms) < wanted:
            terms[word] = target
    return terms


def associated_words() -> Mapping[str, list[str]]:
    """For each English word of the training text, the German words that occur with it and hardly without it."""
    english, german = read_split(MULTI30K, "train")
    left, right, both = Counter[str](), Counter[str](), defaultdict[str, Counter[str]](Counter)
    for source, target in zip(english, german, strict=True):
        words, others = _distinct_words(source.lower()), _nouns(target)
        left.update(words)
        right.update(others)
        for word in words:
            both[word].update(others)
    return {
        word: [other for other, times in others.most_common(20) if 2 * times / (left[word] + right[other]) >= MIN_DICE]
        for word, others in both.items()
        if left[word] >= MIN_TIMES
    }


def _nouns(text: str) -> set[str]:
    """German nouns: capitalised words after the first."""
    return {word for word in _distinct_words(text.partition(" ")[2]) if word[0].isupper()}


def _distinct_words(text: str) -> set[str]:
    return {word for word in re.findall(r"[^\W\d_]+", text) if len(word) >= MIN_LETTERS}


if __name__ == "__main__":
    main()
