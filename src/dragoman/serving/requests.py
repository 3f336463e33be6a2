"""Requests from clients of every kind: read within limits, checked, and refused in a sentence."""

import asyncio
import json
from typing import TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from dragoman.serving.limits import Keys, Limits, RateLimiter

Body = TypeVar("Body", bound=BaseModel)
JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"


class RefusedError(Exception):
    """A request that is answered with a status and one sentence."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


async def read_body(request: Request, max_bytes: int, limits: Limits) -> bytes:
    """The body, if it is not too large and comes in time. What is too large is not read to its end."""
    stated = request.headers.get("content-length", "")
    too_large = RefusedError(413, f"The request is larger than {max_bytes:,} bytes: send it in parts.")
    if stated.isdigit() and int(stated) > max_bytes:
        raise too_large
    content = bytearray()
    try:
        async with asyncio.timeout(limits.read_timeout_s):
            async for part in request.stream():
                content += part
                if len(content) > max_bytes:
                    raise too_large
    except TimeoutError:
        raise RefusedError(408, f"The request did not arrive within {limits.read_timeout_s:g} s: try again.") from None
    except ClientDisconnect:
        raise RefusedError(400, "The request broke off: send it again.") from None
    return bytes(content)


async def read_fields(request: Request, form: type[Body], limits: Limits) -> Body:
    """The fields of a JSON or form body, checked."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON_TYPE, FORM_TYPE):
        raise RefusedError(415, f"The body must be {JSON_TYPE} or {FORM_TYPE}: set Content-Type.")
    content = await read_body(request, limits.max_body_bytes, limits)
    try:
        # A form knows only text; its numbers are read as such.
        if kind == FORM_TYPE:
            return form.model_validate_strings(_form_fields(content), strict=False)
        return form.model_validate(_json_fields(content))
    except ValidationError as error:
        raise RefusedError(400, _in_words(error)) from None


def _json_fields(content: bytes) -> object:
    try:
        fields = json.loads(content)
        json.dumps(fields, ensure_ascii=False).encode()  # half of a surrogate pair is no text
        return fields
    except (ValueError, RecursionError):
        raise RefusedError(400, "The body is not JSON in UTF-8: check its syntax.") from None


def _form_fields(content: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(content.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=16))
    except ValueError:
        raise RefusedError(400, "The form is not URL-encoded UTF-8: check how it is sent.") from None


def _in_words(error: ValidationError) -> str:
    """The first problem of each field, in one sentence."""
    problems: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = str(problem["loc"][0]) if problem["loc"] else "the body"
        problems.setdefault(place, problem["msg"][:1].lower() + problem["msg"][1:])
    return "; ".join(f"{place}: {message}" for place, message in problems.items()) + "."


class Gatekeeper:
    """Who may ask, and how often."""

    def __init__(self, keys: Keys | None, limits: Limits) -> None:
        self._keys = keys
        self._rates = RateLimiter(limits.requests_per_minute)

    @property
    def asks_for_keys(self) -> bool:
        return self._keys is not None

    def admit(self, request: Request, key: str | None) -> None:
        """Let a request in, or refuse it."""
        client = request.client.host if request.client else "unknown"
        if self._keys is not None:
            kind, _, token = request.headers.get("authorization", "").partition(" ")
            key = key or (token.strip() if kind.lower() == "bearer" else None)
            if not key:
                raise RefusedError(401, "This server asks for an API key: send it as api_key or as a bearer token.")
            owner = self._keys.owner(key)
            if owner is None:
                raise RefusedError(403, "This API key is not known here: check it, or ask whoever runs the server.")
            client = f"key {owner}"
        wait_s = self._rates.wait_s(client)
        if wait_s:
            raise RefusedError(429, f"That is too often: wait {wait_s:.0f} s.", wait_s)
