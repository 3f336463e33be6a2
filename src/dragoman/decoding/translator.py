"""A trained model that translates text: found in the folder of a run, a checkpoint or an export."""

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from dragoman.batching.packing import pack_sentences
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.beam_search import Hypothesis, SpecialTokens, search
from dragoman.decoding.ctranslate2_translator import ExportedTranslator, changed, is_exported
from dragoman.decoding.line_translator import LineTranslator, Source, batches
from dragoman.errors import DragomanError
from dragoman.export.huggingface import is_huggingface, read_m2m100
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import MODEL_FILE, StoredModel, load_model
from dragoman.model.out_of_memory import is_out_of_memory
from dragoman.model.transformer import Transformer
from dragoman.run_folder import RunFolder
from dragoman.settings import DecodingSettings

GPU_BATCH_TOKENS = 131072
"""Source tokens that a GPU translates at once, where it has the memory: fewer leave it idle, more gain nothing."""
GPU_MEMORY_SHARE = 1 / 8
"""How much of a GPU's memory keys and values of a batch may take. Short sentences take more than reckoned, scores of
the whole vocabulary come on top, and a model in training may need most of the rest."""
GPU_LOOK_AHEAD = 8192
BEST_FIRST = ("averaged", "best-bleu", "best-loss", "last")
"""Checkpoints of a run in the order in which one would translate with them."""


class Translator(LineTranslator):
    """A model that translates text on torch. Make one with `load`, or of a model in training."""

    def __init__(
        self, model: Transformer, tokenizer: Tokenizer, options: DecodingSettings, languages: Languages | None = None
    ) -> None:
        super().__init__(tokenizer, options, languages)
        self.model = model
        self._marks = marks_of(tokenizer, model.architecture.vocabulary)
        self._batch_tokens = options.batch_tokens
        if self._on_gpu:
            memory_bytes = torch.cuda.get_device_properties(model.embedding.weight.device).total_memory
            self._batch_tokens = max(options.batch_tokens, tokens_at_once(model.architecture, options, memory_bytes))
            self.look_ahead = GPU_LOOK_AHEAD

    def search(self, sources: Iterable[Source], n_best: int) -> dict[Source, list[Hypothesis]]:
        """Each different source once, those of like length together."""
        found: dict[Source, list[Hypothesis]] = {}
        for batch in batches(sources, self._batch_tokens):
            found.update(zip(batch, self._search(batch, n_best), strict=True))
        return found

    def _search(self, batch: Sequence[Source], n_best: int) -> list[list[Hypothesis]]:
        """A batch that does not fit into memory is searched in halves."""
        try:
            with self._precision():
                return search(self.model, pack_sentences(batch), self.options, self._marks, n_best)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                others = ", or set CUDA_VISIBLE_DEVICES= to use the processor" if self._on_gpu else ""
                raise DragomanError(
                    f"The memory does not suffice to translate a sentence of {len(batch[0])} tokens: end what else "
                    f"uses it, lower decoding.beam{others}."
                ) from None
        # Outside of the handler, so that the failed search and its memory are gone.
        if self._on_gpu:
            torch.cuda.empty_cache()  # While it records, torch cannot do that by itself.
        half = len(batch) // 2
        self._batch_tokens = min(self._batch_tokens, half * len(batch[0]))
        return [*self._search(batch[:half], n_best), *self._search(batch[half:], n_best)]

    @property
    def _on_gpu(self) -> bool:
        return self.model.embedding.weight.is_cuda

    def _precision(self) -> AbstractContextManager[object]:
        if not self._on_gpu:
            return nullcontext()
        with torch.cuda.device(self.model.embedding.weight.device):
            multiplies = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.autocast("cuda", dtype=torch.bfloat16) if multiplies else nullcontext()


def tokens_at_once(architecture: Architecture, options: DecodingSettings, memory_bytes: int) -> int:
    """Source tokens of a batch on a GPU with so much memory."""
    said = options.beam * max(
        1.0, options.max_length_ratio
    )  # tokens that a source's token makes room for, but for a few
    token_bytes = 4 * architecture.decoder_layers * architecture.d_model  # a key and a value in bfloat16
    return min(GPU_BATCH_TOKENS, int(GPU_MEMORY_SHARE * memory_bytes / (said * token_bytes)))


def load(path: Path | str, device: str | None = None, **decoding: Any) -> LineTranslator:
    """Read a run (its best checkpoint is taken), a checkpoint, a model folder or an export.

    Without a device, a GPU is used if there is one. `decoding` changes settings such as `beam=8`.
    """
    folder = find_model(Path(path))
    if is_exported(folder):
        threads = torch.get_num_threads()
        exported = ExportedTranslator.load(folder, device, at_once=len(os.sched_getaffinity(0)), threads=1, **decoding)
        torch.set_num_threads(threads)  # CTranslate2 sets OpenMP's number for torch, too.
        return exported
    stored = load_stored(folder, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    description = stored.description
    options = changed(description.decoding, decoding)
    return Translator(stored.model, description.tokenizer, options, description.languages)


def load_stored(folder: Path, device: str = "cpu") -> StoredModel:
    """The weights of a model folder for torch, whether under our names or Hugging Face's."""
    return read_m2m100(folder, device) if is_huggingface(folder) else load_model(folder, device)


def find_model(path: Path) -> Path:
    """The folder that holds the model: `path` itself, or the best checkpoint of the run that it is."""
    places = [path, *(folder / name for folder in (RunFolder(path).checkpoints, path) for name in BEST_FIRST)]
    for place in places:
        if (place / MODEL_FILE).exists():
            return place
    if not path.exists():
        raise DragomanError(f"There is no model {path}: check the path.")
    raise DragomanError(
        f"There is no model in {path}: give a run that has saved a checkpoint, or a folder with a {MODEL_FILE}."
    )


def marks_of(tokenizer: Tokenizer, vocabulary: int) -> SpecialTokens:
    """What a search must know of a tokenizer whose model has `vocabulary` rows."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    unsayable = [
        token
        for token in range(tokenizer.vocab_size)
        if processor.is_control(token) or processor.is_unknown(token) or processor.is_unused(token)
    ]
    forbidden = {*unsayable, *range(tokenizer.vocab_size, vocabulary)} - {tokenizer.eos_id}
    return SpecialTokens(tokenizer.decoder_start_id, tokenizer.eos_id, tuple(sorted(forbidden)))
