"""Translation on torch with a trained model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from dragoman.batching.packed_batch import pack_sentences
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.beam_search import search
from dragoman.decoding.ctranslate2_translator import override_settings
from dragoman.decoding.hypotheses import Hypothesis
from dragoman.decoding.line_translator import Attention, LineTranslator, SourceTokens, make_batches
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.errors import DragomanError
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import load_model
from dragoman.model.out_of_memory import FittingSize, is_out_of_memory
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings

A = TypeVar("A")
B = TypeVar("B")

GPU_BATCH_TOKENS = 131072
"""Source tokens in a batch on a GPU with enough memory: fewer leave it idle, more gain no speed."""
GPU_CACHE_SHARE = 1 / 8
"""Share of a GPU's memory for the key-value cache of a batch. Short sentences need more than estimated, logits of the
whole vocabulary come on top, and a model in training may need most of the rest."""
GPU_LOOK_AHEAD = 8192
SCORED_TOKENS = 2048
"""Tokens whose logits are computed at once when given translations are scored."""


class Translator(LineTranslator):
    """Translates on torch. Create one with `load_on_torch`, or from a model in training."""

    def __init__(
        self, model: Transformer, tokenizer: Tokenizer, options: DecodingSettings, languages: Languages | None = None
    ) -> None:
        super().__init__(tokenizer, options, languages)
        self.model = model
        self.special_tokens = SpecialTokens.from_tokenizer(tokenizer, model.architecture.vocabulary)
        batch_tokens = options.batch_tokens
        if self._on_gpu:
            memory_bytes = torch.cuda.get_device_properties(self._device).total_memory
            batch_tokens = max(batch_tokens, gpu_batch_tokens(model.architecture, options, memory_bytes))
            self.look_ahead = GPU_LOOK_AHEAD
        self.batch_tokens = FittingSize(batch_tokens)
        """Source tokens of a batch, padding included."""

    def search(self, sources: Iterable[SourceTokens], n_best: int) -> dict[SourceTokens, list[Hypothesis]]:
        found: dict[SourceTokens, list[Hypothesis]] = {}

        def search_batch(batch: Sequence[SourceTokens]) -> list[list[Hypothesis]]:
            packed = pack_sentences([(*self.tokenizer.source_prefix, *source) for source in batch])
            with Precision.for_decoding(self._device).autocast():
                return search(self.model, packed, self.options, self.special_tokens, n_best)

        for batch in make_batches(sources, self.batch_tokens.next()):
            found.update(zip(batch, self.run_in_parts(search_batch, batch, len(batch[0])), strict=True))
        return found

    def run_in_parts(self, work: Callable[[Sequence[A]], list[B]], batch: Sequence[A], longest: int) -> list[B]:
        """The results of a batch whose longest element has so many tokens; if memory runs out, in halves."""
        try:
            return work(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                alternative = ", or set CUDA_VISIBLE_DEVICES= to use the CPU" if self._on_gpu else ""
                raise DragomanError(
                    f"Out of memory at a sentence of {longest} tokens: end other programs that use the memory, "
                    f"lower decoding.beam{alternative}."
                ) from None
        # After the handler, so that the failed search and its memory are freed.
        if self._on_gpu:
            torch.cuda.empty_cache()  # During a graph capture, torch cannot do that by itself.
        half = len(batch) // 2
        self.batch_tokens.lower(half * longest)
        return [*self.run_in_parts(work, batch[:half], longest), *self.run_in_parts(work, batch[half:], longest)]

    def attention(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[Attention]:
        found: dict[tuple[SourceTokens, tuple[int, ...]], Attention] = {}
        targets: dict[SourceTokens, list[tuple[int, ...]]] = {}
        for source, target in pairs:
            targets.setdefault(source, []).append(tuple(target))
        for batch in make_batches(targets, self.batch_tokens.next()):
            batch_pairs = [(source, target) for source in batch for target in targets[source]]
            weights = self.run_in_parts(self._batch_attention, batch_pairs, len(batch[0]))
            found.update(zip(batch_pairs, weights, strict=True))
        return [found[source, tuple(target)] for source, target in pairs]

    def _batch_attention(self, pairs: Sequence[tuple[SourceTokens, tuple[int, ...]]]) -> list[Attention]:
        """Attention of the last layer, averaged over heads, at the step that generates each token."""
        longest = max(len(target) for _, target in pairs)
        start, end = self.special_tokens.decoder_start_id, self.special_tokens.eos_id
        prefix, source_prefix = self.tokenizer.target_prefix, self.tokenizer.source_prefix
        inputs = [[start, *prefix, *target, *[end] * (longest - len(target))] for _, target in pairs]
        steps = torch.tensor(inputs, device=self._device).T  # [prefix + longest + 1, S]
        with torch.inference_mode(), Precision.for_decoding(self._device).autocast():
            source = pack_sentences([(*source_prefix, *source) for source, _ in pairs]).to(self._device)
            state = self.model.start_decoding(source, beam=1, max_length=len(steps), returns_attention=True)
            weights = []
            for tokens in steps[:-1]:
                self.model.decode_step(tokens, state)
                assert state.attention is not None
                weights.append(state.attention)
        if not longest:
            return [np.zeros((0, len(source) - 1), np.float32) for source, _ in pairs]
        attention = torch.stack(weights, 1)[:, len(prefix) :, len(source_prefix) :].float().cpu().numpy()
        return [attention[index, : len(target), : len(source) - 1] for index, (source, target) in enumerate(pairs)]

    def log_probabilities(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[list[float]]:
        order = sorted(range(len(pairs)), key=lambda index: -len(pairs[index][0]) - len(pairs[index][1]))
        found: dict[int, list[float]] = {}
        while order:
            longest = sum(map(len, pairs[order[0]])) + 1
            batch = order[: max(1, self.batch_tokens.next() // longest)]
            scores = self.run_in_parts(self._batch_log_probabilities, [pairs[index] for index in batch], longest)
            found.update(zip(batch, scores, strict=True))
            del order[: len(batch)]
        return [found[index] for index in range(len(pairs))]

    def _batch_log_probabilities(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[list[float]]:
        special, prefix = self.special_tokens, self.tokenizer.target_prefix
        translations = [[*prefix, *target] for _, target in pairs]
        labels = torch.tensor([token for each in translations for token in (*each, special.eos_id)])
        with torch.inference_mode(), Precision.for_decoding(self._device).autocast():
            source = pack_sentences([(*self.tokenizer.source_prefix, *source) for source, _ in pairs]).to(self._device)
            target = pack_sentences([[special.decoder_start_id, *each] for each in translations]).to(self._device)
            hidden = self.model.decode(self.model.encode(source), source.layout, target)  # [T, d]
            parts = zip(*(torch.split(each, SCORED_TOKENS) for each in (hidden, labels.to(self._device))), strict=True)
            # A part at a time, so that the logits of the whole vocabulary fit into memory.
            nll = [F.cross_entropy(self.model.logits(part).float(), label, reduction="none") for part, label in parts]
        by_pair = torch.split(torch.cat(nll).neg().cpu(), [len(each) + 1 for each in translations])
        return [each[len(prefix) :].tolist() for each in by_pair]

    @property
    def _device(self) -> torch.device:
        return self.model.embedding.weight.device

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"


def gpu_batch_tokens(architecture: Architecture, options: DecodingSettings, memory_bytes: int) -> int:
    """Source tokens of a batch on a GPU with `memory_bytes`."""
    cached_tokens = options.beam * max(1.0, options.max_length_ratio)  # per source token, approximately
    token_bytes = 4 * architecture.decoder_layers * architecture.d_model  # a key and a value in bfloat16
    return min(GPU_BATCH_TOKENS, int(GPU_CACHE_SHARE * memory_bytes / (cached_tokens * token_bytes)))


def load_on_torch(folder: Path, device: str | None, decoding: Mapping[str, Any]) -> Translator:
    """Load a model folder. Without a device, a GPU is used if there is one."""
    loaded = load_model(folder, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    description = loaded.description
    options = override_settings(description.decoding, decoding)
    return Translator(loaded.model, description.tokenizer, options, description.languages)
