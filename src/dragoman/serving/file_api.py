"""Handlers that translate files: LibreTranslate's `/translate_file` and `/download_file`, and `/file`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from dragoman.corpus.sources import Languages
from dragoman.documents.document import UnreadableError
from dragoman.documents.formats import FORMATS, extension_of
from dragoman.serving.admission import Admission
from dragoman.serving.disconnects import cancel_on_disconnect
from dragoman.serving.document_translation import DocumentTranslator, TranslatedDocument
from dragoman.serving.error_responses import ApiError
from dragoman.serving.limits import Limits
from dragoman.serving.request_parsing import Upload, read_body, read_upload
from dragoman.serving.schemas import FileRequest
from dragoman.serving.source_languages import AUTO, SourceLanguages, TextLanguage
from dragoman.serving.translated_files import TranslatedFiles, translated_name, write_unnamed
from dragoman.serving.translation_service import ServedModel, TranslationService

FILE_PATHS = frozenset({"/file", "/translate_file"})
JSON_LINES = "application/x-ndjson"
TIMEOUT_FACTOR = 10
DETECTION_CHARACTERS = 5000
"""Text of a file that its language is detected from."""


@dataclass(frozen=True)
class _Selection:
    """How a file is translated."""

    extension: str
    languages: Languages
    model: ServedModel | None
    """None if the file stays as it is."""


class FileApi:
    """Handlers of requests with files."""

    def __init__(self, service: TranslationService, limits: Limits, admission: Admission) -> None:
        self._service = service
        self._limits = limits
        self._admission = admission
        self._source_languages = SourceLanguages(service)
        self._files = TranslatedFiles()
        self._documents = DocumentTranslator(service)

    def close(self) -> None:
        self._files.close()
        self._documents.close()

    def timeout_s(self, path: str) -> float:
        return self._limits.timeout_s * (TIMEOUT_FACTOR if path in FILE_PATHS else 1)

    async def file(self, request: Request) -> Response:
        """Translate the body; the query names the file and the languages.

        A client that accepts JSON lines gets progress, and at last the file in base64.
        """
        name, source, target = (request.query_params.get(key, "") for key in ("name", "source", "target"))
        self._admission.check_access(request, request.query_params.get("api_key"))
        if "glossary" in request.query_params:
            raise ApiError(400, "Invalid request: /file takes no glossary: send the file to /translate_file.")
        limit = self._limits.max_document_bytes(_extension(name))
        upload = Upload(name, await read_body(request, limit, self._limits))
        selection = await self._select(upload, source, target, request.query_params.get("model"))
        if JSON_LINES in request.headers.get("accept", "") and selection.model is not None:
            progress = self._documents.stream(selection.model, upload.content, selection.extension, selection.languages)
            return StreamingResponse((_json_line(line) async for line in progress), media_type=JSON_LINES)
        translated = await cancel_on_disconnect(request, self._translate(upload, selection))
        headers = {"content-disposition": "attachment"}  # A browser must not show it as a page of this server.
        return Response(translated.content, media_type=FORMATS[selection.extension].media_type, headers=headers)

    async def translate_file(self, request: Request) -> Response:
        """Translate the file of a multipart form; answers with an address to download the result from."""
        fields, upload = await read_upload(request, FileRequest, self._limits)
        self._admission.check_access(request, fields.api_key)
        if not upload.name:
            raise ApiError(400, "Invalid request: empty file: send the file with its name.")
        selection = await self._select(upload, fields.source, fields.target, fields.model, fields.glossary)
        translated = await cancel_on_disconnect(request, self._translate(upload, selection))
        stored = await self._documents.run(write_unnamed, translated.content)
        media_type = FORMATS[selection.extension].media_type
        name = self._files.add(stored, translated_name(upload.name, fields.target), media_type)
        return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{name}", **translated.report})

    async def download_file(self, request: Request) -> Response:
        file = self._files.find(request.path_params["name"])
        if file is None:
            raise ApiError(404, "The file does not exist, or no longer: translate it again.")
        headers = {"content-disposition": f'attachment; filename="{file.name}"', "cache-control": "no-store"}
        return Response(file.read(), media_type=file.media_type, headers=headers)

    async def _select(
        self, upload: Upload, source: str, target: str, name: str | None, terms: Mapping[str, str] | None = None
    ) -> _Selection:
        """The format of a file, its languages, and the model for it."""
        extension = _extension(upload.name)
        limit = self._limits.max_document_bytes(extension)
        if len(upload.content) > limit:
            raise ApiError(413, f"The file is larger than {limit:,} bytes: send it in parts.")
        try:
            language = await self._source_language(upload.content, extension, source, target)
        except UnreadableError as error:
            raise ApiError(400, str(error)) from None
        model = self._admission.select_model(language, target, name, len(upload.content), terms)
        return _Selection(extension, Languages(language.code, target), model)

    async def _source_language(self, content: bytes, extension: str, source: str, target: str) -> TextLanguage:
        if source != AUTO:
            return TextLanguage(source)
        languages = Languages(self._service.models[0].source, target)
        document = await self._documents.parse(content, extension, languages)
        sample = "\n".join(segment.text[:DETECTION_CHARACTERS] for segment in document.segments[:DETECTION_CHARACTERS])
        [language] = await self._source_languages.find([sample[:DETECTION_CHARACTERS]], source, target)
        return language

    async def _translate(self, upload: Upload, selection: _Selection) -> TranslatedDocument:
        if selection.model is None:
            return TranslatedDocument(upload.content)
        try:
            return await self._documents.translate(
                selection.model, upload.content, selection.extension, selection.languages
            )
        except UnreadableError as error:
            raise ApiError(400, str(error)) from None


def _extension(name: str) -> str:
    try:
        return extension_of(name)
    except UnreadableError as error:
        raise ApiError(400, f"Invalid request: file format not supported: {error}") from None


def _json_line(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":")) + "\n"
