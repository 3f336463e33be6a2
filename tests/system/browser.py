"""A real browser, for tests that look at pages as people do."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: .ci/system-packages installs it")
NARROW = {"width": 360, "height": 740}
expect.set_options(timeout=30_000)  # A busy machine is no fault of the page.


@contextmanager
def opened_page(browser: Browser, **options: Any) -> Iterator[Page]:
    """A new page, on which nothing may go wrong unseen."""
    context = browser.new_context(locale="en-GB", **options)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    assert problems == []
