"""Named corpora: the shipped descriptions are sound, and one's own are read, checked and brought here."""

import gzip
import hashlib
import io
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.corpus import catalog, sources
from dragoman.corpus.download_cache import local_path
from dragoman.corpus.sources import Languages, Source, read_pairs
from dragoman.errors import CorpusError, DownloadError

SHELF = Path(catalog.__file__).with_name("catalog")
SHIPPED = sorted(SHELF.glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_description_is_sound(path: Path) -> None:
    description = catalog.read(path)
    assert description.name == path.stem
    assert description.about
    for entry in description.train + description.valid + description.test:
        assert entry.format in sources.FORMATS
        assert entry.licence != "not stated"
        assert entry.generator or entry.remotes
        for remote in entry.remotes:
            assert remote.url.startswith("https://")
    for pair in description.pairs:
        for entry in description.train:
            filled = catalog._filled(entry, pair)
            assert "{" not in "".join([filled.name, *filled.members, *(remote.url for remote in filled.remotes)])


def test_one_address_has_the_same_facts_everywhere() -> None:
    facts: dict[str, set[object]] = {}
    for description in catalog.describe():
        for entry in description.train + description.valid + description.test:
            for remote in entry.remotes:
                facts.setdefault(remote.url, set()).add(remote)
    assert all(len(known) == 1 for known in facts.values())


def test_names_lists_every_corpus_once_for_each_pair() -> None:
    names = catalog.names()
    assert len(names) == len(set(names))
    assert {"demo", "wmt16-en-de", "multi30k-en-de", "iwslt14-de-en", "europarl-v7/de-en"} <= set(names)
    assert all(catalog.find(name) for name in names)


def test_the_original_corpus_is_made_of_its_three_parts() -> None:
    description, pair, languages = catalog.find("wmt16-en-de")
    assert [entry.name for entry in description.train] == ["europarl-v7", "commoncrawl", "news-commentary-v11"]
    assert [entry.name for entry in description.valid + description.test] == ["newstest2013", "newstest2014"]
    assert pair == languages == Languages("en", "de")
    # The archive of both sets counts once.
    assert description.download_bytes(pair) == 657632379 + 918311367 + 75178032 + 38654961
    for entry in description.train:
        english, german = entry.members
        assert english.endswith(".en")
        assert german.endswith(".de")


def test_sizes_that_nobody_states_are_not_added_up() -> None:
    description, pair, _ = catalog.find("europarl-v7/it-en")
    assert description.download_bytes(pair) is None


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("wmt16-en-fe", "did you mean wmt16-en-de"),
        ("europarl/de-en", "did you mean europarl-v7"),
        ("qqq", "known are demo"),
        ("europarl-v7", r"needs a pair .* it has cs-en, de-en"),
        ("europarl-v7/en-xx", "does not have the pair en-xx"),
        ("demo/en-fr", "does not have the pair en-fr"),
    ],
)
def test_a_misspelt_name_is_answered_with_what_there_is(name: str, remark: str) -> None:
    with pytest.raises(CorpusError, match=remark):
        catalog.resolve(name)


def described(folder: Path, text: str, head: str = 'source = "en"\ntarget = "de"\n') -> str:
    path = folder / "mine.toml"
    path.write_text(head + text)
    return str(path)


def test_files_of_ones_own_lie_beside_the_description(tmp_path: Path) -> None:
    (tmp_path / "x.en").write_text("one\n")
    (tmp_path / "x.de").write_text("eins\n")
    name = described(
        tmp_path, '[[train]]\nfiles = ["x.en", "x.de"]\nformat = "lines"\nweight = 2\nlicence = "mine"\nname = "x"'
    )
    corpus = catalog.resolve(name, cache=tmp_path / "cache")
    assert corpus.name == "mine"
    assert corpus.train == (Source("x", (tmp_path / "x.en", tmp_path / "x.de"), "lines", 2.0, "mine"),)
    assert corpus.valid == corpus.test == ()
    turned = catalog.resolve(f"{name}/de-en", cache=tmp_path / "cache")
    assert turned.languages == Languages("de", "en")
    assert turned.train[0].paths == (tmp_path / "x.de", tmp_path / "x.en")


