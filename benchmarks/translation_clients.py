"""Real clients of LibreTranslate, in Python and JavaScript, and requests as Mastodon and Discourse send them.

The packages are installed into a folder of their own beside those of the project, when they are first needed.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dragoman.files import locked

FOLDER = Path(sys.prefix) / "clients"
PYTHON_PACKAGES = (
    "argostranslate==1.11.0", "translatehtml==1.5.3", "libretranslatepy==2.1.4",
    # What argostranslate imports, beside packages that this project has: without its models none of it is used.
    "stanza==1.10.1", "minisbd==0.9.5", "sacremoses==0.1.1", "onnxruntime", "flatbuffers", "emoji", "beautifulsoup4",
    "soupsieve",
)  # fmt: skip
NODE_PACKAGES = ("translate@3.1.0", "libretranslate@1.0.1", "libretranslate-ts@0.5.12")
TIMEOUT_S = 120


class NotInstalledError(Exception):
    """The packages of a client cannot be installed here. The message gives the reason."""


@dataclass(frozen=True)
class Question:
    """What each client asks a server for: the languages, the language of a text, and its translation."""

    url: str
    text: str
    key: str | None = None
    source: str = "en"
    target: str = "de"

    def as_json(self) -> str:
        return json.dumps(self.__dict__)


Answers = dict[str, Any]
"""`languages` (codes), `detected` (a code) and `translation`: those that a client asks for."""

_PYTHON_PRELUDE = "import json, sys; ask = json.loads(sys.argv[1])\n"
_LIBRETRANSLATEPY = """
from libretranslatepy import LibreTranslateAPI
client = LibreTranslateAPI(ask["url"], ask["key"])
print(json.dumps({
    "languages": [language["code"] for language in client.languages()],
    "detected": client.detect(ask["text"])[0]["language"],
    "translation": client.translate(ask["text"], ask["source"], ask["target"]),
}))
"""
_ARGOSTRANSLATE = """
from argostranslate.apis import LibreTranslateAPI
client = LibreTranslateAPI(ask["url"], ask["key"])
print(json.dumps({
    "languages": [language["code"] for language in client.languages()],
    "detected": client.detect(ask["text"])[0]["language"],
    "translation": client.translate(ask["text"], ask["source"], ask["target"]),
}))
"""
_ARGOSTRANSLATE_LANGUAGES = """
from argostranslate.apis import LibreTranslateAPI
LibreTranslateAPI.DEFAULT_URL = ask["url"]
from argostranslate import translate
languages = {language.code: language for language in translate.get_installed_languages()}
translation = languages[ask["source"]].get_translation(languages[ask["target"]])
print(json.dumps({"languages": list(languages), "translation": translation.translate(ask["text"])}))
"""
_TRANSLATEHTML = """
from argostranslate.apis import LibreTranslateAPI
LibreTranslateAPI.DEFAULT_URL = ask["url"]
from argostranslate import translate
from translatehtml import translate_html
languages = {language.code: language for language in translate.get_installed_languages()}
translation = languages[ask["source"]].get_translation(languages[ask["target"]])
print(json.dumps({"translation": str(translate_html(translation, ask["text"]))}))
"""
_NODE_PRELUDE = "const ask = JSON.parse(process.argv[2]);\n"
_TRANSLATE = """
import translate from "translate";
Object.assign(translate, { engine: "libre", url: `${ask.url}/translate`, key: ask.key ?? undefined, from: ask.source });
console.log(JSON.stringify({ translation: await translate(ask.text, ask.target) }));
"""
_LIBRETRANSLATE = """
import client from "libretranslate";
const translation = await client.translate(
  { query: ask.text, source: ask.source, target: ask.target, apiurl: ask.url });
console.log(JSON.stringify({ translation }));
"""
_LIBRETRANSLATE_TS = """
import { libreTranslate } from "libretranslate-ts";
libreTranslate.setApiEndpoint(ask.url);
libreTranslate.setApiKey(ask.key ?? "");
const languages = (await libreTranslate.listLanguages()).map((language) => language.code);
const detected = (await libreTranslate.detect(ask.text)).language;
const translation = (await libreTranslate.translate(ask.text, ask.source, ask.target)).translatedText;
console.log(JSON.stringify({ languages, detected, translation }));
"""


def python_packages() -> Path:
    """Folder of the Python clients."""
    return _install("python", PYTHON_PACKAGES, _install_python)


def node_packages() -> Path:
    """Folder of the JavaScript clients."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise NotInstalledError("no node and npm")
    return _install("node", NODE_PACKAGES, _install_node)


def _install(name: str, packages: tuple[str, ...], install: Callable[[Path, tuple[str, ...]], None]) -> Path:
    folder = FOLDER / name
    stamp = folder / "installed.txt"
    FOLDER.mkdir(exist_ok=True)
    with locked(FOLDER):
        if not stamp.is_file() or stamp.read_text().split() != list(packages):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(folder, packages)
            stamp.write_text("\n".join(packages))
    return folder


