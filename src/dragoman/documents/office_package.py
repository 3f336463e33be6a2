"""Parts of Office Open XML packages by their content types."""

from collections.abc import Iterable, Sequence

from lxml import etree

from dragoman.documents.document import UnreadableError
from dragoman.documents.xml_content import parse_xml
from dragoman.documents.zip_package import ZipPackage

CONTENT_TYPES = "[Content_Types].xml"


def find_parts(package: ZipPackage, language: str, kinds: Sequence[str]) -> list[str]:
    """Names of the parts of these kinds, in the order in which the package lists them."""
    if CONTENT_TYPES not in package.names:
        raise UnreadableError("The file is not an Office document: check its extension.")
    types = tuple(f"{language}.{kind}+xml" for kind in kinds)
    names = dict.fromkeys(
        override.get("PartName", "").lstrip("/")
        for override in parse_xml(package.read(CONTENT_TYPES), CONTENT_TYPES).iter("{*}Override")
        if override.get("ContentType", "").endswith(types)
    )
    return [name for name in names if name in package.names]


def parse_parts(package: ZipPackage, names: Iterable[str]) -> dict[str, etree._Element]:
    return {name: parse_xml(package.read(name), name) for name in names}
