"""Reading and validating request bodies: JSON, URL-encoded forms and multipart forms."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from dragoman.serving.error_responses import ApiError
from dragoman.serving.limits import Limits

Schema = TypeVar("Schema", bound=BaseModel)
JSON_TYPE, FORM_TYPE, MULTIPART_TYPE = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
MAX_FIELDS = 128
"""Fields of a form: a text each, and a few others."""
MAX_FIELD_BYTES = 1 << 16
"""Size of all fields of a form with a file, and of the headers of its parts."""
BLOCK_BYTES = 1 << 16
"""Bytes of a multipart form that are parsed at a time, within milliseconds."""
_TEXT_FIELD = "q"
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{1,70}")


@dataclass(frozen=True)
class Upload:
    """A file of a multipart form."""

    name: str
    content: bytes


async def read_body(request: Request, max_bytes: int, limits: Limits) -> bytes:
    """Read the body within the size and time limits. Stops reading as soon as it is too large."""
    declared_length = request.headers.get("content-length", "")
    too_large = ApiError(413, f"The request is larger than {max_bytes:,} bytes: send it in parts.")
    if declared_length.isdigit() and int(declared_length) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.read_timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise too_large
    except TimeoutError:
        raise ApiError(408, f"The request did not arrive within {limits.read_timeout_s:g} s: try again.") from None
    except ClientDisconnect:
        raise ApiError(400, "The connection closed before the request was complete: send it again.") from None
    return bytes(body)


async def read_fields(request: Request, schema: type[Schema], limits: Limits) -> Schema:
    """Validate the fields of a JSON body, or of a form and the query, as LibreTranslate accepts them."""
    content_type = _content_type(request)
    body = await read_body(request, limits.max_body_bytes, limits)
    if content_type == JSON_TYPE or (content_type.startswith("application/") and content_type.endswith("+json")):
        return _validate(schema, _parse_json(body), is_form=False)
    fields, _ = await _form_fields(request, content_type, body)
    return _validate(schema, fields, is_form=True)


async def read_upload(request: Request, schema: type[Schema], limits: Limits) -> tuple[Schema, Upload]:
    """Read a multipart form with a file, and validate its other fields."""
    body = await read_body(request, limits.max_file_bytes + MAX_FIELD_BYTES, limits)
    fields, upload = await _form_fields(request, _content_type(request), body)
    if upload is None:
        raise ApiError(400, f"Invalid request: missing file parameter: send a file as {MULTIPART_TYPE}.")
    if len(upload.content) > limits.max_file_bytes:
        raise ApiError(413, f"The file is larger than {limits.max_file_bytes:,} bytes: send it in parts.")
    return _validate(schema, fields, is_form=True), upload


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _form_fields(request: Request, content_type: str, body: bytes) -> tuple[dict[str, Any], Upload | None]:
    """Fields of the query and the form, and the file of the form. A repeated `q` is a list of texts."""
    pairs = _parse_form(request.scope["query_string"])
    upload = None
    if content_type == FORM_TYPE:
        pairs += _parse_form(body)
    elif content_type == MULTIPART_TYPE:
        form_pairs, upload = await _parse_multipart(request.headers["content-type"].encode("latin-1"), body)
        pairs += form_pairs
    return _collect(pairs), upload


def _collect(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        # Browsers send line breaks of text fields as CRLF, whatever the user has typed.
        values.setdefault(name, []).append(value.replace("\r\n", "\n").replace("\r", "\n"))
    return {name: found if name == _TEXT_FIELD and len(found) > 1 else found[0] for name, found in values.items()}


def _validate(schema: type[Schema], fields: object, *, is_form: bool) -> Schema:
    """Validate fields. Empty ones count as missing, as in LibreTranslate."""
    if not isinstance(fields, dict):
        raise ApiError(400, "Invalid JSON format: the body must be an object with the fields of the request.")
    present = {name: value for name, value in fields.items() if value not in (None, "", [])}
    try:
        return schema.model_validate(present, strict=not is_form)  # The values of a form are all text.
    except ValidationError as error:
        raise ApiError(400, _summarize(error)) from None


def _parse_json(body: bytes) -> object:
    try:
        fields = json.loads(body)
        json.dumps(fields, ensure_ascii=False).encode()  # Fails on unpaired surrogates, which JSON escapes can spell.
        return fields
    except (ValueError, RecursionError):
        raise ApiError(400, "The body is not valid JSON in UTF-8: check its syntax.") from None


def _parse_form(body: bytes) -> list[tuple[str, str]]:
    try:
        text = body.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise ApiError(
            400, f"The form is not URL-encoded UTF-8 with at most {MAX_FIELDS} fields: check its encoding."
        ) from None


async def _parse_multipart(content_type: bytes, body: bytes) -> tuple[list[tuple[str, str]], Upload | None]:
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not _BOUNDARY.fullmatch(boundary):
        raise ApiError(400, f"The boundary of {MULTIPART_TYPE} is missing or invalid: let the client library set it.")
    # Without the charset that clients may state: some of Python's decoders take quadratic time. It is always UTF-8.
    headers = Headers({"content-type": f'{MULTIPART_TYPE}; boundary="{boundary.decode()}"'})
    parser = MultiPartParser(headers, _in_blocks(body), max_files=1, max_fields=MAX_FIELDS, max_part_size=len(body))
    try:
        items = (await parser.parse()).multi_items()
    except MultiPartException as error:
        raise ApiError(400, f"The form is not valid {MULTIPART_TYPE} ({error.message.rstrip('.')}).") from None
    upload = None
    for _, value in items:
        if isinstance(value, UploadFile):
            upload = Upload(value.filename or "", value.file.read())
            value.file.close()
    return [(name, value) for name, value in items if isinstance(value, str)], upload


async def _in_blocks(body: bytes) -> AsyncGenerator[bytes, None]:
    """Blocks of a body. Other requests get their turn in between."""
    for begin in range(0, len(body), BLOCK_BYTES):
        yield body[begin : begin + BLOCK_BYTES]
        await asyncio.sleep(0)


def _summarize(error: ValidationError) -> str:
    """One sentence with the first problem of each field, in LibreTranslate's words where a field is missing."""
    problems: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        field = str(problem["loc"][0]) if problem["loc"] else "the body"
        message = problem["msg"].removeprefix("Value error, ")
        description = f"missing {field} parameter" if problem["type"] == "missing" else f"{field}: {_lower(message)}"
        problems.setdefault(field, description)
    return f"Invalid request: {'; '.join(problems.values())}."


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
