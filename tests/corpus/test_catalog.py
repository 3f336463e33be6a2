"""Named corpora: the shipped descriptions, and how a corpus is fetched."""

import gzip
import hashlib
import io
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.corpus import catalog
from dragoman.corpus.corpus_description import read_description
from dragoman.corpus.dataset import SPLITS
from dragoman.corpus.download_cache import local_path
from dragoman.corpus.sources import FORMATS, Languages, Source, read_pairs
from dragoman.errors import CorpusError, DownloadError

SHIPPED = sorted(Path(catalog.__file__).with_name("catalog").glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_description_is_valid(path: Path) -> None:
    description = read_description(path)
    assert description.name == path.stem
    assert description.about
    for entry in description.entries:
        assert entry.format in FORMATS
        assert entry.licence != "not stated"
        assert entry.generator or entry.remotes
        for remote in entry.remotes:
            assert remote.url.startswith("https://")
    for pair in description.pairs:
        for entry in description.train:
            filled = entry.for_pair(pair)
            assert "{" not in "".join([filled.name, *filled.members, *(remote.url for remote in filled.remotes)])


def test_an_address_has_the_same_size_and_checksum_in_all_descriptions() -> None:
    facts: dict[str, set[object]] = {}
    for description in catalog.descriptions():
        for entry in description.entries:
            for remote in entry.remotes:
                facts.setdefault(remote.url, set()).add(remote)
    assert all(len(known) == 1 for known in facts.values())


def test_names_lists_each_corpus_once_per_language_pair() -> None:
    names = catalog.names()
    assert len(names) == len(set(names))
    assert {"demo", "wmt16-en-de", "multi30k-en-de", "iwslt14-de-en", "europarl-v7/de-en"} <= set(names)
    assert all(catalog.find(name) for name in names)


def test_wmt16_has_three_training_sources() -> None:
    description, pair, languages = catalog.find("wmt16-en-de")
    assert [entry.name for entry in description.train] == ["europarl-v7", "commoncrawl", "news-commentary-v11"]
    assert [entry.name for entry in description.valid + description.test] == ["newstest2013", "newstest2014"]
    assert pair == languages == Languages("en", "de")
    # The archive that contains both evaluation sets counts once.
    assert description.download_bytes(pair) == 657632379 + 918311367 + 75178032 + 38654961
    for entry in description.train:
        english, german = entry.members
        assert english.endswith(".en")
        assert german.endswith(".de")


def test_the_download_size_is_unknown_if_a_file_size_is() -> None:
    description, pair, _ = catalog.find("europarl-v7/it-en")
    assert description.download_bytes(pair) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wmt16-en-fe", "did you mean wmt16-en-de"),
        ("europarl/de-en", "did you mean europarl-v7"),
        ("qqq", "known are demo"),
        ("europarl-v7", r"needs a language pair.* it has cs-en, de-en"),
        ("europarl-v7/en-xx", "does not have the language pair en-xx"),
        ("demo/en-fr", "does not have the language pair en-fr"),
    ],
)
def test_an_unknown_name_is_reported_with_the_known_ones(name: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        catalog.resolve(name)


def described(folder: Path, text: str, head: str = 'source = "en"\ntarget = "de"\n') -> str:
    path = folder / "mine.toml"
    path.write_text(head + text)
    return str(path)


def test_files_are_relative_to_the_description(tmp_path: Path) -> None:
    (tmp_path / "x.en").write_text("one\n")
    (tmp_path / "x.de").write_text("eins\n")
    name = described(
        tmp_path, '[[train]]\nfiles = ["x.en", "x.de"]\nformat = "lines"\nweight = 2\nlicence = "mine"\nname = "x"'
    )
    corpus = catalog.resolve(name, cache=tmp_path / "cache")
    assert corpus.name == "mine"
    assert corpus.train == (Source("x", (tmp_path / "x.en", tmp_path / "x.de"), "lines", 2.0, "mine"),)
    assert corpus.valid == corpus.test == ()
    reversed_corpus = catalog.resolve(f"{name}/de-en", cache=tmp_path / "cache")
    assert reversed_corpus.languages == Languages("de", "en")
    assert reversed_corpus.train[0].paths == (tmp_path / "x.de", tmp_path / "x.en")


def test_local_tsv_is_reversed_in_a_copy(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("one\teins\ntwo\tzwei\n")
    name = described(tmp_path, '[[train]]\nfiles = "x.tsv"\nformat = "tsv"')
    source = catalog.resolve(name, cache=tmp_path / "cache").train[0]
    assert source.paths == (tmp_path / "x.tsv",)
    reversed_corpus = catalog.resolve(f"{name}/de-en", cache=tmp_path / "cache")
    assert list(read_pairs(reversed_corpus.train[0], reversed_corpus.languages)) == [
        (b"eins", b"one"),
        (b"zwei", b"two"),
    ]
    (tmp_path / "x.tsv").write_text("one\teins\nthree\tdrei\n")
    reversed_corpus = catalog.resolve(f"{name}/de-en", cache=tmp_path / "cache")
    assert (b"drei", b"three") in list(read_pairs(reversed_corpus.train[0], reversed_corpus.languages))


def test_invalid_rows_of_a_downloaded_tsv_are_skipped(tmp_path: Path) -> None:
    url = "https://host.example/x.tsv.gz"
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "x.tsv.gz").write_bytes(gzip.compress(b"one\teins\n\nalone\na\tb\tc\ntwo\tzwei\n"))
    name = described(tmp_path, f'[[train]]\nurl = "{url}"\nformat = "tsv"')
    for requested, expected in ((name, (b"one", b"eins")), (f"{name}/de-en", (b"eins", b"one"))):
        corpus = catalog.resolve(requested, cache=tmp_path / "cache", mirror=mirror)
        pairs = list(read_pairs(corpus.train[0], corpus.languages))
        assert pairs[0] == expected
        assert len(pairs) == 2


def tgz(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


SEVERAL_PAIRS = """
[[train]]
name = "c.{pair}"
pairs = ["de-en", "fr-en"]
url = "https://host.example/v1/{pair}.tgz"
members = ["c/{pair}.{first}", "c/{pair}.{second}"]
format = "lines"
"""


@pytest.mark.parametrize(("requested", "sides"), [("de-en", ["eins", "one"]), ("en-de", ["one", "eins"])])
def test_members_are_unpacked_for_the_requested_pair_and_direction(
    requested: str, sides: list[str], tmp_path: Path
) -> None:
    archive = tmp_path / "mirror" / local_path("https://host.example/v1/de-en.tgz")
    archive.parent.mkdir(parents=True)
    archive.write_bytes(tgz({"c/de-en.de": b"eins", "c/de-en.en": b"one"}))
    name = described(tmp_path, SEVERAL_PAIRS, head="")
    corpus = catalog.resolve(f"{name}/{requested}", cache=tmp_path / "cache", mirror=tmp_path / "mirror")
    assert [path.read_text() for path in corpus.train[0].paths] == sides
    assert corpus.train[0].name == "c.de-en"
    with pytest.raises(DownloadError, match=r"contains neither fr-en\.tgz nor host\.example/v1/fr-en\.tgz"):
        catalog.resolve(f"{name}/fr-en", cache=tmp_path / "cache", mirror=tmp_path / "mirror")


def test_a_mirrored_archive_with_a_wrong_checksum_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(b"something else")
    wrong = hashlib.sha256(b"the right one").hexdigest()
    text = f"""[[train]]
url = "https://host.example/x.tgz"
sha256 = "{wrong}"
members = ["x.en", "x.de"]
format = "lines"
"""
    with pytest.raises(DownloadError, match=f"expected sha256 {wrong}"):
        catalog.resolve(described(tmp_path, text), cache=tmp_path / "cache", mirror=tmp_path)


def test_the_checksum_of_a_damaged_download_is_not_recorded(tmp_path: Path) -> None:
    cached = tmp_path / "cache" / "downloads" / local_path("https://host.example/v1/de-en.tgz")
    cached.parent.mkdir(parents=True)
    cached.write_bytes(tgz({"c/de-en.de": b"eins", "c/de-en.en": b"one"})[:-20])
    name = described(tmp_path, SEVERAL_PAIRS, head="")
    with pytest.raises(CorpusError, match="truncated"):
        catalog.resolve(f"{name}/de-en", cache=tmp_path / "cache")
    assert [path.name for path in cached.parent.iterdir()] == ["de-en.tgz.lock"]


def test_an_unwritable_cache_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file instead of a folder")
    with pytest.raises(CorpusError, match="set DRAGOMAN_CACHE to another"):
        catalog.resolve("multi30k-en-de", cache=tmp_path / "cache")


@dataclass(frozen=True)
class GeneratedCorpus:
    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]


def test_the_demo_corpus_is_generated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int, int, int]] = []

    def generate(pairs: int, seed: int = 1, *, valid: int = 500, test: int = 500) -> GeneratedCorpus:
        calls.append((pairs, seed, valid, test))
        return GeneratedCorpus([("one", "eins")], [("two", "zwei")], [("three", "drei")])

    monkeypatch.setattr("dragoman.corpus.demo.generate", generate, raising=False)
    corpus = catalog.resolve("demo", cache=tmp_path)
    again = catalog.resolve("demo", cache=tmp_path)
    reversed_corpus = catalog.resolve("demo/de-en", cache=tmp_path)
    assert calls == [(60000, 1, 500, 500)] * 2
    assert corpus == again
    assert corpus.train[0].licence == "Apache-2.0"
    assert [list(read_pairs(getattr(corpus, split)[0], corpus.languages)) for split in SPLITS] == [
        [(b"one", b"eins")],
        [(b"two", b"zwei")],
        [(b"three", b"drei")],
    ]
    assert list(read_pairs(reversed_corpus.train[0], reversed_corpus.languages)) == [(b"eins", b"one")]


def test_every_shipped_size_and_checksum_names_its_source() -> None:
    for path in SHIPPED:
        text = path.read_text()
        facts = {key for entry in tomllib.loads(text)["train"] for key in entry} & {"size", "sha256", "md5"}
        assert text.startswith("#")
        assert not facts or "tensorflow/datasets" in text or "pytorch/text" in text
