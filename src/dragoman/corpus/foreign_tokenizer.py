"""Tokenizers of imported models: pieces of SentencePiece, numbered by a vocabulary of their own.

MarianMT has a SentencePiece model for each language, and one vocabulary for both. M2M100 and NLLB have one model, and
each sentence begins with the code of its language. Such a tokenizer is one file like any other, `tokenizer.model`: an
archive of the original files, so that an export for Hugging Face has them unchanged, and a description.
"""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import sentencepiece

from dragoman.corpus.tokenizer import Side, Tokenizer, load_processor, token_spans, without_paths
from dragoman.errors import DragomanError

DESCRIPTION_NAME = "dragoman.json"
REBUILT_MODEL = "rebuilt.spm"
"""A SentencePiece model that the folder had only in another form."""
_WORD_START = "▁"


@dataclass(frozen=True)
class ForeignVocabulary:
    """The numbering of pieces, and the tokens with a meaning."""

    pieces: Sequence[str]
    """Pieces by id."""
    rows: int
    """Rows of the model's embedding."""
    pad_id: int
    unk_id: int
    eos_id: int
    decoder_start_id: int
    source_prefix: Sequence[int]
    """Tokens before each source sentence."""
    target_prefix: Sequence[int]
    """Tokens with which each translation begins."""
    special_ids: Sequence[int]
    """Tokens that stand for no text."""
    source_model: str
    """Name of the SentencePiece model of the source language in the archive."""
    target_model: str


def make_tokenizer(vocabulary: ForeignVocabulary, files: Mapping[str, bytes]) -> "ForeignTokenizer":
    """Pack a tokenizer. Equal arguments give equal bytes."""
    packed = io.BytesIO()
    description = json.dumps(asdict(vocabulary), ensure_ascii=False).encode()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in {DESCRIPTION_NAME: description, **{name: files[name] for name in sorted(files)}}.items():
            archive.writestr(zipfile.ZipInfo(name), content)  # Without a time, and not compressed.
    return ForeignTokenizer(packed.getvalue())


def is_archive(model: bytes) -> bool:
    """True for the bytes of such a tokenizer: no SentencePiece model begins like an archive."""
    return model.startswith(b"PK")


class ForeignTokenizer(Tokenizer):
    """Text to token ids and back, by the tokenizer of an imported model."""

    def __init__(self, model: bytes) -> None:
        self._model = model
        try:
            with zipfile.ZipFile(io.BytesIO(model)) as archive:
                self.files = {name: archive.read(name) for name in archive.namelist() if name != DESCRIPTION_NAME}
                self._vocabulary = ForeignVocabulary(**json.loads(archive.read(DESCRIPTION_NAME)))
            self._processor, self._target_processor = (
                load_processor(self.files[name])
                for name in (self._vocabulary.source_model, self._vocabulary.target_model)
            )
        except (zipfile.BadZipFile, KeyError, TypeError, ValueError, EOFError, NotImplementedError) as error:
            raise DragomanError(f"The tokenizer is damaged ({error}): restore it, or import the model again.") from None
        self._ids = {piece: token for token, piece in enumerate(self._vocabulary.pieces)}

    @cached_property
    def vocab_size(self) -> int:
        return len(self._vocabulary.pieces)

    @cached_property
    def padded_vocab_size(self) -> int:
        return self._vocabulary.rows

    @cached_property
    def eos_id(self) -> int:
        return self._vocabulary.eos_id

    @cached_property
    def decoder_start_id(self) -> int:
        return self._vocabulary.decoder_start_id

    @cached_property
    def unk_id(self) -> int:
        return self._vocabulary.unk_id

    @cached_property
    def pad_id(self) -> int | None:
        return self._vocabulary.pad_id

    @cached_property
    def source_prefix(self) -> tuple[int, ...]:
        return tuple(self._vocabulary.source_prefix)

    @cached_property
    def target_prefix(self) -> tuple[int, ...]:
        return tuple(self._vocabulary.target_prefix)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self._vocabulary.special_ids)

    @cached_property
    def pieces(self) -> list[str]:
        return list(self._vocabulary.pieces)

    @cached_property
    def encodes_word_by_word(self) -> bool:
        return False

    @property
    def source_model(self) -> bytes:
        return self.files[self._vocabulary.source_model]

    def encodes_like(self, other: Tokenizer) -> bool:
        """Other files, such as the configuration of a tokenizer, may differ."""
        if not isinstance(other, ForeignTokenizer) or self._vocabulary != other._vocabulary:
            return False
        names = self._vocabulary.source_model, self._vocabulary.target_model
        return all(without_paths(self.files[name]) == without_paths(other.files[name]) for name in names)

    @property
    def original_files(self) -> dict[str, bytes]:
        """The files of the imported folder, by name."""
        return {name: content for name, content in self.files.items() if name != REBUILT_MODEL}

    def encode(self, text: str, side: Side = "source") -> list[int]:
        return self._to_ids(self._processor_of(side).encode(text, out_type=str))

    def encode_all(self, texts: Sequence[str], side: Side = "source") -> list[list[int]]:
        encoded = self._processor_of(side).encode(list(texts), out_type=str, num_threads=1)
        return [self._to_ids(pieces) for pieces in encoded]

    def decode(self, tokens: Sequence[int]) -> str:
        ids = [token for token in map(int, tokens) if token not in self.special_ids and token < self.vocab_size]
        text = self._target_processor.decode_pieces([self._vocabulary.pieces[token] for token in ids])
        return str(text).replace(_WORD_START, " ").strip()  # The piece of another language keeps its mark.

    def encode_with_spans(self, text: str, side: Side = "source") -> list[tuple[int, int, int]]:
        unknown = self._vocabulary.unk_id
        return [
            (self._ids.get(piece, unknown), begin, end)
            for piece, _, begin, end in token_spans(self._processor_of(side), text)
        ]

    def _processor_of(self, side: Side) -> sentencepiece.SentencePieceProcessor:
        return self._processor if side == "source" else self._target_processor

    def _to_ids(self, pieces: Sequence[Any]) -> list[int]:
        return [self._ids.get(piece, self._vocabulary.unk_id) for piece in pieces]
