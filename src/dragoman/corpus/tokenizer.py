"""The joint SentencePiece tokenizer: trained on word counts, and applied with a cache of encoded words.

Both give exact results. SentencePiece splits sentences into words before training, so word counts give the same pieces
as sentences; and no piece spans two words, so the tokens of a sentence are those of its words.
"""

import tempfile
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import sentencepiece
from sentencepiece import sentencepiece_model_pb2, sentencepiece_pb2

from dragoman.corpus.shards import Tokens, span_indexes
from dragoman.corpus.word_index import SIDE_END, WordIndex
from dragoman.errors import DragomanError
from dragoman.settings import TokenizerSettings
from dragoman.text_lines import split_lines

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
MAX_WORDS = 2_000_000
"""Maximum number of distinct words counted; beyond it the rarest are dropped, so that memory stays bounded."""
MAX_CACHED_WORDS = 500_000
PADDING_MULTIPLE = 64
Side = Literal["source", "target"]
_WORD_START = "▁"
_MAX_WORD_BYTES = 1024  # SentencePiece reads no longer words; these are base64 data and the like.


def count_words(lines: Sequence[str]) -> Counter[str]:
    """Count words, which are separated by single spaces."""
    return Counter(" ".join(lines).split(" "))


def merge_word_counts(total: Counter[str], part: Counter[str]) -> None:
    """Add counts in place, and drop the rarest words if there are too many."""
    total.update(part)
    min_count = 2
    while len(total) > MAX_WORDS:
        for word in [word for word, count in total.items() if count < min_count]:
            del total[word]
        min_count *= 2


def train(words: Counter[str], settings: TokenizerSettings, path: Path) -> None:
    """Train a tokenizer on word counts and write it to `path`. The same counts give the same bytes."""
    with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as folder:
        table = Path(folder) / "words.tsv"
        with table.open("w", encoding="utf-8", newline="\n") as file:
            for word, count in sorted(words.items()):
                if word and len(word.encode()) <= _MAX_WORD_BYTES:
                    file.write(f"{word}\t{count}\n")
        try:
            sentencepiece.SentencePieceTrainer.train(
                input=str(table),
                input_format="tsv",
                model_prefix=str(Path(folder) / "tokenizer"),
                model_type=settings.algorithm,
                vocab_size=settings.vocabulary_size,
                hard_vocab_limit=False,
                character_coverage=settings.character_coverage,
                byte_fallback=True,
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                num_threads=1,  # More threads change the order of summation, and with it the pieces.
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).rpartition("] ")[2].strip().rstrip(".")
            raise DragomanError(
                f"The tokenizer could not be trained ({reason}): change tokenizer.vocabulary_size, or use more text."
            ) from None
        path.write_bytes(without_paths((Path(folder) / "tokenizer.model").read_bytes()))


def without_paths(model: bytes) -> bytes:
    """Remove the names of temporary files, which SentencePiece writes into the model: equal text gives equal bytes."""
    content = sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]
    content.trainer_spec.ClearField("input")
    content.trainer_spec.ClearField("model_prefix")
    return bytes(content.SerializeToString(deterministic=True))


def load_processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """The processor of a SentencePiece model."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError:
        raise DragomanError("The tokenizer is not a SentencePiece model: give a file made by SentencePiece.") from None
    return processor


class Tokenizer:
    """Text to token ids and back. Models trained here have one SentencePiece model for both languages."""

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = load_processor(model)
        if self.eos_id < 0:
            raise DragomanError("The tokenizer has no end-of-sentence piece: train one with eos_id set.")

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a SentencePiece model, or the tokenizer of an imported model."""
        from dragoman.corpus.foreign_tokenizer import ForeignTokenizer, is_archive  # A subclass.

        try:
            model = path.read_bytes()
            return ForeignTokenizer(model) if is_archive(model) else cls(model)
        except OSError as error:
            raise DragomanError(f"The tokenizer {path} cannot be read ({error.strerror}): check the path.") from None
        except DragomanError as error:
            raise DragomanError(f"{path}: {error}") from None

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        return type(self), (self._model,)

    @property
    def model(self) -> bytes:
        """The contents of the file."""
        return self._model

    def encodes_like(self, other: "Tokenizer") -> bool:
        """True if both give the same tokens for every text."""
        return self._model == other.model

    @property
    def source_model(self) -> bytes:
        """The SentencePiece model of the source language."""
        return self._model

    @cached_property
    def vocab_size(self) -> int:
        """Number of pieces in the vocabulary."""
        return int(self._processor.vocab_size())

    @cached_property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding: a multiple of 64, as tensor cores need."""
        return -(-self.vocab_size // PADDING_MULTIPLE) * PADDING_MULTIPLE

    @cached_property
    def eos_id(self) -> int:
        """The EOS token, which ends both sides."""
        return int(self._processor.eos_id())

    @cached_property
    def decoder_start_id(self) -> int:
        """The first decoder input: the BOS token, or the EOS token in models without BOS."""
        bos_id = int(self._processor.bos_id())
        return bos_id if bos_id >= 0 else self.eos_id

    @cached_property
    def unk_id(self) -> int:
        """The token for text that no piece covers."""
        return int(self._processor.unk_id())

    @cached_property
    def pad_id(self) -> int | None:
        """The padding token, or None in models without one."""
        pad_id = int(self._processor.pad_id())
        return pad_id if pad_id >= 0 else None

    @cached_property
    def source_prefix(self) -> tuple[int, ...]:
        """Tokens before each source sentence, such as the code of its language."""
        return ()

    @cached_property
    def target_prefix(self) -> tuple[int, ...]:
        """Tokens with which each translation begins."""
        return ()

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Tokens that stand for no text."""
        processor = self._processor
        return frozenset(
            token
            for token in range(self.vocab_size)
            if processor.is_control(token) or processor.is_unknown(token) or processor.is_unused(token)
        )

    @cached_property
    def pieces(self) -> list[str]:
        """All pieces by id."""
        return [str(self._processor.id_to_piece(token)) for token in range(self.vocab_size)]

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The smallest integer that holds every id."""
        return np.dtype(np.uint16 if self.padded_vocab_size <= 2**16 else np.uint32)

    @cached_property
    def encodes_word_by_word(self) -> bool:
        """True if the tokens of a sentence are those of its words.

        This requires that no piece spans words, and that there are no unknown characters (a run of them becomes one
        token, even across words). It holds for models trained here; other models are checked.
        """
        has_byte_pieces = any(self._processor.is_byte(token) for token in range(self.vocab_size))
        return has_byte_pieces and not any(_WORD_START in piece[1:] for piece in self.pieces)

    def encode(self, text: str, side: Side = "source") -> list[int]:  # noqa: ARG002 (one model for both)
        """Tokens of a sentence of a language, without prefix and EOS."""
        encoded: list[int] = self._processor.encode(text)
        return encoded

    def encode_all(self, texts: Sequence[str], side: Side = "source") -> list[list[int]]:  # noqa: ARG002
        """Tokens of many texts, without prefix and EOS; faster than one after the other."""
        encoded: list[list[int]] = self._processor.encode(texts, num_threads=1)
        return encoded

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a sentence; BOS, EOS and ids of padding rows are skipped."""
        special_tokens = (self.decoder_start_id, self.eos_id)
        ids = [token for token in map(int, tokens) if token not in special_tokens and token < self.vocab_size]
        return str(self._processor.decode(ids))

    def encode_with_spans(self, text: str, side: Side = "source") -> list[tuple[int, int, int]]:  # noqa: ARG002
        """Tokens of a sentence with the characters that they stand for: token, start, end."""
        return [(token, begin, end) for _, token, begin, end in token_spans(self._processor, text)]


