"""A document of each format with all that its text can contain, made by the format's own library."""

import base64
import io
from collections.abc import Callable

import docx
import pptx
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from docx.shared import RGBColor
from odf import dc, office, style, table, text
from odf.opendocument import OpenDocumentText
from pptx.util import Inches

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MARKDOWN = """---
title: The front matter stays
tags: [one, two]
---

# 1. Reading a *book* in the garden ##

The **teacher** reads `code` and a [long *book*](https://example.org/a_b "A title") today,\
 see [the notes] or ![A **blue** image](images/house.png).
This line ends hard\\
and this one does{spaces}
so too. Snake_case, 2 * 3 and \\*escaped\\* &amp; entities stay; so do <https://example.org> and <b>HTML</b>.

> A quotation with ~~struck~~ text,
> on two lines.

1. First item[^note]
2. Second item
   - [ ] An *inner* item
     that goes on
   - [x] A finished task

| Name | Meaning of \\| it |
|:-----|----:|
| house | a **building** |
| `code` | 42 |

Another heading
===============

```python
print("Code is not translated")
```

<div class="note">HTML blocks are not translated.</div>

[the notes]: https://example.org/notes 'Notes'

[^note]: The text of a footnote.
[^2]: Another one, on the
    next line.
""".replace("{spaces}", "  ")
HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>A title</title><style>p { color: red }</style></head>
<body><h1>A heading</h1>
<p class="a">The <b>teacher</b> reads a <a href="https://example.org?a=1&amp;b=2">long <i>book</i></a> &amp; more.<br>
<img src="a.png" alt="x"> <code>not translated</code></p>
<ul><li>First item<li>Second <em>item</em></ul>
<script>let code = "<b>not translated</b>";</script></body></html>
"""
SRT = """1
00:00:01,000 --> 00:00:03,500
{\\an8}<i>The teacher reads
a long book.</i>

2
00:00:04,000 --> 00:00:06,000 X1:40 X2:600
- Who is there?
- Only the <b>cat</b>.

3
00:00:07,000 --> 00:00:08,000
42
"""
VTT = """WEBVTT - A title

STYLE
::cue { color: yellow }

NOTE This comment stays

first
00:01.000 --> 00:03.500 align:start position:10%
<v Anna>Fish &amp; <c.red>chips</c> are
on the table.

00:04.000 --> 00:06.000
- Who is there?
- <i>Only</i> the <00:05.000>cat.
"""
PO = """# A catalog
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: main.c:7
#, c-format
msgid "Open the file"
msgstr ""

msgid "Done"
msgstr "Fertig"

msgctxt "files"
msgid "one file"
msgid_plural "many files"
msgstr[0] ""
msgstr[1] ""
"""
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header srclang="en" datatype="plaintext" segtype="sentence" adminlang="en" o-tmf="x"
 creationtool="x" creationtoolversion="1"/><body>
<tu tuid="1"><note>stays</note>
<tuv xml:lang="en"><seg>A <bpt i="1">&lt;b&gt;</bpt>red<ept i="1">&lt;/b&gt;</ept> house<ph x="1"/></seg></tuv></tu>
<tu tuid="2"><tuv xml:lang="en"><seg>Yes</seg></tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>
</body></tmx>
"""
XLIFF_1 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a.txt" source-language="en" target-language="de" datatype="plaintext"><body>
<trans-unit id="1"><source>The <g id="1">teacher <x id="2"/> reads</g> a
 <bpt id="3">[b]</bpt>book<ept id="3">[/b]</ept>.</source><note>A note</note></trans-unit>
<trans-unit id="2" translate="no"><source>ACME</source></trans-unit>
<trans-unit id="3" approved="yes"><source>Done</source><target state="final">Fertig</target></trans-unit>
<group translate="no"><trans-unit id="4"><source>Inner</source></trans-unit></group>
<trans-unit id="5"><source>Old text</source><target state="needs-translation">Old text</target></trans-unit>
<trans-unit id="6"><source>One house. Two houses.</source><seg-source><mrk mtype="seg" mid="1">One house.</mrk>
 <mrk mtype="seg" mid="2">Two houses.</mrk></seg-source></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de"><file id="f1">
