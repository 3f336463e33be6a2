"""The parser of Markdown: CommonMark with tables and strikethrough, and with the marks of tasks and footnotes, which it
leaves out of the text."""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.paragraph import paragraph
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline

FOOTNOTE = "footnote"
"""Type of the inline tokens of references to footnotes. Their markup is the reference."""
_REFERENCE = re.compile(r"\[\^[^\s\[\]]+\](?!\()")
_DEFINITION = re.compile(r"\[\^[^\s\[\]]+\]:\s*")
_TASK = re.compile(r"\[[ xX]\](?:\s+|\Z)")


def make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    parser.block.ruler.before("reference", "footnote", _read_definition, {"alt": ["paragraph", "reference"]})
    parser.core.ruler.before("inline", "block_marks", _cut_block_marks)
    parser.inline.ruler.before("link", FOOTNOTE, _read_reference)
    return parser


def _read_definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A footnote is a paragraph: it ends the one before it, and is no address of a link."""
    if state.is_code_block(start) or not _DEFINITION.match(state.src, state.bMarks[start] + state.tShift[start]):
        return False
    return silent or paragraph(state, start, end, silent)


def _cut_block_marks(state: StateCore) -> None:
    """Cut off marks of tasks and footnotes at the start of paragraphs, so that they stay as they are."""
    before = kind = ""
    for token in state.tokens:
        if kind == "paragraph_open" and token.map is not None:
            is_item = before == "list_item_open"
            mark = _DEFINITION.match(token.content) or (is_item and _TASK.match(token.content))
            if mark:
                token.content = token.content[mark.end() :]
                token.map = [token.map[0] + mark.group().count("\n"), token.map[1]]
        before, kind = kind, token.type


def _read_reference(state: StateInline, silent: bool) -> bool:
    mark = _REFERENCE.match(state.src, state.pos)
    if mark is None:
        return False
    if not silent:
        state.push(FOOTNOTE, "", 0).markup = mark.group()
    state.pos = mark.end()
    return True
