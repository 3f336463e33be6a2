"""HTML snippets through a running server: tags lost, doubled or unbalanced, the text, and the place of tags.

python -m benchmarks.markup --model runs/demo/run [--snippets 200] [--seed 1]

The model is one of the demo: its grammar tells which German word translates an English noun.
"""

import argparse
import asyncio
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import httpx

from benchmarks.command_line import make_parser
from benchmarks.reporting import Figure, print_figures
from benchmarks.running_server import serving
from dragoman.corpus import demo
from dragoman.corpus.demo.lexicon import load_lexicon
from dragoman.decoding.model_choice import find_model
from dragoman.documents.html_document import visible_text
from dragoman.exporting.exporter import export

VOID = ("br", "img", "wbr", "hr")
Kind = Callable[[list[str], random.Random], str]
"""Writes the words of a sentence as HTML."""


def around(opening: str, closing: str, longest: int = 3) -> Kind:
    """A tag around some words."""

    def write(words: list[str], rng: random.Random) -> str:
        start = rng.randrange(len(words))
        end = min(len(words), start + rng.randint(1, longest))
        return " ".join([*words[:start], opening + " ".join(words[start:end]) + closing, *words[end:]])

    return write


def between(markup: str) -> Kind:
    """Markup between two words."""

    def write(words: list[str], rng: random.Random) -> str:
        place = rng.randint(0, len(words))
        return " ".join([*words[:place], markup, *words[place:]])

    return write


def nested(*kinds: Kind) -> Kind:
    """Several kinds, one in the other's text."""

    def write(words: list[str], rng: random.Random) -> str:
        half = len(words) // 2
        parts = words[:half], words[half:]
        return " ".join(kind(part, rng) if part else "" for kind, part in zip(kinds, parts, strict=True))

    return write


def in_template(template: str, kind: Kind) -> Kind:
    return lambda words, rng: template.replace("*", kind(words, rng))


def within_a_word(words: list[str], rng: random.Random) -> str:
    index = rng.randrange(len(words))
    word = words[index]
    middle = len(word) // 2
    return " ".join([*words[:index], f"{word[:middle]}<u>{word[middle:]}</u>", *words[index + 1 :]])


def crossed(words: list[str], rng: random.Random) -> str:
    first, second, third = sorted(rng.sample(range(len(words)), 3)) if len(words) > 2 else (0, 0, 0)
    marked = list(words)
    marked[first] = "<b>" + marked[first]
    marked[second] = "<i>" + marked[second] + "</b>"
    marked[third] += "</i>"
    return " ".join(marked)


BOLD, LINK = around("<b>", "</b>"), around('<a href="/x?a=1&amp;b=2" title="a &lt; b">', "</a>")
KINDS: dict[str, Kind] = {
    # Kinds that the implementation was tried with.
    "bold": BOLD,
    "link in a paragraph": in_template("<p>*</p>", LINK),
    "nested": lambda words, rng: (
        around("<em>", "</em>", 6)([*BOLD(words, rng).split(" ")], rng)
        if len(words) < 2
        else f"<em>{BOLD(words[:-1], rng)}</em> {words[-1]}"
    ),
    "image": between('<img src="a.png" alt="A &amp; B">'),
    "line break": between("<br>"),
    "comment": between("<!-- a <b> comment -->"),
    "code": between("<code>a &lt; b</code>"),
    "whole": in_template("<div>\n  <strong>*</strong>\n</div>", lambda words, _: " ".join(words)),
    "not closed": between("<b>"),
    "crossed": crossed,
    "entities": nested(between("&amp;"), BOLD),
    # Kinds that were written with this benchmark, after the implementation.
    "not opened": between("</span>"),
    "within a word": within_a_word,
    "upper case, no quotes": around("<FONT COLOR=red Size=2>", "</font>"),
    "data attributes": around('<span data-x=\'{"a": "<b>"}\' hidden>', "</span>", 5),
    "list": in_template("<ul><li>*<li>", nested(BOLD, LINK)),
    "table": in_template("<table><tr><td>*</td><td>1</td></tr></table>", nested(LINK, around("<s>", "</s>"))),
    "mention": nested(between('<span class="h-card"><a href="https://a.example/@b">@<span>b</span></a></span>'), BOLD),
    "emoji": between('<img class="emoji" alt=":x:" src=x>'),
    "custom element": around("<x-mark level=1>", "</x-mark>"),
    "same tag twice": lambda words, rng: f"<b>{BOLD(words, rng)}</b>",
    "script": in_template("<script>if (a < b) { c('</b>') }</script><p>*<p>", LINK),
    "small pieces": lambda words, _: " ".join(f"<i>{word}</i>" for word in words),
}


