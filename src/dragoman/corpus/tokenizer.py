"""The joint SentencePiece tokenizer: trained on word counts, and applied with a cache of encoded words.

Both give exact results. SentencePiece splits sentences into words before training, so word counts give the same pieces
as sentences; and no piece spans two words, so the tokens of a sentence are those of its words.
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

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
MAX_WORDS = 2_000_000
"""Maximum number of distinct words counted; beyond it the rarest are dropped, so that memory stays bounded."""
MAX_CACHED_WORDS = 500_000
PADDING_MULTIPLE = 64
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
        path.write_bytes(_without_paths((Path(folder) / "tokenizer.model").read_bytes()))


def _without_paths(model: bytes) -> bytes:
    """Remove the names of temporary files, which SentencePiece writes into the model: equal text gives equal bytes."""
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
        if self.eos_id < 0:
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

    def encode(self, text: str) -> list[int]:
        """Tokens of a sentence, without EOS."""
        encoded: list[int] = self._processor.encode(text)
        return encoded

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a sentence; BOS, EOS and ids of padding rows are skipped."""
        special_tokens = (self.decoder_start_id, self.eos_id)
        ids = [token for token in map(int, tokens) if token not in special_tokens and token < self.vocab_size]
        return str(self._processor.decode(ids))


class CachedEncoder:
    """Encodes each distinct word once and looks it up afterwards: about ten times as fast as whole sentences."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._cache = _WordCache(tokenizer)
        self._end = token_bytes([tokenizer.eos_id], tokenizer.dtype)

    def encode(self, line: bytes) -> bytes:
        """Tokens of a UTF-8 sentence with EOS, as the bytes of an array of the tokenizer's dtype."""
        if self.tokenizer.encodes_word_by_word:
            if len(self._cache) > MAX_CACHED_WORDS:
                self._cache.clear()
            return b"".join(map(self._cache.__getitem__, line.split(b" "))) + self._end
        return token_bytes(self.tokenizer.encode(line.decode()), self.tokenizer.dtype) + self._end


class _WordCache(dict[bytes, bytes]):
    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: bytes) -> bytes:
        tokens = self[word] = token_bytes(self._tokenizer.encode(word.decode()), self._tokenizer.dtype)
        return tokens


def token_bytes(tokens: Sequence[int], dtype: np.dtype[np.unsignedinteger]) -> bytes:
    """Token ids as array bytes; several times as fast as numpy for a few ids."""
    return array("H" if dtype.itemsize == 2 else "I", tokens).tobytes()
