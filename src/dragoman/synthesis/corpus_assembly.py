"""The corpus of a synthesis: all finished shards in order, without the pairs that rules drop."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from dragoman.corpus.model_filter import find_threshold
from dragoman.corpus.pair_filter import PairFilter
from dragoman.corpus.sources import Languages
from dragoman.corpus.text_normalization import is_word
from dragoman.decoding.line_translator import normalize_line
from dragoman.errors import DragomanError
from dragoman.files import replacing
from dragoman.progress_callback import Progress
from dragoman.settings import CleaningSettings, RuleName
from dragoman.synthesis.shard_store import ShardHeader, StoredCandidate
from dragoman.synthesis.synthesis_folder import SynthesisDescription, SynthesisFolder

EXAMPLES = 3
"""Dropped pairs that are kept as examples of each rule: the first ones."""
EMPTY = "empty"

Keep = Callable[[str, str, float], str | None]
"""The name of the rule that drops a pair of text, translation and score; None if it is kept."""


@dataclass(frozen=True)
class CorpusOptions:
    """How a corpus is made of the translations."""

    back: bool = False
    """Back-translation: the synthetic side is the source."""
    tag: str = ""
    """Word in front of each synthetic sentence."""
    cleaning: CleaningSettings | None = None
    """Settings of the rules that drop pairs by their text; None drops only empty ones."""
    keep: Keep | None = None
    """Another rule, which is asked first."""

    def __post_init__(self) -> None:
        if self.tag and not is_word(self.tag):
            raise DragomanError(f"--tag {self.tag!r} is not a word: use printable characters without spaces.")

    def make_filter(self, languages: Languages) -> Keep:
        """The rules for texts and translations in these languages."""
        by_text = None if self.cleaning is None else PairFilter(self.cleaning, languages)

        def find_rule(text: str, translation: str, score: float) -> str | None:
            rule = None if self.keep is None else self.keep(text, translation, score)
            return rule if rule or by_text is None else by_text(text, translation)

        return find_rule


@dataclass(frozen=True)
class ScoreRule:
    """The rule that drops pairs with low scores: those of the search, or of both directions."""

    rule: RuleName
    min_score: float

    @classmethod
    def find(
        cls, cleaning: CleaningSettings | None, folder: SynthesisFolder, description: SynthesisDescription
    ) -> "ScoreRule | None":
        """The rule with the threshold of the settings, or with one between real and mismatched pairs of all shards."""
        rule: RuleName = "score" if description.backward is None else "agreement"
        if cleaning is None or rule not in cleaning.rules:
            return None
        if cleaning.min_score is not None:
            return cls(rule, cleaning.min_score)
        if rule == "score":
            return None  # Scores of the search have nothing to compare them with.
        real, mismatched = list[float](), list[float]()
        for number in range(description.shards):
            header = folder.shards.read_header(number)
            real += header.real_scores
            mismatched += header.mismatched_scores
        return cls(rule, find_threshold(real, mismatched))

    def score_of(self, candidate: StoredCandidate) -> float:
        return candidate.score if self.rule == "score" or candidate.agreement is None else candidate.agreement


@dataclass
class CorpusCounts:
    """Lines, and pairs by what became of them."""

    read_lines: int = 0
    translated_pairs: int = 0
    kept_pairs: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[tuple[str, str, float]]] = field(default_factory=dict)
    shards_by_machine: Counter[str] = field(default_factory=Counter)
    lines_by_host: Counter[str] = field(default_factory=Counter)

    def add_shard(self, header: ShardHeader) -> None:
        self.shards_by_machine[header.machine] += 1
        self.lines_by_host[header.host] += header.lines

    def add_dropped(self, rule: str, text: str, translation: str, score: float) -> None:
        self.dropped[rule] += 1
        examples = self.examples.setdefault(rule, [])
        if len(examples) < EXAMPLES:
            examples.append((text, translation, score))


class _HashedFile:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, text: str) -> None:
        content = f"{text}\n".encode()
        self._file.write(content)
        self._digest.update(content)
        self.size_bytes += len(content)

    def summary(self) -> dict[str, Any]:
        return {"size_bytes": self.size_bytes, "sha256": self._digest.hexdigest()}


def assemble(
    folder: SynthesisFolder, description: SynthesisDescription, options: CorpusOptions, progress: Progress
) -> dict[str, Any]:
    """Write both sides of the corpus. Returns its description."""
    languages = description.languages
    paths = [folder.corpus_file(language) for language in (languages.source, languages.target)]
    counts, score_rule = CorpusCounts(), ScoreRule.find(options.cleaning, folder, description)
    with ExitStack() as stack:
        drafts = [stack.enter_context(replacing(path)) for path in paths]
        texts, translations = (_HashedFile(stack.enter_context(draft.open("wb"))) for draft in drafts)
        for text, translation in _kept_pairs(folder, description, options, score_rule, counts, progress):
            texts.write(text)
            translations.write(translation)
    direction = languages.reversed if options.back else languages
    files = {path.name: file.summary() for path, file in zip(paths, (texts, translations), strict=True)}
    return {
        "source": direction.source,
        "target": direction.target,
        "synthetic": languages.target,
        "tag": options.tag,
        "min_score": None if score_rule is None else score_rule.min_score,
        "read_lines": counts.read_lines,
        "translated_pairs": counts.translated_pairs,
        "kept_pairs": counts.kept_pairs,
        "dropped": {
            rule: {"pairs": pairs, "examples": counts.examples[rule]} for rule, pairs in counts.dropped.most_common()
        },
        "files": files,
        "machines": dict(counts.shards_by_machine),
        "hosts": dict(counts.lines_by_host),
    }


def _kept_pairs(
    folder: SynthesisFolder,
    description: SynthesisDescription,
    options: CorpusOptions,
    score_rule: ScoreRule | None,
    counts: CorpusCounts,
    progress: Progress,
) -> Iterator[tuple[str, str]]:
    tag, find_rule = f"{options.tag} " if options.tag else "", options.make_filter(description.languages)
    for number in range(description.shards):
        header, lines = folder.shards.read(number)
        counts.add_shard(header)
        for text, candidates in lines:
            counts.read_lines += 1
            normal = normalize_line(text)  # As it was translated.
            for candidate in candidates:
                counts.translated_pairs += 1
                translation, score = candidate.text, candidate.score
                rule = find_rule(normal, translation, score) if normal and translation else EMPTY
                if rule is None and score_rule is not None and score_rule.score_of(candidate) < score_rule.min_score:
                    rule, score = score_rule.rule, score_rule.score_of(candidate)
                if rule is None:
                    counts.kept_pairs += 1
                    yield text, tag + translation
                else:
                    counts.add_dropped(rule, text, translation, score)
        progress("Writing the corpus", counts.read_lines, description.lines)
