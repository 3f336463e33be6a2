"""Handlers that translate files: LibreTranslate's `/translate_file` and `/download_file`, and `/file`."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serving import documents
from dragoman.serving.admission import Admission
from dragoman.serving.disconnects import cancel_on_disconnect
from dragoman.serving.error_responses import ApiError
from dragoman.serving.limits import Limits
from dragoman.serving.request_parsing import read_body, read_upload
from dragoman.serving.schemas import FileRequest
from dragoman.serving.source_languages import AUTO, SourceLanguages, TextLanguage
from dragoman.serving.translated_files import TranslatedFiles, translated_name, write_unnamed
from dragoman.serving.translation_service import ServedModel, TranslationService
from dragoman.serving.worker_thread import WorkerThread

FILE_PATHS = frozenset({"/file", "/translate_file"})
TIMEOUT_FACTOR = 10
DETECTION_CHARACTERS = 5000
"""Text of a file that its language is detected from."""


class FileApi:
    """Handlers of requests with files."""

    def __init__(self, service: TranslationService, limits: Limits, admission: Admission) -> None:
        self._service = service
        self._limits = limits
        self._admission = admission
        self._source_languages = SourceLanguages(service)
        self._files = TranslatedFiles()
        self._thread = WorkerThread("documents")

    def close(self) -> None:
        self._files.close()
        self._thread.close()

    def timeout_s(self, path: str) -> float:
        return self._limits.timeout_s * (TIMEOUT_FACTOR if path in FILE_PATHS else 1)

    async def file(self, request: Request) -> Response:
        """Translate the body; the query names the file and the languages."""
        name, source, target = (request.query_params.get(key, "") for key in ("name", "source", "target"))
        self._admission.check_access(request, request.query_params.get("api_key"))
        extension = _extension(name)
        content = await read_body(request, self._limits.max_file_bytes, self._limits)
        model_name = request.query_params.get("model")
        translated = await cancel_on_disconnect(
            request, self._translate(content, extension, source, target, model_name)
        )
        return Response(translated, media_type=documents.FORMATS[extension])

    async def translate_file(self, request: Request) -> Response:
        """Translate the file of a multipart form; answers with an address to download the result from."""
        fields, upload = await read_upload(request, FileRequest, self._limits)
        self._admission.check_access(request, fields.api_key)
        if not upload.name:
            raise ApiError(400, "Invalid request: empty file: send the file with its name.")
        extension = _extension(upload.name)
        translated = await cancel_on_disconnect(
            request, self._translate(upload.content, extension, fields.source, fields.target, fields.model)
        )
        stored = await self._thread.run(write_unnamed, translated)
        name = self._files.add(stored, translated_name(upload.name, fields.target), documents.FORMATS[extension])
        return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{name}"})

    async def download_file(self, request: Request) -> Response:
        file = self._files.find(request.path_params["name"])
        if file is None:
            raise ApiError(404, "The file does not exist, or no longer: translate it again.")
        headers = {"content-disposition": f'attachment; filename="{file.name}"', "cache-control": "no-store"}
        return Response(file.read(), media_type=file.media_type, headers=headers)

    async def _translate(self, content: bytes, extension: str, source: str, target: str, name: str | None) -> bytes:
        try:
            language = await self._source_language(content, extension, source, target)
            model = self._admission.select_model(language, target, name, len(content))
            if model is None:
                return content
            return await self._translate_document(model, content, extension, language.code, target)
        except documents.UnreadableError as error:
            raise ApiError(400, str(error)) from None

    async def _source_language(self, content: bytes, extension: str, source: str, target: str) -> TextLanguage:
        if source != AUTO:
            return TextLanguage(source)
        document = await self._thread.run(documents.parse, content, extension, self._service.models[0].source, target)
        sample = "\n".join(text[:DETECTION_CHARACTERS] for text in document.texts[:DETECTION_CHARACTERS])
        [language] = await self._source_languages.find([sample[:DETECTION_CHARACTERS]], source, target)
        return language

    async def _translate_document(
        self, model: ServedModel, content: bytes, extension: str, source: str, target: str
    ) -> bytes:
        document = await self._thread.run(documents.parse, content, extension, source, target)
        translations = [await self._service.translate(model, text) for text in document.texts]
        return await self._thread.run(document.render, translations)


def _extension(name: str) -> str:
    extension = name.rpartition(".")[2].lower()
    if extension not in documents.FORMATS:
        supported = ", ".join(f".{known}" for known in documents.FORMATS)
        raise ApiError(
            400,
            f"Invalid request: file format not supported: the name '{name[-40:]}' does not end in {supported}.",
        )
    return extension
