"""TMX translation memories."""

import tracemalloc
from pathlib import Path

import pytest

from dragoman.corpus import xml_pairs
from dragoman.corpus.sources import Languages
from dragoman.corpus.tmx import read_tmx
from dragoman.errors import CorpusError

EN_DE = Languages("en", "de")


def tmx(*units: str, before: str = "") -> str:
    return f'{before}<tmx version="1.4"><header srclang="en"/><body>\n' + "\n".join(units) + "\n</body></tmx>\n"


def unit(**segments: str) -> str:
    return "<tu>" + "".join(f'<tuv xml:lang="{c}"><seg>{s}</seg></tuv>' for c, s in segments.items()) + "</tu>"


def saved(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pairs_of_tmx(folder: Path, content: str | bytes, languages: Languages = EN_DE) -> list[tuple[bytes, bytes]]:
    return list(read_tmx(saved(folder / "memory.tmx", content), languages))


def test_languages_match_regardless_of_case_and_region(tmp_path: Path) -> None:
    content = tmx('<tu><tuv lang="DE-at"><seg>b</seg></tuv><tuv xml:lang="EN_US"><seg>a</seg></tuv></tu>')
    assert pairs_of_tmx(tmp_path, content) == [(b"a", b"b")]


def test_regions_must_match_if_the_sides_differ_only_in_their_region(tmp_path: Path) -> None:
    content = tmx(
        '<tu><tuv xml:lang="pt-PT"><seg>autocarro</seg></tuv><tuv xml:lang="pt-BR"><seg>ônibus</seg></tuv></tu>'
    )
    assert pairs_of_tmx(tmp_path, content, Languages("pt-br", "pt-pt")) == [("ônibus".encode(), b"autocarro")]


def test_the_first_variant_of_a_language_is_used_and_incomplete_units_are_skipped(tmp_path: Path) -> None:
    two = unit(en="1", de="3").replace("</tu>", '<tuv xml:lang="en"><seg>2</seg></tuv></tu>')
    assert pairs_of_tmx(tmp_path, tmx(unit(en="only"), two, unit(fr="x", de="y"))) == [(b"1", b"3")]


def test_inline_codes_are_removed_and_highlighted_text_is_kept(tmp_path: Path) -> None:
    source = (
        'Click <bpt i="1">&lt;b&gt;</bpt><hi type="x">here</hi><ept i="1">&lt;/b&gt;</ept>, <ph>{0}</ph>please<it/>.'
    )
    content = tmx(unit(en=source, de="Bitte <ph>a<sub>Fußnote<ph>x</ph></sub>b</ph>hier"))
    assert pairs_of_tmx(tmp_path, content) == [(b"Click here, please.", "Bitte  Fußnote hier".encode())]


def test_line_breaks_within_a_segment_become_a_space(tmp_path: Path) -> None:
    assert pairs_of_tmx(tmp_path, tmx(unit(en="\n  two\n    lines\n", de="a&#10;b<!-- no --> c"))) == [
        (b"two lines", b"a b c"),
    ]


def test_notes_and_properties_are_ignored(tmp_path: Path) -> None:
    content = tmx(
        '<tu tuid="1"><note>n</note><prop type="x">p</prop><tuv xml:lang="en"><prop type="y">q</prop><seg>a</seg></tuv>'
        '<tuv xml:lang="de"><seg>b</seg></tuv></tu>'
    )
    assert pairs_of_tmx(tmp_path, content) == [(b"a", b"b")]


def test_utf16_files_are_read(tmp_path: Path) -> None:
    content = tmx(unit(en="a", de="ö"), before='<?xml version="1.0" encoding="UTF-16"?>').encode("utf-16")
    assert pairs_of_tmx(tmp_path, content) == [(b"a", "ö".encode())]


def test_wrong_languages_list_the_languages_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(
        CorpusError, match=r"wrong languages: .* both en and de: choose two of fr-CA, it with --languages"
    ) as caught:
        pairs_of_tmx(tmp_path, tmx(*[unit(**{"fr-CA": "a", "it": "b"})] * 3))
    assert caught.value.path == tmp_path / "memory.tmx"


def test_xml_without_translation_units_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no translation units"):
        pairs_of_tmx(tmp_path, "<html/>")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (tmx(unit(en="a", de="b"), "<tu><tuv></tu>"), 3),
        (tmx(unit(en="a", de="b"), unit(en="a & b", de="c")), 3),
        (tmx(unit(en="a", de="b"))[:-9], 3),
        ("plain text", 1),
        (b"<tmx>\n\n\xff</tmx>", 3),
        ("", 1),
    ],
)
def test_broken_xml_is_reported_with_its_line_after_the_pairs_before_it(
    content: str | bytes, line: int, tmp_path: Path
) -> None:
    path = saved(tmp_path / "memory.tmx", content)
    pairs = read_tmx(path, EN_DE)
    if "<tu>" in str(content):
        assert next(pairs) == (b"a", b"b")
    with pytest.raises(CorpusError, match="not well-formed") as caught:
        next(pairs)
    assert (caught.value.path, caught.value.line) == (path, line)


def test_external_entities_and_dtds_are_not_read(tmp_path: Path) -> None:
    secret = saved(tmp_path / "secret.txt", "secret")
    dtd = saved(tmp_path / "tmx14.dtd", '<!ENTITY word "from the dtd">')
    before = f'<!DOCTYPE tmx SYSTEM "{dtd.as_uri()}" [<!ENTITY file SYSTEM "{secret.as_uri()}">]>'
    for entity in ("file", "word"):
        try:
            got = pairs_of_tmx(tmp_path, tmx(unit(en=f"a &{entity};", de="b"), before=before))
        except CorpusError:
            continue
        assert got == [(b"a ", b"b")]


def test_entity_expansion_attacks_are_rejected(tmp_path: Path) -> None:
    levels = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
    before = f'<!DOCTYPE tmx [<!ENTITY e0 "0123456789">{levels}]>'
    with pytest.raises(CorpusError):
        pairs_of_tmx(tmp_path, tmx(unit(en="&e9;", de="b"), before=before))


def test_memory_use_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "memory.tmx", tmx(*[unit(en="a sentence " * 5, de="ein Satz " * 5)] * 15_000))
    tracemalloc.start()
    count = sum(1 for _ in read_tmx(path, EN_DE))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 15_000
    assert peak < path.stat().st_size


def test_a_very_long_segment_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_pairs, "MAX_LINE_BYTES", 1 << 10)
    with pytest.raises(CorpusError, match="a segment is longer"):
        pairs_of_tmx(tmp_path, tmx(unit(en="a" * 5000, de="b")))
