"""A real browser, for tests of the web pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed; .ci/system-packages installs it"
)
NARROW = {"width": 360, "height": 740}
expect.set_options(timeout=30_000)  # Tests must also pass on a busy machine.


@contextmanager
def opened_page(browser: Browser, **options: Any) -> Iterator[Page]:
    """Open a new page. Fails if an error was logged to its console."""
    context = browser.new_context(locale="en-GB", **options)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    assert problems == []