def test_tsv_of_ones_own_is_turned_round_in_a_copy(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("one\teins\ntwo\tzwei\n")
    name = described(tmp_path, '[[train]]\nfiles = "x.tsv"\nformat = "tsv"')
    straight = catalog.resolve(name, cache=tmp_path / "cache").train[0]
    assert straight.paths == (tmp_path / "x.tsv",)
    turned = catalog.resolve(f"{name}/de-en", cache=tmp_path / "cache")
    assert list(read_pairs(turned.train[0], turned.languages)) == [(b"eins", b"one"), (b"zwei", b"two")]
    (tmp_path / "x.tsv").write_text("one\teins\nthree\tdrei\n")
    turned = catalog.resolve(f"{name}/de-en", cache=tmp_path / "cache")
    assert (b"drei", b"three") in list(read_pairs(turned.train[0], turned.languages))


def test_published_tsv_loses_its_stray_rows(tmp_path: Path) -> None:
    url = "https://host.example/x.tsv.gz"
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "x.tsv.gz").write_bytes(gzip.compress(b"one\teins\n\nalone\na\tb\tc\ntwo\tzwei\n"))
    name = described(tmp_path, f'[[train]]\nurl = "{url}"\nformat = "tsv"')
    for asked, expected in ((name, (b"one", b"eins")), (f"{name}/de-en", (b"eins", b"one"))):
        corpus = catalog.resolve(asked, cache=tmp_path / "cache", mirror=mirror)
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


PAIRED = """
[[train]]
name = "c.{pair}"
pairs = ["de-en", "fr-en"]
url = "https://host.example/v1/{pair}.tgz"
members = ["c/{pair}.{first}", "c/{pair}.{second}"]
format = "lines"
"""


@pytest.mark.parametrize(("asked", "sides"), [("de-en", ["eins", "one"]), ("en-de", ["one", "eins"])])
def test_members_are_unpacked_for_the_pair_and_direction_asked_for(
    asked: str, sides: list[str], tmp_path: Path
) -> None:
    archive = tmp_path / "mirror" / local_path("https://host.example/v1/de-en.tgz")
    archive.parent.mkdir(parents=True)
    archive.write_bytes(tgz({"c/de-en.de": b"eins", "c/de-en.en": b"one"}))
    name = described(tmp_path, PAIRED, head="")
    corpus = catalog.resolve(f"{name}/{asked}", cache=tmp_path / "cache", mirror=tmp_path / "mirror")
    assert [path.read_text() for path in corpus.train[0].paths] == sides
    assert corpus.train[0].name == "c.de-en"
    with pytest.raises(DownloadError, match=r"holds neither fr-en\.tgz nor host\.example/v1/fr-en\.tgz"):
        catalog.resolve(f"{name}/fr-en", cache=tmp_path / "cache", mirror=tmp_path / "mirror")


def test_a_mirrored_archive_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
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


def test_a_damaged_first_download_is_not_held_against_the_next(tmp_path: Path) -> None:
    place = tmp_path / "cache" / "downloads" / local_path("https://host.example/v1/de-en.tgz")
    place.parent.mkdir(parents=True)
    place.write_bytes(tgz({"c/de-en.de": b"eins", "c/de-en.en": b"one"})[:-20])
    name = described(tmp_path, PAIRED, head="")
    with pytest.raises(CorpusError, match="cut short"):
        catalog.resolve(f"{name}/de-en", cache=tmp_path / "cache")
    assert [path.name for path in place.parent.iterdir()] == ["de-en.tgz.lock"]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(CorpusError, match="set DRAGOMAN_CACHE to another"):
        catalog.resolve("multi30k-en-de", cache=tmp_path / "cache")


@dataclass(frozen=True)
class MadeUp:
    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]


