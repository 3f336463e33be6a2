"""The ASGI application: routes, static files of the translate page, error handlers, middleware."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from importlib import resources

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from dragoman.host_header import HostHeaderMiddleware
from dragoman.serving.admission import Admission
from dragoman.serving.api import Api
from dragoman.serving.api_keys import ApiKeys
from dragoman.serving.error_responses import ApiError, handle_api_error, handle_routing_error
from dragoman.serving.file_api import FileApi
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.middleware import ServerMiddleware
from dragoman.serving.openapi import make_openapi_document, render_html
from dragoman.serving.server_info import ServerInfo
from dragoman.serving.suggestions import SuggestionStore
from dragoman.serving.translation_service import TranslationService

PAGE_FILES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "api_client.js": "text/javascript; charset=utf-8",
    "document_list.js": "text/javascript; charset=utf-8",
    "storage.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
Handler = Callable[[Request], Awaitable[Response]]
CORS_MAX_AGE_S = 24 * 3600


def make_app(
    service: TranslationService,
    limits: Limits,
    keys: ApiKeys | None,
    metrics: Metrics,
    host_names: Collection[str] = (),
    *,
    origins: Collection[str] = (),
    suggestions: SuggestionStore | None = None,
) -> ASGIApp:
    """Build the ASGI application. It closes the service on shutdown.

    `host_names` are the names of the server, beside localhost and IP addresses. `origins` are the web pages of other
    servers that may use the API; `*` stands for all.
    """
    admission = Admission(service, limits, keys, metrics, origins)
    api = Api(service, limits, admission, suggestions)
    files = FileApi(service, limits, admission)
    info = ServerInfo(
        service, limits, metrics, requires_key=keys is not None, takes_suggestions=suggestions is not None
    )
    endpoints: dict[str, tuple[list[str], Handler]] = {
        "/translate": (["POST"], api.translate),
        "/stream": (["POST"], api.stream),
        "/detect": (["POST"], api.detect),
        "/suggest": (["POST"], api.suggest),
        "/file": (["POST"], files.file),
        "/translate_file": (["POST"], files.translate_file),
        "/download_file/{name}": (["GET"], files.download_file),
        "/languages": (["GET", "POST"], info.languages),  # argostranslate's client sends POST.
        "/models": (["GET"], info.models),
        "/frontend/settings": (["GET"], info.settings),
        "/health": (["GET"], info.health),
        "/metrics": (["GET"], info.metrics),
    }
    openapi = make_openapi_document(limits, service.models)
    static = {
        "/openapi.json": JSONResponse(openapi),
        "/spec": JSONResponse(openapi),
        "/docs": Response(render_html(openapi), media_type="text/html; charset=utf-8"),
        **{f"/{'' if name == 'index.html' else name}": _load_page_file(name) for name in PAGE_FILES},
    }

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        api.close()
        files.close()
        service.close()

    routes = [Route(path, handler, methods=methods) for path, (methods, handler) in endpoints.items()]
    routes += [Route(path, _static_handler(response), methods=["GET"]) for path, response in static.items()]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={ApiError: handle_api_error, HTTPException: handle_routing_error},
    )
    checked = HostHeaderMiddleware(app, host_names, _refuse_host)
    limited = ServerMiddleware(checked, limits, metrics, frozenset([*endpoints, *static]), files.timeout_s)
    return _allow_origins(limited, origins) if origins else limited


def _allow_origins(app: ASGIApp, origins: Collection[str]) -> ASGIApp:
    """Let the pages of other origins use the API. Outermost, so that they can read refusals, too."""
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        max_age=CORS_MAX_AGE_S,
    )


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
