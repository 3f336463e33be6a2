"""The OpenAPI 3.1 document of the API, and an HTML page rendered from it."""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pydantic import BaseModel, TypeAdapter

from dragoman import __version__
from dragoman.documents.formats import FORMATS
from dragoman.serving.limits import Limits
from dragoman.serving.request_parsing import FORM_TYPE, JSON_TYPE, MULTIPART_TYPE
from dragoman.serving.schemas import (
    DetectedLanguage,
    DetectRequest,
    ErrorResponse,
    FileRequest,
    FileUrlResponse,
    HealthResponse,
    LanguageChoice,
    LanguageChoices,
    LanguageResponse,
    ModelResponse,
    SettingsResponse,
    StreamRequest,
    SuggestRequest,
    SuggestResponse,
    TranslateRequest,
    TranslateResponse,
)
from dragoman.serving.translation_service import ServedModel

ERRORS = {
    "400": "The request is invalid.",
    "401": "An API key is required.",
    "403": "The API key is unknown, or suggestions are disabled.",
    "408": "The request did not arrive in time.",
    "413": "The text or file is too large.",
    "429": "The client has sent too many requests.",
    "503": "The server is overloaded, or the request timed out.",
}
_REF = "#/components/schemas/{model}"


def make_openapi_document(limits: Limits, models: Sequence[ServedModel]) -> dict[str, Any]:
    """The OpenAPI document, with the limits and languages of this server."""
    available = {
        "source": sorted({model.source for model in models}),
        "target": sorted({model.target for model in models}),
        "model": [model.name for model in models],
    }
    post_endpoints: dict[str, tuple[str, type[BaseModel], dict[str, Any]]] = {
        "/translate": ("Translate one or more texts.", TranslateRequest, _json_content(TranslateResponse)),
        "/detect": ("Detect the language of a text. If it cannot be detected, the answer is en with confidence 0.",
                    DetectRequest, _json_content(list[DetectedLanguage])),
        "/suggest": ("Suggest a better translation.", SuggestRequest, _json_content(SuggestResponse)),
        "/stream": ("Translate a text sentence by sentence: one line of JSON for each, as soon as it is ready.",
                    StreamRequest, {"application/x-ndjson": {"schema": {"type": "string"}}}),
    }  # fmt: skip
    get_endpoints = {
        "/languages": ("List the languages, and the targets of each.", _json_content(list[LanguageResponse])),
        "/models": ("List the models.", _json_content(list[ModelResponse])),
        "/frontend/settings": ("Settings for pages.", _json_content(SettingsResponse)),
        "/health": ("Check that the server is running.", _json_content(HealthResponse)),
        "/metrics": ("Metrics for Prometheus.", {"text/plain": {"schema": {"type": "string"}}}),
    }
    paths: dict[str, Any] = {
        path: {"post": _operation(summary, content, body=_request_body(schema, limits))}
        for path, (summary, schema, content) in post_endpoints.items()
    }
    paths["/file"] = {"post": _file_operation(limits, available)}
    paths["/translate_file"] = {"post": _upload_operation(limits)}
    paths["/download_file/{name}"] = {"get": _download_operation()}
    paths |= {path: {"get": _operation(summary, content)} for path, (summary, content) in get_endpoints.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dragoman",
            "version": __version__,
            "description": "Translation API, compatible with LibreTranslate. Bodies may be JSON or forms.",
        },
        "paths": paths,
        "components": {"schemas": _component_schemas(available)},
    }


def _component_schemas(available: Mapping[str, list[str]]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for model in (
        TranslateRequest, StreamRequest, DetectRequest, SuggestRequest, FileRequest, TranslateResponse,
        DetectedLanguage, SuggestResponse, FileUrlResponse, LanguageResponse, ModelResponse, SettingsResponse,
        LanguageChoices, LanguageChoice, HealthResponse, ErrorResponse,
    ):  # fmt: skip
        schema = model.model_json_schema(ref_template=_REF)
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    for schema_with_languages in (TranslateRequest, StreamRequest, SuggestRequest, FileRequest):
        fields = schemas[schema_with_languages.__name__]["properties"]
        fields["source"] = {"enum": ["auto", *available["source"]], "description": fields["source"]["description"]}
        fields["target"] = {"enum": available["target"], "description": fields["target"]["description"]}
        if "model" in fields:
            fields["model"] = {"enum": [*available["model"], None], "description": fields["model"]["description"]}
    file_form = schemas[FileRequest.__name__]
    file_form["properties"]["file"] = {"type": "string", "format": "binary", "description": "The file, with its name."}
    file_form["required"].append("file")
    return schemas


def _json_content(response: Any) -> dict[str, Any]:
    if isinstance(response, type) and issubclass(response, BaseModel):
        return {JSON_TYPE: {"schema": {"$ref": _REF.format(model=response.__name__)}}}
    schema = TypeAdapter(response).json_schema(ref_template=_REF)
    schema.pop("$defs", None)
    return {JSON_TYPE: {"schema": schema}}


def _operation(summary: str, content: dict[str, Any], body: dict[str, Any] | None = None) -> dict[str, Any]:
    errors = ERRORS if body else {"503": ERRORS["503"]}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {"description": "Success.", "content": content},
            **{
                status: {"description": description, "content": _json_content(ErrorResponse)}
                for status, description in errors.items()
            },
        },
    }
    if body:
        operation["requestBody"] = body
    return operation


