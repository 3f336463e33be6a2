"""One rule for the ends of lines, in all parts that split text: files stay aligned whatever their lines contain."""

import ast
import json
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus.catalog import Corpus
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.preparation import prepare
from dragoman.corpus.sources import Languages, Source, read_pairs
from dragoman.decoding import scoring, text_input
from dragoman.decoding.line_translator import to_single_line
from dragoman.decoding.system_translations import EvaluationText
from dragoman.errors import DragomanError
from dragoman.event_log import EventLog, read_events
from dragoman.events import EvaluationDone
from dragoman.launch.worker_processes import follow_lines
from dragoman.recipe import resolve
from dragoman.text_lines import iterate_lines, read_text_lines, split_lines

SOURCE = Path(__file__).parents[1] / "src" / "dragoman"
SEPARATORS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters at which Python splits lines, besides the line feed."""
EN_DE = Languages("en", "de")

lines = st.lists(st.text(st.sampled_from("ab " + SEPARATORS), max_size=8), min_size=1, max_size=8)
sentences = st.lists(
    st.tuples(st.integers(0, 999), st.text(st.sampled_from("ab" + SEPARATORS), max_size=5)).map(
        lambda parts: f"the sentence{parts[1]}number {parts[0]} {parts[1]}ends"
    ),
    min_size=5,
    max_size=12,
)
"""Sentences of a few words, with separators between and inside of them."""


@given(lines, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_end_at_line_feeds_alone(expected, end, is_complete):
    expected = [line.rstrip("\r") for line in expected]
    text = end.join(expected) + (end if is_complete or not expected[-1] else "")
    assert split_lines(text) == expected
    assert [line.decode() for line in split_lines(text.encode())] == expected


def test_a_text_without_lines_has_none():
    assert split_lines("") == split_lines(b"") == []


@given(lines)
def test_all_readers_of_text_files_find_the_same_lines(tmp_path_factory, expected):
    path = tmp_path_factory.mktemp("text") / "text.en"
    path.write_bytes("".join(f"{line}\n" for line in expected).encode())
    without_ends = [line.removesuffix("\r") for line in expected]
    assert read_text_lines(path) == list(text_input.lines_of(str(path))) == without_ends
    with text_input.open_pipe(str(path)) as file:
        assert list(iterate_lines(file)) == without_ends
    pairs = read_pairs(Source("text", (path, path), "lines"), EN_DE)
    assert list(pairs) == [(line.encode(), line.encode()) for line in without_ends]


@given(sentences)
def test_every_source_format_keeps_one_pair_for_each_segment(tmp_path_factory, expected):
    folder = tmp_path_factory.mktemp("formats")
    contents = {
        "tsv": "".join(f"{line}\t{line}\n" for line in expected),
        "jsonl": "".join(json.dumps({"en": line, "de": line}, ensure_ascii=False) + "\n" for line in expected),
        "po": "".join(f'msgid "{number} {line}"\nmsgstr "{line}"\n\n' for number, line in enumerate(expected)),
        "tmx": "<tmx><body>" + "".join(map(_translation_unit, expected)) + "</body></tmx>",
        "sgm": "".join(f"<seg id='{number}'>{line}</seg>\n" for number, line in enumerate(expected)),
    }
    # XML and PO cannot contain all of these characters as they are.
    contents["po"] = contents["po"].replace("\r", "\\r")
    for character in "\v\f\x1c\x1d\x1e":
        contents["tmx"] = contents["tmx"].replace(character, " ")
    for format_name, content in contents.items():
        path = folder / f"text.{format_name}"
        path.write_bytes(content.encode())
        paths = (path, path) if format_name == "sgm" else (path,)
        pairs = list(read_pairs(Source("text", paths, format_name), EN_DE))
        assert len(pairs) == len(expected), format_name
        assert [target.decode().split() for _, target in pairs] == [
            (line.translate(str.maketrans("\v\f\x1c\x1d\x1e", "     ")) if format_name == "tmx" else line).split()
            for line in expected
        ], format_name


def _translation_unit(line: str) -> str:
    sides = "".join(f'<tuv xml:lang="{code}"><seg>{escape(line)}</seg></tuv>' for code in ("en", "de"))
    return f"<tu>{sides}</tu>"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> DataSet:
    """A data set whose training, validation and test pairs have separators of all kinds in them."""
    folder = tmp_path_factory.mktemp("separators")
    marks = [*SEPARATORS, "\r\r", "\u2028\r"]
    source = [f"the cat{mark}number {number}{mark}sleeps" for mark in marks for number in range(30)]
    target = [f"die Katze{mark}Nummer {number}{mark}schläft" for mark in marks for number in range(30)]
    for code, side in (("en", source), ("de", target)):
        (folder / f"text.{code}").write_bytes("".join(f"{line}\n" for line in side).encode())
    text = Source("text", (folder / "text.en", folder / "text.de"), "lines")
    corpus = Corpus("separators", EN_DE, (text,), (text,), (text,))
    settings = resolve(
        None, ["tokenizer.vocabulary_size=300", 'cleaning.rules=["empty","control_characters"]']
    ).settings
    prepare(corpus, folder / "data", settings, workers=1)
    return DataSet(folder / "data")


@pytest.mark.parametrize("split", ["valid", "test"])
def test_references_stay_aligned_with_their_sources_whatever_their_lines_contain(prepared, split):
    sources, references = prepared.text(split)
    assert len(sources) == len(references) == len(prepared.pairs(split)) == prepared.manifest.splits[split].pairs
    for index, (source, reference) in enumerate(zip(sources, references, strict=True)):
        assert f"number {index % 30}" in " ".join(source.split()), "the lines are those of the corpus, in order"
        assert f"Nummer {index % 30}" in " ".join(reference.split())


def test_training_pairs_are_kept_whatever_their_lines_contain(prepared):
    (report,) = prepared.manifest.sources
    assert report.before.pairs == report.after.pairs == prepared.manifest.splits["train"].pairs == 330


def test_text_of_a_data_set_is_read_alike_by_programs_that_split_at_carriage_returns(prepared):
    sources, references = prepared.text("valid")
    for code, side in (("en", sources), ("de", references)):
        with (prepared.path / f"valid.{code}").open(encoding="utf-8") as file:
            assert len(list(file)) == len(side)


@given(sentences)
def test_a_perfect_translation_scores_100(tmp_path_factory, references):
    folder = tmp_path_factory.mktemp("score")
    for name in ("source", "reference"):
        (folder / name).write_bytes("".join(f"{line}\n" for line in references).encode())
    (folder / "translation").write_bytes("".join(f"{to_single_line(line)}\n" for line in references).encode())
    text = EvaluationText.from_files(folder / "source", folder / "reference")
    translations = list(text_input.lines_of(str(folder / "translation")))
    result = scoring.score(translations, text.references)
    assert result.sentences == len(references)
    assert result.bleu.value == pytest.approx(100)
    assert result.chrf.value == pytest.approx(100)


@pytest.mark.parametrize("changed", ["valid.en", "valid.de"])
def test_text_that_lost_a_line_is_refused(prepared, tmp_path, changed):
    for path in prepared.path.rglob("*"):
        if path.is_file():
            (tmp_path / path.relative_to(prepared.path)).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path.relative_to(prepared.path)).write_bytes(path.read_bytes())
    content = (tmp_path / changed).read_bytes()
    (tmp_path / changed).write_bytes(content[content.index(b"\n") + 1 :])
    with pytest.raises(DragomanError, match=r"329, but the manifest states 330|329 lines and .* 330, but"):
        DataSet(tmp_path).text("valid")


@given(lines)
def test_events_are_read_whole_whatever_their_text_contains(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("events") / "events-0.jsonl"
    read_new_lines = follow_lines(path, latest_only=False)
    log = EventLog(path)
    samples = [{"source": text, "reference": text, "translation": text} for text in texts]
    scores = {"bleu": None, "bleu_signature": None, "chrf": None, "chrf_signature": None}
    numbers = {"loss": 1.0, "nll": 1.0, "perplexity": 2.7, "target_tokens": 9, "evaluation_s": 0.1}
    log.record(EvaluationDone(step=1, **numbers, **scores, samples=samples))
    log.close()
    (event,) = read_events(path)[0]
    assert isinstance(event, EvaluationDone)
    assert [sample["source"] for sample in event.samples] == texts
    assert len(read_new_lines()) == 1


def splits_lines(node: ast.AST) -> bool:
    """True for an expression that splits text into lines by another rule, or translates the ends of lines."""
    if not isinstance(node, ast.Call):
        return False
    function, keywords = node.func, {keyword.arg for keyword in node.keywords}
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    literals = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    if name in ("split", "rsplit"):
        return any(literal in ("\n", "\r\n") for literal in literals)
    if name == "open":
        modes = [literal for literal in literals if isinstance(literal, str) and set(literal) <= set("rwaxbt+")]
        is_binary = any("b" in mode for mode in modes)
        return "encoding" in keywords and not is_binary and "newline" not in keywords
    return name in ("splitlines", "readlines", "read_text", "StringIO")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_one_module_splits_text_into_lines(path):
    found = [node.lineno for node in ast.walk(ast.parse(path.read_bytes())) if splits_lines(node)]
    assert found == [] or path.name == "text_lines.py", "use split_lines of text_lines.py"