def _install_python(folder: Path, packages: tuple[str, ...]) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*pip, "--target", str(folder), *packages])


def _install_node(folder: Path, packages: tuple[str, ...]) -> None:
    """Unpack the packages alone: they need no others, though one of them names its compiler."""
    for package in packages:
        _run(["npm", "pack", "--silent", package], folder)
        name, _, version = package.partition("@")
        with tarfile.open(folder / f"{name}-{version}.tgz") as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (folder / "unpacked" / "package").rename(folder / name)
    (folder / "unpacked").rmdir()
    modules = folder / "node_modules"
    modules.mkdir()
    for package in packages:
        name = package.partition("@")[0]
        (folder / name).rename(modules / name)


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise NotInstalledError(f"{' '.join(command[:4])} failed: {' '.join(reason)}")


def _ask_with_python(script: str, question: Question) -> Answers:
    packages = python_packages()
    environment = {
        **os.environ, "PYTHONPATH": str(packages), "ARGOS_MODEL_PROVIDER": "LIBRETRANSLATE", "OMP_NUM_THREADS": "1",
        "HOME": str(packages),  # argostranslate makes folders there.
    }  # fmt: skip
    return _answers([sys.executable, "-c", _PYTHON_PRELUDE + script, question.as_json()], environment)


def _ask_with_node(script: str, question: Question) -> Answers:
    path = node_packages() / f"ask-{abs(hash(script))}-{os.getpid()}.mjs"
    path.write_text(_NODE_PRELUDE + script)
    try:
        return _answers(["node", str(path), question.as_json()], dict(os.environ))
    finally:
        path.unlink()


def _answers(command: list[str], environment: dict[str, str]) -> Answers:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answers: Answers = json.loads(done.stdout.strip().splitlines()[-1])
    return answers


def _ask_as_mastodon(question: Question) -> Answers:
    """As its app/lib/translation_service/libre_translate.rb: a list of HTML texts as JSON, null where it has no key."""
    headers = {"content-type": "application/json", "user-agent": "Mastodon/4.4.0 (http.rb/5.3.1; +https://a.example/)"}
    with httpx.Client(base_url=question.url, headers=headers, timeout=TIMEOUT_S) as client:
        languages = client.get("/languages").raise_for_status().json()
        body = {
            "q": [question.text], "source": question.source or "auto", "target": question.target, "format": "html",
            "api_key": question.key,
        }  # fmt: skip
        answer = client.post("/translate", json=body).raise_for_status().json()
    targets = {language["code"]: set(language["targets"]) - {language["code"]} for language in languages}
    if question.target not in targets[question.source]:
        raise RuntimeError(f"{question.target} is no target of {question.source}")
    return {"languages": list(targets), "translation": answer["translatedText"][0]}


def _ask_as_discourse(question: Question) -> Answers:
    """As its discourse_translator/provider/libre_translate.rb: URL-encoded forms with an empty key, and HTML."""
    with httpx.Client(base_url=question.url, headers={"user-agent": "excon/1.2.5"}, timeout=TIMEOUT_S) as client:
        key = {"api_key": question.key or ""}
        detections = client.post("/detect", data={"q": question.text, **key}).raise_for_status().json()
        languages = client.get("/languages").raise_for_status().json()
        form = {"q": question.text, "source": question.source, "target": question.target, "format": "html", **key}
        answer = client.post("/translate", data=form).raise_for_status().json()
    return {
        "languages": [language["code"] for language in languages],
        "detected": detections[0]["language"],
        "translation": answer["translatedText"],
    }


CLIENTS: dict[str, Callable[[Question], Answers]] = {
    "libretranslatepy": lambda question: _ask_with_python(_LIBRETRANSLATEPY, question),
    "argostranslate": lambda question: _ask_with_python(_ARGOSTRANSLATE, question),
    "argostranslate, remote languages": lambda question: _ask_with_python(_ARGOSTRANSLATE_LANGUAGES, question),
    "translatehtml": lambda question: _ask_with_python(_TRANSLATEHTML, question),
    "npm translate": lambda question: _ask_with_node(_TRANSLATE, question),
    "npm libretranslate": lambda question: _ask_with_node(_LIBRETRANSLATE, question),
    "npm libretranslate-ts": lambda question: _ask_with_node(_LIBRETRANSLATE_TS, question),
}
"""Clients that send plain text."""
HTML_CLIENTS: dict[str, Callable[[Question], Answers]] = {"Mastodon": _ask_as_mastodon, "Discourse": _ask_as_discourse}
"""Clients that send HTML."""
KEYLESS_CLIENTS = frozenset({"argostranslate, remote languages", "translatehtml", "npm libretranslate"})
"""Clients that send no API key that LibreTranslate or this server knows."""
