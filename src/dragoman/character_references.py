"""Character references of HTML and WebVTT, such as `&amp;` and `&#8211;`."""

import html
import re

_LEADING_ZEROS = re.compile(r"(&#[xX]?)0+(?=[0-9a-fA-F])")
_NO_CHARACTER = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")
_REPLACEMENT = "\ufffd"


def decode_references(text: str) -> str:
    """The text with characters in place of references, as browsers show it. No number is too long."""
    return html.unescape(_NO_CHARACTER.sub(_REPLACEMENT, _LEADING_ZEROS.sub(r"\1", text)))
