"""Random damage to documents: bytes of the file, or of the texts in an archive."""

import copy
import io
import random
import zipfile

from lxml import etree

from benchmarks.document_structure import TRANSLATED_PARTS

_PIECES = (
    b"<", b">", b"</", b"/>", b"&", b"&#0;", b'"', b"\0", b"\xff", b"\r\n", b"\n\n", b"|", b"[", b"](", b"*", b"`",
    b"-->", b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"<!--", b"<w:p>", b"</w:r>", b"<w:tab/>", b"<g id='1'>", b"{\\an8}",
    b"<i>", b"# ", b"> ", b"- ", b"\xf0\x9f\x90\xaa", b"\xe2\x80\xa8", b'msgid "', b"00:00:01,000 --> 00:00:02,000\n",
)  # fmt: skip


def damage(content: bytes, seed: int) -> bytes:
    """The document with one to eight random changes."""
    chance = random.Random(seed)
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return _damage_part(content, chance)
    if chance.random() < 0.2:
        return _damage_bytes(content, chance)
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as damaged:
        for entry in archive.infolist():
            part = archive.read(entry)
            if chance.random() < (0.4 if TRANSLATED_PARTS.fullmatch(entry.filename) else 0.01):
                part = _damage_part(part, chance)
            if chance.random() > 0.005:
                damaged.writestr(entry.filename, part)
    return result.getvalue()


def _damage_part(content: bytes, chance: random.Random) -> bytes:
    is_xml = content.startswith(b"<?xml")
    return _damage_elements(content, chance) if is_xml and chance.random() < 0.7 else _damage_bytes(content, chance)


def _damage_bytes(content: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 8)):
        place = chance.randint(0, len(content))
        end = min(len(content), place + chance.choice((0, 1, 2, 20, 200)))
        new = chance.choice((b"", chance.choice(_PIECES), content[place:end] * 2, bytes([chance.randrange(256)])))
        content = content[:place] + new + content[end:]
    return content


def _damage_elements(content: bytes, chance: random.Random) -> bytes:
    """Move, double, rename or remove elements and change their texts, so that the XML stays well-formed."""
    root = etree.fromstring(content)
    for _ in range(chance.randint(1, 8)):
        elements = [element for element in root.iter("*") if element is not root]
        if not elements:
            break
        chosen, other = chance.choice(elements), chance.choice(elements)
        kind = chance.randrange(6)
        if kind == 0:
            chosen.getparent().remove(chosen)
        elif kind == 1:
            other.insert(chance.randint(0, len(other)), copy.deepcopy(chosen))
        elif kind == 2 and other not in chosen.iter():
            other.append(chosen)
        elif kind == 3:
            chosen.tag = other.tag
        elif kind == 4:
            chosen.text, chosen.tail = "Some text ", " and more"
        else:
            chosen.attrib.clear()
    return bytes(etree.tostring(root))
