"""Work for clients that may disconnect."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request

from dragoman.serving.error_responses import ApiError

CLIENT_CLOSED_REQUEST = 499
"""Appears in the metrics only: the client has disconnected."""
Result = TypeVar("Result")


async def cancel_on_disconnect(request: Request, work: Awaitable[Result]) -> Result:
    """Await the work; cancel it if the client disconnects first."""
    working = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait((working, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ApiError(CLIENT_CLOSED_REQUEST, "The client has disconnected.")
    finally:
        for task in (working, disconnected):
            task.cancel()
        await asyncio.gather(working, disconnected, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
