"""Access control of the API: keys, and a rate limit per client."""

import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import Request

from dragoman.serving.api_keys import ApiKeys
from dragoman.serving.error_responses import ApiError
from dragoman.serving.limits import Limits

MAX_TRACKED_CLIENTS = 10_000


class RateLimiter:
    """Token bucket per client: refills steadily, and holds at most one minute's requests."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def acquire(self, client: str) -> float:
        """Take a token and return 0.0, or return the seconds until one is available."""
        if not self._per_minute:
            return 0.0
        now_at_s = self._clock()
        tokens, updated_at_s = self._buckets.pop(client, (float(self._per_minute), now_at_s))
        tokens = min(self._per_minute, tokens + (now_at_s - updated_at_s) * self._per_minute / 60)
        granted = tokens >= 1
        self._buckets[client] = (tokens - 1 if granted else tokens, now_at_s)
        while len(self._buckets) > MAX_TRACKED_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1 - tokens) * 60 / self._per_minute


class AccessControl:
    """Checks the API key and the rate limit of a request."""

    def __init__(self, keys: ApiKeys | None, limits: Limits) -> None:
        self._keys = keys
        self._rate_limiter = RateLimiter(limits.requests_per_minute)

    @property
    def requires_key(self) -> bool:
        return self._keys is not None

    def check(self, request: Request, key: str | None) -> None:
        """Raise ApiError unless the request may proceed. Counts it against the client's rate limit."""
        client = request.client.host if request.client else "unknown"
        if self._keys is not None:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            key = key or (token.strip() if scheme.lower() == "bearer" else None)
            if not key:
                raise ApiError(401, "This server requires an API key: send it as api_key or as a bearer token.")
            owner = self._keys.owner(key)
            if owner is None:
                raise ApiError(403, "Unknown API key: check it, or ask the operator of this server for a key.")
            client = f"key {owner}"
        wait_s = self._rate_limiter.acquire(client)
        if wait_s:
            raise ApiError(429, f"Too many requests: wait {wait_s:.0f} s.", wait_s)
