"""The ASGI application: routes, static files of the translate page, error handlers, middleware."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from importlib import resources

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from dragoman.host_header import HostHeaderMiddleware
from dragoman.serving.api import Api
from dragoman.serving.api_keys import ApiKeys
from dragoman.serving.error_responses import ApiError, handle_api_error, handle_routing_error
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.middleware import ServerMiddleware
from dragoman.serving.openapi import make_openapi_document, render_html
from dragoman.serving.translation_service import TranslationService

PAGE_FILES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "api_client.js": "text/javascript; charset=utf-8",
    "storage.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
Handler = Callable[[Request], Awaitable[Response]]


def make_app(
    service: TranslationService,
    limits: Limits,
    keys: ApiKeys | None,
    metrics: Metrics,
    host_names: Collection[str] = (),
) -> ASGIApp:
    """Build the ASGI application. It closes the service on shutdown.

    `host_names` are the names of the server, beside localhost and IP addresses.
    """
    api = Api(service, limits, keys, metrics)
    endpoints: dict[str, tuple[str, Handler]] = {
        "/translate": ("POST", api.translate),
        "/stream": ("POST", api.stream),
        "/file": ("POST", api.file),
        "/detect": ("POST", api.detect),
        "/languages": ("GET", api.languages),
        "/models": ("GET", api.models),
        "/frontend/settings": ("GET", api.settings),
        "/health": ("GET", api.health),
        "/metrics": ("GET", api.metrics),
    }
    openapi = make_openapi_document(limits, service.models)
    static = {
        "/openapi.json": JSONResponse(openapi),
        "/docs": Response(render_html(openapi), media_type="text/html; charset=utf-8"),
        **{f"/{'' if name == 'index.html' else name}": _load_page_file(name) for name in PAGE_FILES},
    }

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        api.close()
        service.close()

    routes = [Route(path, handler, methods=[method]) for path, (method, handler) in endpoints.items()]
    routes += [Route(path, _static_handler(response), methods=["GET"]) for path, response in static.items()]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={ApiError: handle_api_error, HTTPException: handle_routing_error},
    )
    checked = HostHeaderMiddleware(app, host_names, _refuse_host)
    return ServerMiddleware(checked, limits, metrics, frozenset([*endpoints, *static]), api.timeout_s)


def _refuse_host(name: str) -> Response:
    message = f"This server has another name than '{name[:100]}': open it by its IP address, or start it with"
    return ApiError(403, f"{message} --allow-host {name[:100]}.").response()


def _load_page_file(name: str) -> Response:
    """Response with a file of the page. Files are read at startup only, so that no request can name a path."""
    content = resources.files("dragoman.serving").joinpath("page", name).read_bytes()
    return Response(content, media_type=PAGE_FILES[name], headers={"cache-control": "no-cache"})


def _static_handler(response: Response) -> Handler:
    async def handle(_: Request) -> Response:
        return response

    return handle
