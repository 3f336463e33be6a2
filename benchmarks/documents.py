"""Documents of all formats: what a translation changes of them, and what damaged ones do.

    python -m benchmarks.documents [--damaged 1000]

A translation into capital letters is written into each sample, and read by the format's own library: only the text may
differ. A second one reverses the words. Then random damage is done to each sample.
"""

import argparse
import time
from collections import Counter

from benchmarks.document_fuzzing import damage
from benchmarks.document_structure import describe, untranslated_parts
from benchmarks.reporting import Figure, print_figures
from benchmarks.sample_documents import make_documents
from dragoman.corpus.sources import Languages
from dragoman.documents.document import UnreadableError
from dragoman.documents.formats import parse
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.tag_projection import project_tags

LANGUAGES = Languages("en", "de")


def to_capitals(text: MarkedText) -> MarkedText:
    return MarkedText(text.text.upper(), text.tags)


def in_reverse(text: MarkedText) -> MarkedText:
    return project_tags(text, " ".join(reversed(text.text.split())), ())


def keeps_structure(name: str, extension: str, content: bytes) -> bool:
    document = parse(content, extension, LANGUAGES)
    translated = document.render([to_capitals(segment) for segment in document.segments])
    is_same = bool(describe(name, translated, str.upper) == describe(name, content, str.upper))
    if extension in ("docx", "pptx", "odt"):
        is_same &= untranslated_parts(translated) == untranslated_parts(content)
    return is_same


def count_damaged(extension: str, content: bytes, number: int) -> tuple[Counter[str], float]:
    """How many damaged copies are translated, refused with a sentence, or crash; and the longest time for one."""
    results: Counter[str] = Counter()
    longest_s = 0.0
    for seed in range(number):
        started_at_s = time.perf_counter()
        try:
            document = parse(damage(content, seed), extension, LANGUAGES)
            document.render([in_reverse(segment) for segment in document.segments])
            results["translated"] += 1
        except UnreadableError:
            results["refused"] += 1
        except Exception as error:
            results["crashed"] += 1
            print(f"{extension}, seed {seed}: {error!r}")
        longest_s = max(longest_s, time.perf_counter() - started_at_s)
    return results, longest_s


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--damaged", type=int, default=1000, help="damaged copies of each sample")
    damaged = arguments.parse_args().damaged
    samples = make_documents()
    figures = []
    same = [name for name, (extension, content) in samples.items() if keeps_structure(name, extension, content)]
    figures.append(
        Figure(
            "formats whose structure and untranslated parts are equal", f"{len(same)} of {len(samples)}", "all", same
        )
    )
    for name, (extension, content) in samples.items():
        results, longest_s = count_damaged(extension, content, damaged)
        measured = (
            f"{results['translated']} translated, {results['refused']} refused with a sentence, "
            f"{results['crashed']} crashed; longest {longest_s * 1000:.0f} ms"
        )
        figures.append(Figure(f"{damaged:,} damaged files, {name}", measured, "0 crashed", dict(results)))
    print_figures("documents", figures, damaged=damaged)


if __name__ == "__main__":
    main()
