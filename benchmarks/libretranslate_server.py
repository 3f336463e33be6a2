"""Starts LibreTranslate in its own environment, with models that were installed before and nothing to download.

Its sentence splitter needs models of its own from the internet. Without them each text is one sentence, which changes
no status and no key of an answer. Run by `benchmarks.libretranslate` with the interpreter of that environment.
"""

from argostranslate import sbd, translate


class WholeTexts:
    """Stands in for the sentence splitter."""

    def __init__(self, _: object) -> None:
        pass

    def split_sentences(self, text: str) -> list[str]:
        return [text]


for module in (sbd, translate):
    module.MiniSBDSentencizer = WholeTexts

from libretranslate.main import main  # noqa: E402 (imports the splitter)

main()
