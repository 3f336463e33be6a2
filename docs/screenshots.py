"""Makes the pictures of the README. Each option makes one of them:

    python docs/screenshots.py --model models/en-de     # docs/images/translate-page.png
    python docs/screenshots.py --run runs/base          # docs/images/report.png
    python docs/screenshots.py --demo-log demo.log      # docs/demo.svg, from `dragoman demo > demo.log`

The first two need Chromium and Playwright.
"""

import argparse
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright
from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
TRANSLATE_PAGE, REPORT, DEMO = DOCS / "images/translate-page.png", DOCS / "images/report.png", DOCS / "demo.svg"
SIZE = {"width": 1200, "height": 700}
# In the vocabulary of the demo corpus, so that the model of `dragoman demo` translates it well.
SOURCE_TEXT = """\
The old teacher reads a long letter in the garden. Last summer the journalist cycled to the airport because he was \
hungry. Where did the gardener find the old suitcase?

On 28 December 2012 the young artist painted the lake. My scarf costs 95.99 euros. Next month they would like to fly \
to Rome."""
TERMINAL_COLUMNS = 100
HEADING = re.compile(r"(\d\. \w+)(  dragoman .*)")
PROGRESS = re.compile(r"step |Cleaning|Dropping|Counting|Training the|Encoding|Writing|Translating")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="model to serve for the picture of the translate page")
    parser.add_argument("--run", type=Path, help="run whose report is shown")
    parser.add_argument("--demo-log", type=Path, help="output of `dragoman demo`")
    parser.add_argument("--text", default=SOURCE_TEXT, help="text on the translate page")
    options = parser.parse_args()
    TRANSLATE_PAGE.parent.mkdir(exist_ok=True)
    if options.model:
        with serve(options.model) as url, open_page() as page:
            capture_translate_page(page, url, options.text)
    if options.run:
        with tempfile.TemporaryDirectory() as folder, open_page() as page:
            capture_report(page, options.run, Path(folder, "report.html"))
    if options.demo_log:
        draw_demo(options.demo_log)


@contextmanager
def serve(model: Path) -> Iterator[str]:
    """URL of a running server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "dragoman", "serve", str(model), "--port", str(port)])
    try:
        while server.poll() is None:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def open_page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser.new_page(viewport=SIZE, locale="en-GB", color_scheme="light")
        browser.close()


def capture_translate_page(page: Page, url: str, text: str) -> None:
    page.goto(url)
    page.get_by_label("Highlight uncertain words").check()
    page.get_by_role("textbox", name="Text to translate").fill(text)
    expect(page.locator("#status")).to_contain_text(" ms by ", timeout=30_000)
    page.mouse.move(0, 0)  # off the checkbox, which would be shown as hovered
    page.screenshot(path=TRANSLATE_PAGE)


def capture_report(page: Page, run: Path, report: Path) -> None:
    subprocess.run([sys.executable, "-m", "dragoman", "report", str(run), "--out", str(report)], check=True)
    page.goto(report.resolve().as_uri())
    page.screenshot(path=REPORT)


def draw_demo(log: Path) -> None:
    """Draw the demo's output as a terminal, without its progress lines."""
    with Path("/dev/null").open("w") as devnull:
        console = Console(record=True, width=TERMINAL_COLUMNS, file=devnull, force_terminal=True)
        for line in log.read_text().splitlines():
            if PROGRESS.match(line):
                continue
            heading = HEADING.fullmatch(line)
            console.print(Text.assemble((heading[1], "bold cyan"), (heading[2], "dim")) if heading else Text(line))
        svg = console.export_svg(title="dragoman demo")
    # Without web fonts: the picture must not load anything.
    DEMO.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
