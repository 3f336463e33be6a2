import lzma
from pathlib import Path

import pytest

from dragoman.corpus.dataset import text_files
from dragoman.corpus.evaluation_set import EvaluationFiles, EvaluationSet, parse_evaluation, read_evaluation_sets
from dragoman.errors import DragomanError


def write(folder: Path, name: str, *lines: str) -> Path:
    (folder / name).write_bytes(b"".join(f"{line}\n".encode() for line in lines))
    return folder / name


def test_an_argument_has_a_name_and_two_files():
    expected = EvaluationFiles("news-2014.v1", Path("a/b=c.en"), Path("d.de"))
    assert parse_evaluation("news-2014.v1=a/b=c.en,d.de") == expected


@pytest.mark.parametrize("argument", ["", "a.en,a.de", "news=a.en", "news=a,b,c", "=a,b", "a b=a,b", f"{'n' * 21}=a,b"])
def test_any_other_argument_is_refused_with_an_example(argument):
    with pytest.raises(DragomanError, match=r"is not understood: write NAME=SOURCE,REFERENCE, such as news=news.en,"):
        parse_evaluation(argument)


def test_the_files_of_a_validation_set_give_the_same_text_and_tokens(data):
    source, reference = text_files(data.path, "valid", data.languages)
    [found] = read_evaluation_sets([f"again={source},{reference}"], data.tokenizer)
    expected = EvaluationSet.validation(data)
    assert (found.sources, found.references) == (expected.sources, expected.references)
    assert found.identity == expected.identity
    assert found.pairs.lengths().tolist() == expected.pairs.lengths().tolist()
    assert [side.tolist() for side in found.pairs[7]] == [side.tolist() for side in expected.pairs[7]]


def test_lines_may_be_blank_or_have_tabs_and_carriage_returns(data, tmp_path):
    source = write(tmp_path, "a.en", "", "a\tdog\rruns \r")
    reference = write(tmp_path, "a.de", "nichts", "ein Hund\tläuft")
    [found] = read_evaluation_sets([f"odd={source},{reference}"], data.tokenizer)
    assert found.sources == ["", "a\tdog runs "]
    assert found.pairs.lengths()[0, 0] == 1, "the end of the sentence alone"
    assert len(found.pairs) == 2


@pytest.mark.parametrize("side", [0, 1])
def test_files_in_another_encoding_are_refused_with_the_line(data, tmp_path, side):
    files = write(tmp_path, "a.en", "a dog", "caf\u00e9"), write(tmp_path, "a.de", "ein Hund", "Caf\u00e9")
    files[side].write_bytes(files[side].read_text().encode("latin-1"))
    with pytest.raises(DragomanError, match=rf"--also-evaluate news: {files[side]}, line 2: is not UTF-8: convert it"):
        read_evaluation_sets([f"news={files[0]},{files[1]}"], data.tokenizer)


def test_files_may_be_compressed(data, tmp_path):
    files = write(tmp_path, "a.en", "a dog", "a cat"), write(tmp_path, "a.de", "ein Hund", "eine Katze")
    for file in files:
        file.with_suffix(f"{file.suffix}.xz").write_bytes(lzma.compress(file.read_bytes()))
    plain, compressed = (f"{name}={files[0]}{end},{files[1]}{end}" for name, end in (("plain", ""), ("xz", ".xz")))
    first, second = read_evaluation_sets([plain, compressed], data.tokenizer)
    assert first.identity == second.identity


def test_all_problems_are_in_one_message(data, tmp_path):
    two, three, empty = write(tmp_path, "2", "a", "b"), write(tmp_path, "3", *"abc"), write(tmp_path, "0")
    arguments = [
        f"good={two},{two}", f"uneven={two},{three}", f"gone={two},{tmp_path / 'x'}", f"empty={empty},{two}",
        f"good={two},{two}", f"valid={two},{two}", "what",
    ]  # fmt: skip
    with pytest.raises(DragomanError) as error:
        read_evaluation_sets(arguments, data.tokenizer)
    assert [line.strip() for line in str(error.value).splitlines()] == [
        f"--also-evaluate uneven: {two} has 2 lines, {three} 3: give a reference for each line.",
        f"--also-evaluate gone: {tmp_path / 'x'}: cannot be read (No such file or directory): check the path and its "
        "permissions.",
        f"--also-evaluate empty: {empty} is empty: give a file with one sentence per line.",
        f"--also-evaluate good={two},{two}: good is taken: choose another name.",
        f"--also-evaluate valid={two},{two}: valid is taken: choose another name.",
        "--also-evaluate what is not understood: write NAME=SOURCE,REFERENCE, such as news=news.en,news.de; a name has "
        "up to 20 letters.",
    ]