class TagCounter(HTMLParser):
    """Counts tags and comments, and tags without counterpart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.unbalanced = 0
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.unbalanced += len(self._open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[f"<{tag} {attrs}>"] += 1
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.seen[f"</{tag}>"] += 1
        if tag not in self._open:
            self.unbalanced += 1
            return
        while self._open.pop() != tag:
            self.unbalanced += 1

    def handle_comment(self, data: str) -> None:
        self.seen[f"<!--{data}-->"] += 1


@dataclass(frozen=True)
class Answers:
    """A snippet, its translation, and the translation of its text without tags."""

    kind: str
    snippet: str
    translation: str
    plain: str


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path, required=True, help="run of the demo")
    parser.add_argument("--snippets", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        export(find_model(options.model), Path(folder) / "model", "ctranslate2")
        print_figures("markup", measure(Path(folder) / "model", options), seed=options.seed)


def measure(model: Path, options: argparse.Namespace) -> Iterator[Figure]:
    rng = random.Random(options.seed)
    sentences = [english for english, _ in demo.generate(5000, seed=options.seed + 100, valid=1, test=1).train]
    snippets = [
        (kind, KINDS[kind](rng.choice(sentences).split(" "), rng))
        for kind in (list(KINDS) * (options.snippets // len(KINDS) + 1))[: options.snippets]
    ]
    nouns = [tag_a_noun(sentence) for sentence in rng.sample(sentences, options.snippets)]
    answers, judged = asyncio.run(translate_all(model, snippets, [noun for noun in nouns if noun]))
    yield from count_tags(answers)
    yield from judge_places(judged)


async def translate_all(
    model: Path, snippets: list[tuple[str, str]], nouns: list[tuple[str, set[str]]]
) -> tuple[list[Answers], list[tuple[str, set[str]]]]:
    async with serving(model) as (url, _), httpx.AsyncClient() as client:

        async def translate(text: str, text_format: str) -> str:
            fields = {"q": text, "source": "en", "target": "de", "format": text_format}
            answer = await client.post(f"{url}/translate", json=fields, timeout=60)
            answer.raise_for_status()
            return str(answer.json()["translatedText"])

        answers = [
            Answers(kind, html, await translate(html, "html"), await translate(visible_text(html), "text"))
            for kind, html in snippets
        ]
        return answers, [(await translate(html, "html"), forms) for html, forms in nouns]


def count_tags(answers: list[Answers]) -> Iterator[Figure]:
    lost = doubled = unbalanced = same = 0
    for answer in answers:
        before, after = TagCounter(answer.snippet), TagCounter(answer.translation)
        lost += (before.seen - after.seen).total()
        doubled += (after.seen - before.seen).total()
        unbalanced += after.unbalanced > before.unbalanced
        same += " ".join(visible_text(answer.translation).split()) == " ".join(answer.plain.split())
    kinds = len({answer.kind for answer in answers})
    yield Figure("snippets; kinds of markup", f"{len(answers)}; {kinds}", "", len(answers))
    yield Figure("tags and comments lost; doubled", f"{lost}; {doubled}", "0; 0", [lost, doubled])
    yield Figure("snippets with more unbalanced tags than before", str(unbalanced), "0", unbalanced)
    share = same / len(answers)
    yield Figure("text same as the translation without tags", f"{share:.1%}", "at least 90 %", share)


def tag_a_noun(sentence: str) -> tuple[str, set[str]] | None:
    """The sentence with a tag around the first noun that occurs once, and the forms of its translation."""
    for match in re.finditer(r"\w+", sentence):
        noun = load_lexicon().nouns.get(match[0])
        if noun and sentence.count(match[0]) == 1:
            forms = {noun.de, noun.plural or noun.de, noun.genitive or noun.de + "s"}
            forms |= {form + ending for form in (noun.de, noun.plural or noun.de) for ending in ("n", "en", "s")}
            start, end = match.span()
            return f"{sentence[:start]}<b>{sentence[start:end]}</b>{sentence[end:]}", forms
    return None


def judge_places(judged: list[tuple[str, set[str]]]) -> Iterator[Figure]:
    """Whether tags are around the translations of their nouns, where the translation has one of them."""
    exact = with_neighbour = total = 0
    for page, forms in judged:
        if len([word for word in re.findall(r"[\w-]+", visible_text(page)) if word in forms]) != 1:
            continue
        [inside] = re.findall("<b>(.*?)</b>", page)
        total += 1
        exact += inside in forms
        with_neighbour += len(inside.split(" ")) <= 2 and not forms.isdisjoint(inside.split(" "))
    for name, right in (("noun alone", exact), ("noun, or it and one word more", with_neighbour)):
        yield Figure(f"tags around the right word: {name}", f"{right / total:.1%} of {total}", "", right / total)


if __name__ == "__main__":
    main()