def _request_body(schema: type[BaseModel], limits: Limits) -> dict[str, Any]:
    return {
        "required": True,
        "description": f"At most {limits.max_characters:,} characters of text.",
        "content": {
            content_type: {"schema": {"$ref": _REF.format(model=schema.__name__)}}
            for content_type in (JSON_TYPE, FORM_TYPE, MULTIPART_TYPE)
        },
    }


def _upload_operation(limits: Limits) -> dict[str, Any]:
    body = {
        "required": True,
        "description": f"A form with the file, at most {limits.max_file_bytes:,} bytes, or "
        f"{limits.max_package_bytes:,} for archives such as .docx.",
        "content": {MULTIPART_TYPE: {"schema": {"$ref": _REF.format(model=FileRequest.__name__)}}},
    }
    return _operation("Translate a file. The response names the translated file.", _json_content(FileUrlResponse), body)


def _download_operation() -> dict[str, Any]:
    content = {known.media_type.partition(";")[0]: {"schema": {"type": "string"}} for known in FORMATS.values()}
    operation = _operation("Download a translated file.", content)
    operation["responses"]["404"] = {
        "description": "The file does not exist, or no longer.",
        "content": _json_content(ErrorResponse),
    }
    operation["parameters"] = [
        {
            "name": "name",
            "in": "path",
            "required": True,
            "description": "Name from the response to `/translate_file`.",
            "schema": {"type": "string"},
        }
    ]
    return operation


def _file_operation(limits: Limits, available: Mapping[str, list[str]]) -> dict[str, Any]:
    content = {known.media_type.partition(";")[0]: {"schema": {"type": "string"}} for known in FORMATS.values()}
    content["application/x-ndjson"] = {"schema": {"type": "string"}}
    body = {
        "required": True,
        "description": f"The file itself, at most {limits.max_file_bytes:,} bytes, or {limits.max_package_bytes:,} for "
        "archives such as .docx.",
        "content": {"application/octet-stream": {"schema": {"type": "string"}}},
    }
    operation = _operation(
        "Translate a file. The response has the same format; or with Accept: application/x-ndjson, it is one line of "
        "JSON for each step of progress, and a last one with the file in base64.",
        content,
        body,
    )
    parameters = {
        "name": (f"File name; it must end in {', '.join('.' + extension for extension in FORMATS)}.",
                 {"type": "string", "pattern": rf"^\w+\.({'|'.join(FORMATS)})$"}),
        "source": ("Language of the file.", {"enum": available["source"]}),
        "target": ("Language of the translation.", {"enum": available["target"]}),
    }  # fmt: skip
    operation["parameters"] = [
        {"name": name, "in": "query", "required": True, "description": description, "schema": schema}
        for name, (description, schema) in parameters.items()
    ]
    return operation


def render_html(openapi: dict[str, Any]) -> str:
    """The OpenAPI document as an HTML page without scripts."""
    sections = []
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            fields = _fields_table(operation, openapi["components"]["schemas"])
            responses = "".join(
                f"<tr><td>{status}</td><td>{escape(response['description'])}</td></tr>"
                for status, response in operation["responses"].items()
            )
            sections.append(
                f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
                f"{fields}<details><summary>Responses</summary><table>{responses}</table></details></section>"
            )
    info = openapi["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Dragoman API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="icon.svg"><link rel="stylesheet" href="page.css"></head><body class="docs"><main>'
        f"<h1>API</h1><p>{escape(info['description'])} Version {escape(info['version'])}. "
        'OpenAPI document: <a href="openapi.json">openapi.json</a>. <a href="./">Back to the translator</a>.</p>'
        f"{''.join(sections)}</main></body></html>"
    )


def _fields_table(operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [
        (parameter["name"], f"{parameter['in']} parameter, required", parameter["description"])
        for parameter in operation.get("parameters", [])
    ]
    for content in list(operation.get("requestBody", {}).get("content", {}).values())[:1]:  # All have the same fields.
        schema = schemas.get(content["schema"].get("$ref", "").rpartition("/")[2], {})
        for name, field in schema.get("properties", {}).items():
            required = name in schema.get("required", [])
            rows.append((name, "required" if required else _default(field), field.get("description", "")))
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(presence)}</td><td>{_to_html(description)}</td></tr>"
        for name, presence, description in rows
    )
    return f"<table>{cells}</table>"


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    return "optional" if value is None else f"default {json.dumps(value)}"


def _to_html(description: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(description))