def test_the_demo_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int, int, int]] = []

    def generate(pairs: int, seed: int = 1, *, valid: int = 500, test: int = 500) -> MadeUp:
        calls.append((pairs, seed, valid, test))
        return MadeUp([("one", "eins")], [("two", "zwei")], [("three", "drei")])

    monkeypatch.setattr("dragoman.corpus.demo.generate", generate, raising=False)
    corpus = catalog.resolve("demo", cache=tmp_path)
    again = catalog.resolve("demo", cache=tmp_path)
    turned = catalog.resolve("demo/de-en", cache=tmp_path)
    assert calls == [(60000, 1, 500, 500)] * 2
    assert corpus == again
    assert corpus.train[0].licence == "Apache-2.0"
    assert [list(read_pairs(getattr(corpus, split)[0], corpus.languages)) for split in catalog.SPLITS] == [
        [(b"one", b"eins")],
        [(b"two", b"zwei")],
        [(b"three", b"drei")],
    ]
    assert list(read_pairs(turned.train[0], turned.languages)) == [(b"eins", b"one")]


GOOD = 'files = ["x.en", "x.de"]\nformat = "lines"\n'
ARCHIVE = 'url = "https://h.example/x.tgz"\nmembers = ["a", "b"]\nformat = "lines"\n'


@pytest.mark.parametrize(
    ("entry", "remark"),
    [
        (GOOD + 'licens = "x"', "train 1: licens is unknown, did you mean licence"),
        (GOOD + 'url = "https://h.example/x"', "exactly one of url, files and generator"),
        ('format = "lines"', "exactly one of url, files and generator"),
        ('generator = "magic"', "generator 'magic' is unknown, known are demo"),
        ('files = "x"\nformat = "docx"', "format 'docx' is unknown, known are lines"),
        ('files = "x"\nformat = "lines"', "lines needs 2 files and 1 are given"),
        ('files = ["x", "y"]\nformat = "tsv"', "tsv needs 1 file and 2 are given"),
        (ARCHIVE + 'sha256 = "123"', "sha256 '123' is malformed"),
        (ARCHIVE + "size = [1, 2]", "size must be given once for each url"),
        (ARCHIVE + 'size = "big"', "size must be a number"),
        (GOOD + "weight = -1", "weight must be a number"),
        (GOOD + "weight = true", "weight must be a number"),
        ('url = "https://h.example/x.tgz"\nformat = "tmx"', "members go with the url of one archive"),
        ('url = "https://h.example/x.tmx"\nmembers = "y"\nformat = "tmx"', "members go with the url of one archive"),
        ('url = "file:///etc/passwd"\nformat = "tmx"', "is not a web address"),
        (GOOD + 'pairs = ["en-de"]', "give pairs in the entries or source and target"),
        ("files = 3\n", "files must be a string or a list of strings"),
    ],
)
def test_mistakes_in_a_description_are_told(entry: str, remark: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=remark) as caught:
        catalog.resolve(described(tmp_path, f"[[train]]\n{entry}"), cache=tmp_path)
    assert str(caught.value).startswith(str(tmp_path / "mine.toml"))


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("", r"no \[\[train\]\] entry"),
        ("[train]\n" + GOOD, r"train must be written as \[\[train\]\]"),
        ('source = "en"\n[[train]]\n' + GOOD, "two different language codes"),
        ("[[train]]\n" + GOOD, "give pairs in the entries or source and target"),
        ('titel = "x"\n', "the corpus: titel is unknown"),
        ("[[train", "is not TOML"),
        ("\x00", "is not TOML"),
    ],
)
def test_mistakes_in_the_head_are_told(text: str, remark: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=remark):
        catalog.resolve(described(tmp_path, text, head=""), cache=tmp_path)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = '[[train]]\nfiles = "x"\nformat = "docx"\nweight = "heavy"\n[[test]]\nformat = "lines"'
    with pytest.raises(CorpusError, match=r"train 1: weight .*; train 1: format .*; test 1: give exactly one"):
        catalog.resolve(described(tmp_path, text), cache=tmp_path)


def test_a_description_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"none\.toml: cannot be read \(No such file"):
        catalog.resolve(str(tmp_path / "none.toml"))


def test_every_shipped_fact_names_its_source() -> None:
    for path in SHIPPED:
        text = path.read_text()
        facts = {key for entry in tomllib.loads(text)["train"] for key in entry} & {"size", "sha256", "md5"}
        assert text.startswith("#")
        assert not facts or "tensorflow/datasets" in text or "pytorch/text" in text