<unit id="1"><segment id="s1"><source>The <pc id="1">red <ph id="2"/>house</pc> and <sc id="3"/>more<ec startRef="3"/>.</source></segment>
<ignorable><source> </source></ignorable>
<segment id="s2"><source>A <mrk id="m1" translate="no">Name</mrk> here</source></segment></unit>
<unit id="2" translate="no"><segment><source>ACME</source></segment></unit>
<unit id="3"><segment state="final"><source>Done</source><target>Fertig</target></segment></unit>
</file></xliff>
"""  # noqa: E501


def make_docx() -> bytes:
    document = docx.Document()
    document.add_heading("A heading of the report", 1)
    paragraph = document.add_paragraph("The teacher reads ")
    paragraph.add_run("a very").bold = True
    paragraph.add_run(" long").bold = True
    paragraph.add_run(" book").font.color.rgb = RGBColor(200, 0, 0)
    paragraph.add_run(" in the garden.\tBehind a tab\nand on a new line.")
    link = document.part.relate_to("https://example.org", RELATIONSHIP_TYPE.HYPERLINK, True)
    w = nsdecls("w", "r")
    pieces = (
        f'<w:bookmarkStart {w} w:id="7" w:name="mark"/>',
        f'<w:hyperlink {w} r:id="{link}"><w:r><w:rPr><w:u w:val="single"/></w:rPr><w:t>a link</w:t></w:r>'
        "</w:hyperlink>",
        f'<w:bookmarkEnd {w} w:id="7"/>',
        f'<w:del {w} w:id="8" w:author="A"><w:r><w:delText>deleted</w:delText></w:r></w:del>',
        f'<w:ins {w} w:id="9" w:author="A"><w:r><w:t xml:space="preserve"> inserted words</w:t></w:r></w:ins>',
        f'<w:r {w}><w:fldChar w:fldCharType="begin"/></w:r>',
        f"<w:r {w}><w:instrText>DATE \\@ MMMM</w:instrText></w:r>",
        f'<w:r {w}><w:fldChar w:fldCharType="separate"/></w:r>',
        f"<w:r {w}><w:t>November</w:t></w:r>",
        f'<w:r {w}><w:fldChar w:fldCharType="end"/></w:r>',
        f'<w:fldSimple {w} w:instr="AUTHOR"><w:r><w:t>Somebody</w:t></w:r></w:fldSimple>',
        f'<m:oMath {w} xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">'
        "<m:r><m:t>energy</m:t></m:r></m:oMath>",
    )
    rich = document.add_paragraph("Here is ")
    for piece in pieces:
        rich._p.append(parse_xml(piece))
    rich.add_run().add_picture(io.BytesIO(PNG))
    rich.add_run(" at the end.")
    document.add_comment(rich.runs[0], text="A comment about it", author="B")
    grid = document.add_table(2, 2)
    grid.cell(0, 0).text = "A cell"
    grid.cell(1, 1).text = "12.5"
    document.add_paragraph("A list item", style="List Bullet")
    document.sections[0].header.paragraphs[0].text = "The header"
    document.sections[0].footer.paragraphs[0].text = "The footer"
    return _saved(document.save)


def make_pptx() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "The title of the slide"
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    for words, is_bold in (("The teacher ", False), ("reads", True), (" a book.", False)):
        run = paragraph.add_run()
        run.text, run.font.bold = words, is_bold
    paragraph.runs[1].hyperlink.address = "https://example.org"
    paragraph.add_line_break()
    paragraph.add_run().text = "A new line"
    grid = slide.shapes.add_table(2, 2, Inches(1), Inches(3), Inches(4), Inches(1)).table
    grid.cell(0, 0).text = "A cell"
    grid.cell(1, 1).text = "12.5"
    slide.shapes.add_picture(io.BytesIO(PNG), Inches(6), Inches(1))
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "In a group"
    slide.notes_slide.notes_text_frame.text = "Notes of the speaker"
    return _saved(presentation.save)


def make_odt() -> bytes:
    document = OpenDocumentText()
    bold = style.Style(name="Bold", family="text")
    bold.addElement(style.TextProperties(fontweight="bold"))
    document.automaticstyles.addElement(bold)
    document.text.addElement(text.H(outlinelevel=1, text="A heading of the report"))
    paragraph = text.P(text="The teacher reads ")
    paragraph.addElement(text.Span(stylename=bold, text="a very"))
    paragraph.addElement(text.Span(stylename=bold, text=" long"))
    paragraph.addText(" book")
    note = text.Note(noteclass="footnote")
    note.addElement(text.NoteCitation(text="1"))
    body = text.NoteBody()
    body.addElement(text.P(text="Text of a note"))
    note.addElement(body)
    paragraph.addElement(note)
    paragraph.addText(" in the garden.")
    paragraph.addElement(text.Tab())
    paragraph.addText("Behind a tab")
    paragraph.addElement(text.LineBreak())
    paragraph.addElement(text.A(href="https://example.org", text="A link"))
    paragraph.addText(" and the page ")
    paragraph.addElement(text.PageNumber())
    paragraph.addElement(text.S(c=3))
    annotation = office.Annotation()
    annotation.addElement(dc.Creator(text="Somebody"))
    annotation.addElement(text.P(text="A comment"))
    paragraph.addElement(annotation)
    document.text.addElement(paragraph)
    grid = table.Table(name="Table")
    row = table.TableRow()
    for content in ("A cell", "12.5"):
        cell = table.TableCell()
        cell.addElement(text.P(text=content))
        row.addElement(cell)
    grid.addElement(row)
    document.text.addElement(grid)
    items = text.List()
    item = text.ListItem()
    item.addElement(text.P(text="A list item"))
    items.addElement(item)
    document.text.addElement(items)
    return _saved(document.write)


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    content = io.BytesIO()
    save(content)
    return content.getvalue()


def make_documents() -> dict[str, tuple[str, bytes]]:
    """For each name of a sample its extension and content."""
    texts = {
        "text": ("txt", "The teacher reads.\r\n\r\n  A book, 42.\n"), "Markdown": ("md", MARKDOWN),
        "HTML": ("html", HTML),
        "SubRip": ("srt", SRT), "WebVTT": ("vtt", VTT), "PO": ("po", PO), "TMX": ("tmx", TMX),
        "XLIFF 1.2": ("xlf", XLIFF_1), "XLIFF 2.0": ("xliff", XLIFF_2),
    }  # fmt: skip
    return {
        **{name: (extension, content.encode()) for name, (extension, content) in texts.items()},
        "Word": ("docx", make_docx()),
        "PowerPoint": ("pptx", make_pptx()),
        "OpenDocument": ("odt", make_odt()),
    }
