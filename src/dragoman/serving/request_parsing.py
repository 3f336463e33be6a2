"""Reading and validating request bodies."""

import asyncio
import json
from typing import TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from dragoman.serving.error_responses import ApiError
from dragoman.serving.limits import Limits

Schema = TypeVar("Schema", bound=BaseModel)
JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"


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
    """Read a JSON or form body and validate its fields."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in (JSON_TYPE, FORM_TYPE):
        raise ApiError(415, f"The body must be {JSON_TYPE} or {FORM_TYPE}: set Content-Type.")
    body = await read_body(request, limits.max_body_bytes, limits)
    try:
        # Form values are all text, so numbers are converted.
        if content_type == FORM_TYPE:
            return schema.model_validate_strings(_parse_form(body), strict=False)
        return schema.model_validate(_parse_json(body))
    except ValidationError as error:
        raise ApiError(400, _summarize(error)) from None


def _parse_json(body: bytes) -> object:
    try:
        fields = json.loads(body)
        json.dumps(fields, ensure_ascii=False).encode()  # Fails on unpaired surrogates, which JSON escapes can spell.
        return fields
    except (ValueError, RecursionError):
        raise ApiError(400, "The body is not valid JSON in UTF-8: check its syntax.") from None


def _parse_form(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=16))
    except ValueError:
        raise ApiError(400, "The form is not URL-encoded UTF-8: check its encoding.") from None


def _summarize(error: ValidationError) -> str:
    """One sentence with the first problem of each field."""
    problems: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        field = str(problem["loc"][0]) if problem["loc"] else "the body"
        problems.setdefault(field, problem["msg"][:1].lower() + problem["msg"][1:])
    return "; ".join(f"{field}: {message}" for field, message in problems.items()) + "."
