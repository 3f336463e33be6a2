"""Parsing and writing XML of documents, which may be hostile."""

import re

from lxml import etree

from dragoman.documents.document import UnreadableError

XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
# Characters that XML does not allow. Models can generate any character.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_xml(content: bytes, name: str = "The file") -> etree._Element:
    """The root of a document. Neither entities nor DTDs nor extreme depths are accepted, and nothing is loaded."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        # The parser quotes what it does not understand.
        reason = " ".join((getattr(error, "msg", None) or "no XML at all").partition(", line")[0].split())[:100]
        raise UnreadableError(f"{name} is not well-formed XML ({reason}): export it again.") from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise UnreadableError(f"{name} has a document type definition, which is not accepted: remove it.")
    return root


def write_xml(root: etree._Element) -> bytes:
    """The document as UTF-8."""
    # Without a declaration of its own, a document may claim to be either.
    standalone = root.getroottree().docinfo.standalone or None
    return bytes(etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8", standalone=standalone))


def allowed_text(text: str) -> str:
    """Text with the characters replaced that XML does not allow."""
    return _NOT_XML.sub("\ufffd", text)


def local_name(element: etree._Element) -> str:
    """Name without its namespace; empty for comments and processing instructions."""
    return str(element.tag).rpartition("}")[2] if isinstance(element.tag, str) else ""


def namespace_of(element: etree._Element) -> str:
    return str(element.tag).rpartition("}")[0].removeprefix("{") if isinstance(element.tag, str) else ""
