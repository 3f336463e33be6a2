"""The joint SentencePiece tokenizer: trained on word counts, applied through a cache of words.

Both are exact. SentencePiece itself cuts sentences into words before it learns, so that counts of words teach it the
same pieces as the sentences would; and no piece spans two words, so that a sentence's tokens are those of its words.
"""

import tempfile
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from dragoman.errors import DragomanError
from dragoman.settings import TokenizerSettings

PAD, UNKNOWN, START, END = 0, 1, 2, 3
WORD_LIMIT = 2_000_000
"""Most distinct words that are counted at once; past it the rarest are forgotten, so that memory stays bounded."""
CACHE_LIMIT = 500_000
PADDING_MULTIPLE = 64
_WORD_MARK = "▁"
_LONGEST_WORD_BYTES = 1024  # SentencePiece reads no longer ones; base64 lumps and the like teach nothing.


def count_words(lines: Sequence[str]) -> Counter[str]:
    """How often each word occurs. Words are what stands between single spaces."""
    return Counter(" ".join(lines).split(" "))


def add_words(total: Counter[str], part: Counter[str]) -> None:
    """Add counts in place, forgetting the rarest words where there are too many."""
    total.update(part)
    fewest = 2
    while len(total) > WORD_LIMIT:
        for word in [word for word, count in total.items() if count < fewest]:
            del total[word]
        fewest *= 2


def train(words: Counter[str], settings: TokenizerSettings, path: Path) -> None:
    """Learn a tokenizer from word counts and write it to `path`. The same counts give the same bytes."""
    with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as folder:
        table = Path(folder) / "words.tsv"
        with table.open("w", encoding="utf-8") as file:
            for word, count in sorted(words.items()):
                if word and len(word.encode()) <= _LONGEST_WORD_BYTES:
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
                pad_id=PAD,
                unk_id=UNKNOWN,
                bos_id=START,
                eos_id=END,
                num_threads=1,  # Threads change the order of sums, and with it the pieces.
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).rpartition("] ")[2].strip().rstrip(".")
            raise DragomanError(
                f"The tokenizer could not be trained ({reason}): choose another tokenizer.vocabulary_size or more text."
            ) from None
        path.write_bytes(_without_paths((Path(folder) / "tokenizer.model").read_bytes()))


def _without_paths(model: bytes) -> bytes:
    """SentencePiece writes the names of its temporary files into the model; equal text shall give equal bytes."""
    content = sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]
    content.trainer_spec.ClearField("input")
    content.trainer_spec.ClearField("model_prefix")
    return bytes(content.SerializeToString(deterministic=True))


class Tokenizer:
    """Text to token ids and back."""

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError:
            raise DragomanError(
                "The tokenizer is not a SentencePiece model: give a file made by SentencePiece."
            ) from None
        if self.end < 0:
            raise DragomanError("The tokenizer has no end-of-sentence piece: train one with eos_id set.")

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise DragomanError(f"The tokenizer {path} cannot be read ({error.strerror}): check the path.") from None
        except DragomanError as error:
            raise DragomanError(f"{path}: {error}") from None

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        return Tokenizer, (self._model,)

    @property
    def model(self) -> bytes:
        """The SentencePiece model, as written to disk."""
        return self._model

    @cached_property
    def size(self) -> int:
        """Number of pieces."""
        return int(self._processor.vocab_size())

    @cached_property
    def padded_size(self) -> int:
        """Rows of the embedding: matrix units want a multiple of 64."""
        return -(-self.size // PADDING_MULTIPLE) * PADDING_MULTIPLE

    @cached_property
    def end(self) -> int:
        """The mark after the last token of a sentence, on both sides."""
        return int(self._processor.eos_id())

    @cached_property
    def start(self) -> int:
        """What the decoder sees first: the start mark, or the end mark in models without one."""
        start = int(self._processor.bos_id())
        return start if start >= 0 else self.end

    @cached_property
    def unknown(self) -> int:
        """What stands for text that no piece covers."""
        return int(self._processor.unk_id())

    @cached_property
    def padding(self) -> int | None:
        """What fills a grid of sentences; None in models without one."""
        padding = int(self._processor.pad_id())
        return padding if padding >= 0 else None

    @cached_property
    def pieces(self) -> list[str]:
        """All pieces by id."""
        return [str(self._processor.id_to_piece(token)) for token in range(self.size)]

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The smallest integer that holds every id."""
        return np.dtype(np.uint16 if self.padded_size <= 2**16 else np.uint32)

    @cached_property
    def works_by_word(self) -> bool:
        """Whether a sentence's tokens are those of its words.

        So it is where no piece spans words and nothing is unknown (a run of unknown characters makes one token even
        across words). Models trained here are so; a given one is asked.
        """
        has_bytes = any(self._processor.is_byte(token) for token in range(self.size))
        return has_bytes and not any(_WORD_MARK in piece[1:] for piece in self.pieces)

    def encode(self, text: str) -> list[int]:
        """Tokens of a sentence, without its end mark."""
        encoded: list[int] = self._processor.encode(text)
        return encoded

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a sentence; marks and ids of padding rows are passed over."""
        marks = (self.start, self.end)
        return str(self._processor.decode([t for t in map(int, tokens) if t not in marks and t < self.size]))


class BulkEncoder:
    """Encodes corpora: each distinct word once, then looked up. About ten times as fast as sentence by sentence."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._cache = _WordCache(tokenizer)
        self._end = as_bytes([tokenizer.end], tokenizer.dtype)

    def encode(self, line: bytes) -> bytes:
        """Tokens of a sentence, given in UTF-8, with its end mark: the bytes of an array of the tokenizer's dtype."""
        if self.tokenizer.works_by_word:
            if len(self._cache) > CACHE_LIMIT:
                self._cache.clear()
            return b"".join(map(self._cache.__getitem__, line.split(b" "))) + self._end
        return as_bytes(self.tokenizer.encode(line.decode()), self.tokenizer.dtype) + self._end


class _WordCache(dict[bytes, bytes]):
    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: bytes) -> bytes:
        tokens = self[word] = as_bytes(self._tokenizer.encode(word.decode()), self._tokenizer.dtype)
        return tokens


def as_bytes(tokens: Sequence[int], dtype: np.dtype[np.unsignedinteger]) -> bytes:
    """The bytes of an array; several times as fast as numpy for a handful of numbers."""
    return array("H" if dtype.itemsize == 2 else "I", tokens).tobytes()
