"""The translate page in a real browser."""

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path

import docx
import pytest
from benchmarks.sample_documents import MARKDOWN, make_docx
from playwright.sync_api import Browser, Download, Page, Route, expect

from dragoman.serving.api_keys import create_api_key

from ..models import LINES
from ..serving.conftest import copy_with_direction, exports  # noqa: F401 (a fixture)
from .browser import NARROW, needs_chromium, opened_page
from .test_serving import Server, wait_until

pytestmark = [pytest.mark.system, needs_chromium]
WIDE = {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def server(exports: list[Path]) -> Iterator[Server]:  # noqa: F811
    running = Server(*map(str, exports))
    yield running
    running.stop()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    with opened_page(browser, viewport=WIDE, permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.goto(server.url)
        expect(opened.locator("#target-language")).to_have_value("de")
        yield opened


def type_and_wait(page: Page, text: str) -> str:
    page.locator("#source").fill(text)
    expect(page.locator("#status")).to_contain_text(" ms by en-de")
    return page.locator("#target").inner_text()


def test_text_is_translated_while_it_is_typed(page: Page) -> None:
    page.locator("#source").press_sequentially(LINES[0], delay=5)
    expect(page.locator("#status")).to_have_text(re.compile(rf"^{len(LINES[0].split())} words in \d+ ms by en-de$"))
    expect(page.locator(".sentence")).to_have_count(1)
    expect(page.locator("#count")).to_have_text(f"{len(LINES[0])} / 20,000")


def test_text_is_translated_that_was_typed_before_the_page_was_ready(browser: Browser, server: Server) -> None:
    with opened_page(browser) as page:
        waiting: list[Route] = []
        # A lambda, since Playwright sets attributes of the handler.
        page.route("**/frontend/settings", lambda route: waiting.append(route))  # noqa: PLW0108
        page.goto(server.url)
        wait_until(lambda: page.evaluate("1") and bool(waiting))  # Playwright calls the handler during a call.
        page.locator("#source").fill(LINES[0])
        page.keyboard.press("Control+Enter")
        page.keyboard.press("Alt+KeyS")
        waiting[0].continue_()
        expect(page.locator("#status")).to_contain_text(" ms by en-de")


def test_paragraphs_and_sentences_are_preserved(page: Page) -> None:
    shown = type_and_wait(page, f"{LINES[0]} {LINES[1]}\n\n{LINES[2]}")
    expect(page.locator(".sentence")).to_have_count(3)
    assert shown.count("\n\n") == 1


def test_text_is_never_inserted_as_html(page: Page) -> None:
    type_and_wait(page, "<img src=x onerror=alert(1)> <b>Hello</b>")
    expect(page.locator("#target img, #target b")).to_have_count(0)
    assert "<b>" in page.locator("#target").inner_text()


def test_a_click_on_a_sentence_offers_alternatives(page: Page) -> None:
    before = type_and_wait(page, f"{LINES[0]} {LINES[1]}")
    page.locator(".sentence").first.click()
    options = page.get_by_role("listbox").get_by_role("option")
    expect(options.first).to_have_attribute("aria-selected", "true")
    wanted = options.nth(1).inner_text()
    options.nth(1).click()
    expect(page.get_by_role("listbox")).to_be_hidden()
    expect(page.locator(".sentence").first).to_have_text(wanted)
    assert page.locator("#target").inner_text() != before


def test_the_page_works_with_the_keyboard_alone(page: Page) -> None:
    type_and_wait(page, LINES[0])
    page.locator(".sentence").first.focus()
    page.keyboard.press("Enter")
    options = page.get_by_role("listbox").get_by_role("option")
    expect(options.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    wanted = options.nth(1).inner_text()
    page.keyboard.press("Enter")
    expect(page.locator(".sentence").first).to_have_text(wanted)
    expect(page.locator(".sentence").first).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    page.keyboard.press("Alt+h")
    expect(page.locator("#history")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#history")).to_be_hidden()


def test_uncertain_words_are_highlighted_on_request(page: Page) -> None:
    type_and_wait(page, " ".join(LINES[:6]))
    highlighted = page.locator("#target [class^=uncertain-]")
    expect(highlighted).to_have_count(0)
    page.get_by_label("Highlight uncertain words").check()
    expect(highlighted.first).to_be_visible()
    expect(highlighted.first).to_have_attribute("title", re.compile(r"^Confidence \d+ %$"))


def test_the_translation_can_be_copied(page: Page) -> None:
    shown = type_and_wait(page, LINES[0])
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == shown


def test_languages_can_be_swapped(page: Page) -> None:
    shown = type_and_wait(page, LINES[0])
    page.get_by_role("button", name="Swap languages").click()
    expect(page.locator("#source-language")).to_have_value("de")
    expect(page.locator("#source")).to_have_value(shown)
    expect(page.locator("#status")).to_contain_text("by de-en")
    page.reload()
    expect(page.locator("#source-language")).to_have_value("de")


def test_the_source_language_can_be_detected(page: Page) -> None:
    page.locator("#source-language").select_option("auto")
    page.locator("#source").fill("The teacher reads a long book in the garden every evening.")
    expect(page.locator("#status")).to_contain_text("Detected English.")


def test_history_is_stored_in_the_browser_and_can_be_cleared(page: Page) -> None:
    type_and_wait(page, LINES[3])
    wait_until(lambda: page.evaluate("localStorage.getItem('history')"))  # added after a pause
    page.locator("#clear").click()
    expect(page.locator("#target")).to_be_empty()
    page.get_by_role("button", name="History").click()
    page.locator("#history-list button").first.click()
    expect(page.locator("#source")).to_have_value(LINES[3])
    page.get_by_role("button", name="History").click()
    page.get_by_role("button", name="Clear history").click()
    page.get_by_role("button", name="History").click()
    expect(page.locator("#history-empty")).to_be_visible()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("note.txt", f"{LINES[0]}\n\n{LINES[1]}\n", "\n\n"),
        ("app.po", 'msgid ""\nmsgstr ""\n\nmsgid "Hello {name}"\nmsgstr ""\n', "Machine translation"),
        ("memory.tmx", '<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>A house</seg></tuv></tu></body></tmx>',
         'xml:lang="de"'),
    ],
)  # fmt: skip
def test_a_file_is_downloaded_in_its_own_format(page: Page, name: str, content: str, expected: str) -> None:
    with page.expect_download() as download:
        page.locator("#file").set_input_files({"name": name, "mimeType": "text/plain", "buffer": content.encode()})
    stem, _, extension = name.partition(".")
    assert download.value.suggested_filename == f"{stem}.de.{extension}"
    assert expected in Path(download.value.path()).read_text()
    expect(page.locator("#status")).to_contain_text("Downloaded")


def test_an_unsupported_file_is_rejected_with_one_sentence(page: Page) -> None:
    page.locator("#file").set_input_files({"name": "x.exe", "mimeType": "text/plain", "buffer": b"MZ"})
    expect(page.locator("#status.error")).to_contain_text("supported formats are .txt, .html")


def test_several_dropped_documents_are_translated_with_progress(page: Page) -> None:
    contents = {"report.docx": make_docx(), "notes.md": MARKDOWN.encode(), "bad.odt": b"PK"}
    files = [[name, base64.b64encode(content).decode()] for name, content in contents.items()]
    transfer = page.evaluate_handle(
        """(files) => {
            const transfer = new DataTransfer();
            for (const [name, content] of files) {
                const bytes = Uint8Array.from(atob(content), (byte) => byte.charCodeAt(0));
                transfer.items.add(new File([bytes], name));
            }
            return transfer;
        }""",
        files,
    )
    page.dispatch_event("body", "dragover", {"dataTransfer": transfer})
    expect(page.locator("body")).to_have_class(re.compile("dropping"))
    downloads: list[Download] = []
    page.on("download", lambda download: downloads.append(download))  # noqa: PLW0108 (playwright marks its handlers)
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    expect(page.locator("body")).not_to_have_class(re.compile("dropping"))
    rows = page.locator("#documents li")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_contain_text("The file is damaged")
    expect(rows.nth(0).get_by_role("link")).to_have_text("report.de.docx")
    expect(rows.nth(1).get_by_role("link")).to_have_text("notes.de.md")
    wait_until(lambda: page.wait_for_timeout(50) is None and len(downloads) == 2)
    translated = docx.Document(downloads[0].path())
    assert len(translated.paragraphs) == len(docx.Document(io.BytesIO(contents["report.docx"])).paragraphs)
    rows.nth(2).get_by_role("button", name="Remove").click()
    expect(rows).to_have_count(2)


def test_the_translation_of_a_document_can_be_cancelled(page: Page) -> None:
    lines = "\n".join(f"{number} {line}" for number in range(300) for line in LINES)
    page.locator("#file").set_input_files({"name": "long.txt", "mimeType": "text/plain", "buffer": lines.encode()})
    expect(page.locator("#documents progress")).to_be_visible()
    expect(page.locator("#documents .note")).to_have_text(re.compile(r"^\d+ %$"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#documents li")).to_have_count(0)
    type_and_wait(page, LINES[0])


def test_an_outdated_translation_is_greyed_out_if_the_server_fails(browser: Browser, server: Server) -> None:
    page = browser.new_page()
    page.goto(server.url)
    type_and_wait(page, LINES[0])
    page.route("**/stream", lambda route: route.abort())
    page.locator("#source").fill(LINES[1])
    expect(page.locator("#status.error")).to_contain_text("Cannot reach the server")
    expect(page.locator("#target")).to_have_class(re.compile("stale"))
    page.unroute("**/stream")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#target")).not_to_have_class(re.compile("stale"))
    page.close()


def test_the_theme_follows_the_system_or_the_button(page: Page) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.emulate_media(color_scheme="light")
    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert light != dark
    page.locator("#theme").click()
    assert background() == light
    page.reload()
    assert background() == light, "the choice is stored"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_is_wider_than_the_screen(page: Page, size: dict[str, int]) -> None:
    page.set_viewport_size(size)
    type_and_wait(page, " ".join(LINES[:8]) + " " + "x" * 300)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    for part in ("#source-language", "#swap", "#target-language", "#copy", "#history-open"):
        box = page.locator(part).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size["width"]


def test_every_control_has_an_accessible_name(page: Page) -> None:
    type_and_wait(page, LINES[0])
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, select, textarea, input")].filter((control) =>
            !(control.getAttribute("aria-label") || control.labels?.length || control.textContent.trim())
        ).map((control) => control.outerHTML)"""
    )
    assert unnamed == []
    expect(page.get_by_role("region", name="Translation")).to_have_attribute("aria-live", "polite")
    expect(page.get_by_role("textbox", name="Text to translate")).to_be_visible()


def test_a_required_api_key_is_requested(browser: Browser, exports: list[Path], tmp_path: Path) -> None:  # noqa: F811
    key = create_api_key(tmp_path / "keys", "alice")
    server = Server(str(exports[0]), "--keys", str(tmp_path / "keys"))
    try:
        page = browser.new_page()
        page.goto(server.url)
        page.get_by_label("This server requires an API key").fill("wrong")
        page.get_by_role("button", name="Use key").click()
        page.locator("#source").fill(LINES[0])
        expect(page.locator("#status.error")).to_contain_text("Unknown API key")
        page.get_by_label("This server requires an API key").fill(key)
        page.get_by_role("button", name="Use key").click()
        expect(page.locator("#status")).to_contain_text(" ms by en-de")
        page.close()
    finally:
        server.stop()


def test_the_page_says_which_language_it_translates_through(
    browser: Browser,
    exports: list[Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    server = Server(str(exports[0]), str(copy_with_direction(exports[0], tmp_path, "de-fr")))
    try:
        page = browser.new_page(locale="en-GB")
        page.goto(server.url)
        page.locator("#target-language").select_option("fr")
        page.locator("#source").fill(LINES[0])
        expect(page.locator("#status")).to_contain_text(" ms by en-de+de-fr, via German")
        page.close()
    finally:
        server.stop()
