"""Limits of the server: text sizes, concurrency, rates and timeouts."""

from dataclasses import dataclass

from dragoman.documents.formats import FORMATS
from dragoman.http_server import READ_TIMEOUT_S


@dataclass(frozen=True)
class Limits:
    """Limits of the server. The defaults suit a machine with a few cores."""

    max_characters: int = 20_000
    """Characters of text per request."""
    max_file_bytes: int = 1 << 20
    max_package_bytes: int = 16 << 20
    """Files that are archives, such as DOCX: most of their size is images."""
    max_requests: int = 64
    """Requests in progress at once, after they have arrived; further ones are rejected."""
    max_waiting: int = 256
    """Sentences in a model's queue; at this length, new requests are rejected."""
    requests_per_minute: int = 0
    """Requests per client; 0 means no limit."""
    timeout_s: float = 30.0
    """Time for a request, from its first byte to the last byte of the response; ten times as long for files."""
    read_timeout_s: float = READ_TIMEOUT_S
    """Time for a client to send its request."""

    def max_document_bytes(self, extension: str) -> int:
        return self.max_package_bytes if FORMATS[extension].is_package else self.max_file_bytes

    @property
    def max_body_bytes(self) -> int:
        """Limit of a JSON or form body.

        A character takes up to 12 bytes: two escapes in JSON, or four in a form. The other fields are short.
        """
        return 12 * self.max_characters + 4096
