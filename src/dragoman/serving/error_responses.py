"""Error responses: a status code, and one sentence as JSON."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

RETRY_AFTER_S = 2.0
"""Retry-After of responses from an overloaded server."""


class ApiError(Exception):
    """A request that is answered with an error status and one sentence."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s

    def response(self) -> Response:
        headers = {} if self.retry_after_s is None else {"retry-after": str(max(1, round(self.retry_after_s)))}
        return JSONResponse({"error": str(self)}, self.status, headers)


async def handle_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def handle_routing_error(request: Request, error: Exception) -> Response:
    """Response to Starlette's own errors: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:100]} does not exist: see /docs for the API."
    return JSONResponse({"error": message}, error.status_code, error.headers)