def token_spans(processor: sentencepiece.SentencePieceProcessor, text: str) -> list[tuple[str, int, int, int]]:
    """Pieces of a sentence with their ids and the characters that they stand for: piece, id, start, end.

    Of the bytes of a character, or the letters that stand for a ligature, SentencePiece gives only the last a span:
    the others get the same.
    """
    encoded = processor.encode_as_serialized_proto(text)
    pieces = sentencepiece_pb2.SentencePieceText.FromString(encoded).pieces  # type: ignore[attr-defined]
    characters = [index for index, character in enumerate(text) for _ in character.encode()]  # by byte
    characters.append(len(text))
    spans: list[tuple[str, int, int, int]] = []
    begin = end = len(text)
    for piece in reversed(pieces):
        if piece.end > piece.begin:
            begin, end = characters[piece.begin], characters[piece.end]
        spans.append((piece.piece, piece.id, begin, end))
    return spans[::-1]


class CachedEncoder:
    """Encodes pairs. Each distinct word is encoded once and looked up afterwards."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._clear()

    def _clear(self) -> None:
        self._numbers = {SIDE_END: 0}
        self._tokens = array("H" if self.tokenizer.dtype.itemsize == 2 else "I", [self.tokenizer.eos_id])
        """Tokens of all words, by their numbers."""
        self._bounds = array("q", [0, 1])
        """Word n has the tokens from bounds[n] to bounds[n + 1]."""

    def encode(self, text: bytes) -> tuple[Tokens, npt.NDArray[np.int32]]:
        """Tokens of lines of pairs with a tab between their sides, and the lengths of the sides, [pairs, 2].

        Both sides begin with their prefix, if there is one, and end with EOS.
        """
        if self.tokenizer.encodes_word_by_word:
            return self.encode_index(WordIndex.from_text(text))
        tokenizer = self.tokenizer
        pairs = [line.split("\t") for line in split_lines(text.decode())]
        sources = tokenizer.encode_all([source for source, _ in pairs], "source")
        targets = tokenizer.encode_all([target for _, target in pairs], "target")
        encoded = [
            [*prefix, *tokens, tokenizer.eos_id]
            for pair in zip(sources, targets, strict=True)
            for prefix, tokens in zip((tokenizer.source_prefix, tokenizer.target_prefix), pair, strict=True)
        ]
        lengths = np.array([len(tokens) for tokens in encoded], np.int32).reshape(-1, 2)
        return np.fromiter(chain.from_iterable(encoded), self.tokenizer.dtype), lengths

    def encode_index(self, index: WordIndex) -> tuple[Tokens, npt.NDArray[np.int32]]:
        """The same for indexed text, with a tokenizer that encodes word by word."""
        words = self._look_up(index.words)
        bounds = np.array(self._bounds)
        starts, sizes = bounds[words][index.numbers], np.diff(bounds)[words][index.numbers]
        side_ends = np.cumsum(sizes)[index.side_ends]
        lengths = np.diff(side_ends, prepend=0).astype(np.int32).reshape(-1, 2)
        return np.array(self._tokens, self.tokenizer.dtype)[span_indexes(starts, sizes)], lengths

    def _look_up(self, words: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """The numbers of words; new ones are encoded."""
        if len(self._numbers) > MAX_CACHED_WORDS:
            self._clear()
        new = [word for word in words if word not in self._numbers]
        for word, tokens in zip(new, self.tokenizer.encode_all([word.decode() for word in new]), strict=True):
            self._numbers[word] = len(self._numbers)
            self._tokens.extend(tokens)
            self._bounds.append(len(self._tokens))
        return np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
