"""Requests to LibreTranslate's API, good and bad, with the answers of LibreTranslate 1.9.6.

The answers were recorded by `benchmarks.libretranslate`, which runs LibreTranslate itself and compares them again.
"""

from dataclasses import dataclass, field
from typing import Any

ENGLISH = "The teacher reads a very long book in the garden this evening."
GERMAN = "Der Lehrer liest am Abend ein sehr langes Buch im Garten."
HTML = f'<p>{ENGLISH} <a href="https://a.example">#book</a></p>'
BASE = {"q": ENGLISH, "source": "en", "target": "de"}
AUTO = {**BASE, "source": "auto"}
TEXT_FILE = ("letter.txt", b"The dog.\n", "text/plain")
ERROR = {"error": "str"}
TRANSLATED = {"translatedText": "str"}
DETECTED = {**TRANSLATED, "detectedLanguage": {"confidence": "number", "language": "str"}}
DETECTIONS = [{"confidence": "number", "language": "str"}]
LANGUAGES = [{"code": "str", "name": "str", "targets": ["str"]}]
SUCCESS = {"success": "bool"}
NOT_JSON = "not JSON"


@dataclass(frozen=True)
class RecordedExchange:
    """A request, and LibreTranslate's answer to it."""

    name: str
    request: dict[str, Any]
    """Arguments of `httpx.request`, but for the address."""
    status: int
    shape: Any = field(default_factory=lambda: ERROR)
    """Keys and types of the answer."""
    ours: int | None = None
    """Our status, where we differ."""
    reason: str = ""
    """Why we differ."""


def _post(path: str, **arguments: Any) -> dict[str, Any]:
    return {"method": "POST", "path": path, **arguments}


def _json(**changes: Any) -> dict[str, Any]:
    return _post("/translate", json={**BASE, **changes})


def _without(name: str, **changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**BASE, **changes}.items() if key != name}


def _file(**changes: Any) -> dict[str, Any]:
    return _post("/translate_file", files={"file": TEXT_FILE}, data={"source": "en", "target": "de", **changes})


