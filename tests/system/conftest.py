"""What system tests share."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from .browser import CHROMIUM


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()
