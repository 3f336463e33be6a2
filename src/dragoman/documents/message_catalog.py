"""PO message catalogs of gettext."""

import re
from collections.abc import Sequence

from dragoman.corpus.gettext_catalogs import InvalidPOError, load_po
from dragoman.corpus.sources import Languages
from dragoman.documents.document import Document, UnreadableError, decode_text
from dragoman.documents.marked_text import MarkedText

PO_COMMENT = "Machine translation, not reviewed."
"""Translator comment that is added to each entry filled in."""
_PLURALS = re.compile(r"nplurals\s*=\s*(\d)")


def parse_po(content: bytes, languages: Languages) -> Document:
    """Fill in untranslated and fuzzy entries, and mark them with a comment. Existing translations stay."""
    decoded = decode_text(content)
    try:
        catalog = load_po(decoded.text.encode(), "utf-8")
    except InvalidPOError:
        raise UnreadableError("The file is not a valid PO catalog: check it with msgfmt.") from None
    plural_rule = _PLURALS.search(catalog.metadata.get("Plural-Forms", ""))
    plural_forms = int(plural_rule[1]) if plural_rule else 2
    catalog.metadata.setdefault("Language", languages.target)
    entries = [entry for entry in catalog if not entry.obsolete and (entry.fuzzy or not entry.translated())]
    texts = []
    for entry in entries:
        texts += [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]

    def render(translations: Sequence[MarkedText]) -> bytes:
        remaining = (translation.text for translation in translations)
        for entry in entries:
            singular = next(remaining)
            if entry.msgid_plural:
                plural = next(remaining)
                entry.msgstr_plural = {
                    form: singular if form == 0 and plural_forms > 1 else plural for form in range(plural_forms)
                }
            else:
                entry.msgstr = singular
            entry.tcomment = "\n".join(filter(None, [entry.tcomment, PO_COMMENT]))
        return decoded.encode(str(catalog))

    return Document([MarkedText(text) for text in texts], render)