_JSON_TYPE = {"content-type": "application/json"}
_MULTIPART = {name: (None, value) for name, value in BASE.items()}
CRASH = "LibreTranslate fails on it"
EXCHANGES = (
    RecordedExchange("text as JSON", _json(), 200, TRANSLATED),
    RecordedExchange("text as a form", _post("/translate", data=BASE), 200, TRANSLATED),
    RecordedExchange("text as multipart", _post("/translate", files=_MULTIPART), 200, TRANSLATED),
    RecordedExchange("text in the query", _post("/translate", params=BASE), 200, TRANSLATED),
    RecordedExchange("list", _json(q=[ENGLISH, "Two."]), 200, {"translatedText": ["str"]}),
    RecordedExchange("null format and key", _json(format=None, api_key=None), 200, TRANSLATED),
    RecordedExchange("empty format and key", _json(format="", api_key=""), 200, TRANSLATED),
    RecordedExchange("HTML as JSON", _json(q=HTML, format="html"), 200, TRANSLATED),
    RecordedExchange("HTML as a form", _post("/translate", data={**BASE, "q": HTML, "format": "html"}), 200,
                     TRANSLATED),
    RecordedExchange("list of HTML in languages to detect",
                     _post("/translate", json={**AUTO, "q": [HTML, "Hi."], "format": "html"}), 200,
                     {"translatedText": ["str"], "detectedLanguage": DETECTIONS}),
    RecordedExchange("unknown fields", _json(secret="x", apiKey="y"), 200, TRANSLATED),
    RecordedExchange("upper-case codes", _json(source="EN", target="DE"), 200, TRANSLATED),
    RecordedExchange("same language", _json(target="en"), 200, TRANSLATED),
    RecordedExchange("text without letters", _json(q="42 🐪"), 200, TRANSLATED),
    RecordedExchange("alternatives", _json(alternatives=2), 200, {**TRANSLATED, "alternatives": ["str"]}),
    RecordedExchange("alternatives as a string", _json(alternatives="2"), 200, {**TRANSLATED, "alternatives": ["str"]}),
    RecordedExchange("negative alternatives", _json(alternatives=-1), 200, TRANSLATED),
    RecordedExchange("alternatives of a list", _json(q=[ENGLISH], alternatives=1), 200,
                     {"translatedText": ["str"], "alternatives": [["str"]]}),
    RecordedExchange("auto", _post("/translate", json=AUTO), 200, DETECTED),
    RecordedExchange("auto as a form", _post("/translate", data=AUTO), 200, DETECTED),
    RecordedExchange("auto on the target language", _post("/translate", json={**AUTO, "q": GERMAN}), 200, DETECTED),
    RecordedExchange("auto on a short text", _post("/translate", json={**AUTO, "q": "Hi."}), 200, DETECTED),
    RecordedExchange("auto without letters", _post("/translate", json={**AUTO, "q": "42"}), 200, DETECTED),
    RecordedExchange("auto on another language", _post("/translate", json={**AUTO, "q": "Это предложение по-русски."}),
                     200, DETECTED),
    RecordedExchange("auto on a list", _post("/translate", json={**AUTO, "q": [ENGLISH, GERMAN, "Hi.", "42", ""]}), 200,
                     {"translatedText": ["str"], "detectedLanguage": DETECTIONS}),
    RecordedExchange("no text", _post("/translate", json=_without("q")), 400),
    RecordedExchange("no source", _post("/translate", json=_without("source")), 400),
    RecordedExchange("no target", _post("/translate", data=_without("target")), 400),
    RecordedExchange("empty text", _json(q=""), 400),
    RecordedExchange("empty list", _json(q=[]), 400),
    RecordedExchange("null text", _json(q=None), 400),
    RecordedExchange("unknown source", _json(source="zz"), 400),
    RecordedExchange("unknown target", _json(target="zz"), 400),
    RecordedExchange("auto to an unknown target", _post("/translate", json={**AUTO, "target": "zz"}), 400),
    RecordedExchange("unknown format", _json(format="pdf"), 400),
    RecordedExchange("alternatives of a form that are no number",
                     _post("/translate", data={**BASE, "alternatives": "x"}), 400),
    RecordedExchange("broken JSON", _post("/translate", content=b"{", headers=_JSON_TYPE), 400),
    RecordedExchange("JSON list", _post("/translate", json=[BASE]), 400),
    RecordedExchange("plain text", _post("/translate", content=b"x", headers={"content-type": "text/plain"}), 400),
    RecordedExchange("no body", _post("/translate"), 400),
    RecordedExchange("number as text", _json(q=7), 500, ERROR, 400, CRASH),
    RecordedExchange("list of numbers", _json(q=[7]), 500, ERROR, 400, CRASH),
    RecordedExchange("GET of /translate", {"method": "GET", "path": "/translate", "params": BASE}, 405, NOT_JSON),
    RecordedExchange("detect JSON", _post("/detect", json={"q": GERMAN}), 200, DETECTIONS),
    RecordedExchange("detect form", _post("/detect", data={"q": GERMAN}), 200, DETECTIONS),
    RecordedExchange("detect multipart", _post("/detect", files={"q": (None, GERMAN)}), 200, DETECTIONS),
    RecordedExchange("detect query", _post("/detect", params={"q": GERMAN}), 200, DETECTIONS),
    RecordedExchange("detect list", _post("/detect", json={"q": [GERMAN, GERMAN]}), 200, DETECTIONS),
    RecordedExchange("detect nothing", _post("/detect", json={"q": "42"}), 200, DETECTIONS),
    RecordedExchange("detect without text", _post("/detect", data={}), 400),
    RecordedExchange("languages", {"method": "GET", "path": "/languages"}, 200, LANGUAGES),
    RecordedExchange("POST of /languages", _post("/languages", data={}), 405, NOT_JSON, 200,
                     "argostranslate's client sends it"),
    RecordedExchange("spec", {"method": "GET", "path": "/spec"}, 200, None),
    RecordedExchange("health", {"method": "GET", "path": "/health"}, 200, {"status": "str"}),
    RecordedExchange("suggest JSON", _post("/suggest", json={**BASE, "s": GERMAN}), 200, SUCCESS),
    RecordedExchange("suggest form", _post("/suggest", data={**BASE, "s": GERMAN}), 200, SUCCESS),
    RecordedExchange("suggest multipart", _post("/suggest", files={**_MULTIPART, "s": (None, GERMAN)}), 200, SUCCESS),
    RecordedExchange("suggest without suggestion", _post("/suggest", data=BASE), 400),
    RecordedExchange("suggest without source", _post("/suggest", json=_without("source", s=GERMAN)), 400),
    RecordedExchange("file", _file(), 200, {"translatedFileUrl": "str"}),
    RecordedExchange("file in a language to detect", _file(source="auto"), 200, {"translatedFileUrl": "str"}),
    RecordedExchange("file without a file", _post("/translate_file", data={"source": "en", "target": "de"}), 400),
    RecordedExchange("file without a source", _file(source=""), 400),
    RecordedExchange("file without a target", _file(target=""), 400),
    RecordedExchange("file to an unknown language", _file(target="zz"), 400),
    RecordedExchange("file of an unknown format",
                     {**_file(), "files": {"file": ("a.exe", b"x", "application/octet-stream")}}, 400),
    RecordedExchange("unknown download", {"method": "GET", "path": "/download_file/nothing.txt"}, 500, ERROR, 404,
                     CRASH),
    RecordedExchange("unknown path", {"method": "GET", "path": "/nothing"}, 404, NOT_JSON),
)  # fmt: skip
SETTINGS = {
    "charLimit": "number", "frontendTimeout": "number", "apiKeys": "bool", "keyRequired": "bool",
    "suggestions": "bool", "filesTranslation": "bool", "supportedFilesFormat": ["str"],
    "language": {"source": {"code": "str", "name": "str"}, "target": {"code": "str", "name": "str"}},
}  # fmt: skip
"""LibreTranslate's settings for pages."""


def shape_of(content: Any) -> Any:
    """Keys and types of JSON; of a list, those of its first item."""
    if isinstance(content, dict):
        return {key: shape_of(value) for key, value in content.items()}
    if isinstance(content, list):
        return [shape_of(item) for item in content[:1]]
    if isinstance(content, bool):
        return "bool"
    return "number" if isinstance(content, int | float) else type(content).__name__
