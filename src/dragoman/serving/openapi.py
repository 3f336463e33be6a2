"""The API described for programs (OpenAPI 3.1) and, from the same description, for people."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pydantic import BaseModel, TypeAdapter

from dragoman import __version__
from dragoman.serving.documents import FORMATS
from dragoman.serving.limits import Limits
from dragoman.serving.requests import JSON_TYPE
from dragoman.serving.schemas import (
    Detected,
    DetectRequest,
    ErrorAnswer,
    HealthAnswer,
    LanguageAnswer,
    ModelAnswer,
    StreamRequest,
    TranslateAnswer,
    TranslateRequest,
)
from dragoman.serving.translation_service import ServedModel

REFUSALS = {
    "400": "something in the request is wrong",
    "401": "an API key is needed",
    "403": "the API key is not known",
    "408": "the request did not arrive in time",
    "413": "the text is too long",
    "415": "the body is of another type",
    "429": "too many requests of one client",
    "503": "too much to do, or it took too long",
}
_REF = "#/components/schemas/{model}"


def describe(limits: Limits, models: Sequence[ServedModel]) -> dict[str, Any]:
    """The description, with the limits and languages of this very server."""
    known = {
        "source": sorted({model.source for model in models}),
        "target": sorted({model.target for model in models}),
        "model": [model.name for model in models],
    }
    posts: dict[str, tuple[str, type[BaseModel], dict[str, Any]]] = {
        "/translate": ("Translate a text, or several.", TranslateRequest, _json(TranslateAnswer)),
        "/detect": ("Which language a text is in; nothing where that cannot be told.", DetectRequest,
                    _json(list[Detected])),
        "/stream": ("Translate a text sentence by sentence: a line of JSON each, as they are ready.", StreamRequest,
                    {"application/x-ndjson": {"schema": {"type": "string"}}}),
    }  # fmt: skip
    gets = {
        "/languages": ("Languages, and what each can be translated into.", _json(list[LanguageAnswer])),
        "/models": ("The models that are served.", _json(list[ModelAnswer])),
        "/health": ("Whether the server is up.", _json(HealthAnswer)),
        "/metrics": ("Counts for Prometheus.", {"text/plain": {"schema": {"type": "string"}}}),
    }
    paths: dict[str, Any] = {
        path: {"post": _operation(summary, answer, body=_request_body(form, limits))}
        for path, (summary, form, answer) in posts.items()
    }
    paths["/file"] = {"post": _file_operation(limits, known)}
    paths |= {path: {"get": _operation(summary, answer)} for path, (summary, answer) in gets.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dragoman",
            "version": __version__,
            "description": "A translator. Its calls are LibreTranslate's, whose clients work here; forms will do, too.",
        },
        "paths": paths,
        "components": {"schemas": _component_schemas(known)},
    }


def _component_schemas(known: Mapping[str, list[str]]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for model in (
        TranslateRequest, StreamRequest, DetectRequest, TranslateAnswer, Detected, LanguageAnswer, ModelAnswer,
        HealthAnswer, ErrorAnswer,
    ):  # fmt: skip
        schema = model.model_json_schema(ref_template=_REF)
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    for name in (TranslateRequest.__name__, StreamRequest.__name__):
        fields = schemas[name]["properties"]
        fields["source"] = {"enum": ["auto", *known["source"]], "description": fields["source"]["description"]}
        fields["target"] = {"enum": known["target"], "description": fields["target"]["description"]}
        fields["model"] = {"enum": [*known["model"], None], "description": fields["model"]["description"]}
    return schemas


def _json(answer: Any) -> dict[str, Any]:
    if isinstance(answer, type) and issubclass(answer, BaseModel):
        return {JSON_TYPE: {"schema": {"$ref": _REF.format(model=answer.__name__)}}}
    schema = TypeAdapter(answer).json_schema(ref_template=_REF)
    schema.pop("$defs", None)
    return {JSON_TYPE: {"schema": schema}}


def _operation(summary: str, answer: dict[str, Any], body: dict[str, Any] | None = None) -> dict[str, Any]:
    refusals = REFUSALS if body else {"503": REFUSALS["503"]}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {"description": "done", "content": answer},
            **{code: {"description": why, "content": _json(ErrorAnswer)} for code, why in refusals.items()},
        },
    }
    if body:
        operation["requestBody"] = body
    return operation


def _request_body(form: type[BaseModel], limits: Limits) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=form.__name__)}
    about = f"At most {limits.max_characters:,} characters of text."
    return {"required": True, "description": about, "content": {JSON_TYPE: {"schema": schema}}}


def _file_operation(limits: Limits, known: Mapping[str, list[str]]) -> dict[str, Any]:
    answer = {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in FORMATS.values()}
    body = {
        "required": True,
        "description": f"The file itself, at most {limits.max_file_bytes:,} bytes.",
        "content": {"application/octet-stream": {"schema": {"type": "string"}}},
    }
    operation = _operation("Translate a file, and get it back in its own format.", answer, body)
    fields = {
        "name": (f"The file's name, which ends in {', '.join('.' + form for form in FORMATS)}.",
                 {"type": "string", "pattern": rf"^\w+\.({'|'.join(FORMATS)})$"}),
        "source": ("Language of the file.", {"enum": known["source"]}),
        "target": ("Language of the translation.", {"enum": known["target"]}),
    }  # fmt: skip
    operation["parameters"] = [
        {"name": name, "in": "query", "required": True, "description": about, "schema": schema}
        for name, (about, schema) in fields.items()
    ]
    return operation


def describe_as_html(description: dict[str, Any]) -> str:
    """The same as a page to read, which loads nothing."""
    parts = []
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            fields = _fields(operation, description["components"]["schemas"])
            answers = "".join(
                f"<tr><td>{code}</td><td>{escape(answer['description'])}</td></tr>"
                for code, answer in operation["responses"].items()
            )
            parts.append(
                f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
                f"{fields}<details><summary>Answers</summary><table>{answers}</table></details></section>"
            )
    info = description["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Dragoman: the API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="icon.svg"><link rel="stylesheet" href="page.css"></head><body class="docs"><main>'
        f"<h1>The API</h1><p>{escape(info['description'])} Version {escape(info['version'])}. "
        'For programs: <a href="openapi.json">openapi.json</a>. <a href="./">Back to the translator</a>.</p>'
        f"{''.join(parts)}</main></body></html>"
    )


def _fields(operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [(item["name"], "in the address, required", item["description"]) for item in operation.get("parameters", [])]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        schema = schemas.get(name, {})
        for field, about in schema.get("properties", {}).items():
            need = "required" if field in schema.get("required", []) else f"default {about.get('default')!r}"
            rows.append((field, need, about.get("description", "")))
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(need)}</td><td>{escape(about)}</td></tr>"
        for name, need, about in rows
    )
    return f"<table>{cells}</table>"
