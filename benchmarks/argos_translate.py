"""Argos Translate with an exported package against `dragoman translate` with the same model: share of equal texts.

Installs Argos Translate in a virtual environment of its own, exports the model as a package and for CTranslate2, both
in int8, and translates the same sentences with both. Argos' sentence splitter and stanza (with torch) are left out:
one downloads models, the other is only imported. Each line counts as one sentence, as in `dragoman translate`.

    python -m benchmarks.argos_translate MODEL [--sentences 1000]
"""

import importlib.metadata
import json
import os
import subprocess
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

import sacrebleu

import dragoman
from benchmarks.command_line import make_parser, run_dragoman
from benchmarks.corpora import MULTI30K, read_split
from benchmarks.reporting import Figure, print_figures
from dragoman.corpus.download_cache import cache_root

PACKAGE = "argostranslate==1.11.0"
CLIENT = """
import json, sys
from argostranslate import package, translate
package.install_from_path(sys.argv[1])
class Lines:
    def split_sentences(self, text):
        return [text]
lines = json.load(sys.stdin)
translation = translate.get_translation_from_codes("en", "de")
translation.underlying.sentencizer = Lines()
json.dump([translation.translate(line) for line in lines], sys.stdout)
"""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", type=Path, help="run, checkpoint or model folder, English to German")
    parser.add_argument("--sentences", type=int, default=1000, help="sentences of Multi30k's test2016")
    options = parser.parse_args()
    sources, references = (side[: options.sentences] for side in read_split(MULTI30K, "test2016"))
    print(f"{PACKAGE} against Dragoman {dragoman.__version__}, {len(sources)} sentences of Multi30k test2016, int8")
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.model, sources, references)
        print_figures("argos_translate", figures, sentences=len(sources), argos=PACKAGE)


def measure(folder: Path, model: Path, sources: Sequence[str], references: Sequence[str]) -> Iterator[Figure]:
    package, exported = folder / "en_de.argosmodel", folder / "exported"
    run_dragoman("export", model, "--to", "argos", "--out", package)
    run_dragoman("export", model, "--to", "ctranslate2", "--out", exported)
    python = install()
    for beam, target in ((1, "100 %"), (4, "")):
        theirs = translate_with_argos(python, package, sources, beam, folder / f"home-{beam}")
        ours = dragoman.load(exported, "cpu", beam=beam).translate(sources)
        share = sum(map(str.__eq__, theirs, ours)) / len(sources)
        yield Figure(f"equal texts, beam {beam}", f"{share:.1%}", target, share)
        scores = [sacrebleu.corpus_bleu(texts, [references]).score for texts in (theirs, ours)]
        yield Figure(f"BLEU of Argos; of Dragoman, beam {beam}", "; ".join(f"{s:.2f}" for s in scores), "", scores)


def install() -> Path:
    """Create the virtual environment of Argos Translate, if it does not exist yet. Returns its Python."""
    folder = cache_root() / "peers" / "argostranslate"
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not (stamp.is_file() and stamp.read_text() == PACKAGE):
        venv.create(folder, with_pip=True, symlinks=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        runtime = f"ctranslate2=={importlib.metadata.version('ctranslate2')}"
        subprocess.run([*pip, runtime, "sentencepiece<0.3", "packaging", "minisbd"], check=True)
        subprocess.run([*pip, "--no-deps", PACKAGE], check=True)
        next(folder.glob("lib/python*/site-packages")).joinpath("stanza.py").touch()
        stamp.write_text(PACKAGE)
    return python


def translate_with_argos(python: Path, package: Path, sources: Sequence[str], beam: int, home: Path) -> list[str]:
    """Install the package in an empty home folder, and translate line by line."""
    environment = {**os.environ, "HOME": str(home), "ARGOS_BEAM_SIZE": str(beam)}
    environment = {name: value for name, value in environment.items() if not name.startswith("XDG_")}
    command = [python, "-c", CLIENT, package]
    client = subprocess.run(
        command, input=json.dumps(list(sources)), stdout=subprocess.PIPE, text=True, env=environment, check=True
    )
    translations: list[str] = json.loads(client.stdout)
    return translations


if __name__ == "__main__":
    main()
