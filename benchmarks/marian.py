"""Hugging Face's MarianMT at the size of transformer-base, trained as well as its users could: bf16, a fused optimizer,
batches of like length, all of them on the GPU beforehand, and no attention of cuDNN's, which plans anew for each shape.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragoman.batching.plan import plan_epoch
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.tokenizer import PAD_ID

RATE, WARMUP_STEPS, LABEL_SMOOTHING = 7e-4, 1000, 0.1
IGNORED = -100


@dataclass(frozen=True)
class Padded:
    """A batch as MarianMT wants it, on the GPU."""

    source: Tensor
    mask: Tensor
    read: Tensor
    labels: Tensor
    tokens: int
    """Of both sides, padding not counted."""


class Marian:
    """A model in training."""

    def __init__(self, data: DataSet, device: torch.device, *, compiled: bool = False) -> None:
        from transformers import MarianConfig, MarianMTModel

        torch.backends.cuda.enable_cudnn_sdp(False)
        tokenizer = data.tokenizer
        config = MarianConfig(
            vocab_size=tokenizer.padded_vocab_size, d_model=512, encoder_layers=6, decoder_layers=6,
            encoder_attention_heads=8, decoder_attention_heads=8,
            encoder_ffn_dim=2048, decoder_ffn_dim=2048, dropout=0.1,
            max_position_embeddings=512, pad_token_id=PAD_ID, eos_token_id=tokenizer.eos_id,
            bos_token_id=tokenizer.decoder_start_id, decoder_start_token_id=tokenizer.decoder_start_id,
            forced_eos_token_id=None, scale_embedding=True,
            activation_function="relu", tie_word_embeddings=True,
        )  # fmt: skip
        torch.manual_seed(1)
        self.model: Any = MarianMTModel(config).to(device).train()
        self._data, self._device = data, device
        self._forward = torch.compile(self.model, dynamic=False) if compiled else self.model
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self._steps = 0

    def step(self, batch: Padded) -> None:
        self._steps += 1
        for group in self._optimizer.param_groups:
            group["lr"] = RATE * min(self._steps / WARMUP_STEPS, (WARMUP_STEPS / self._steps) ** 0.5)
        with torch.autocast("cuda", torch.bfloat16):
            logits = self._forward(
                input_ids=batch.source, attention_mask=batch.mask, decoder_input_ids=batch.read, use_cache=False
            ).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED, label_smoothing=LABEL_SMOOTHING
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def batches(self, tokens: int, count: int) -> list[Padded]:
        """The first batches of our plan."""
        pairs, lengths = self._data.pairs("train"), self._data.pairs("train").lengths()
        plan = plan_epoch(lengths, tokens, seed=1, epoch=0)
        return [self._pad([pairs[int(pair)] for pair in plan[number]]) for number in range(min(count, len(plan)))]

    def equal_batches(self, tokens: int, length: int, count: int) -> list[Padded]:
        """Batches of one shape, as a compiler likes them best: sentences of almost `length` tokens on both sides."""
        pairs, lengths = self._data.pairs("train"), self._data.pairs("train").lengths()
        alike = np.flatnonzero((lengths.min(axis=1) >= 0.8 * length) & (lengths.max(axis=1) <= length))
        size = tokens // length
        chosen = alike[: size * count].reshape(-1, size)
        return [self._pad([pairs[int(pair)] for pair in row], length) for row in chosen]

    def _pad(self, pairs: Sequence[Any], length: int = 0) -> Padded:
        sides = [self._grid([pair[side] for pair in pairs], length) for side in (0, 1)]
        (source, _), (labels, target_mask) = sides
        read = labels.roll(1, dims=1)
        read[:, 0] = self._data.tokenizer.decoder_start_id
        labels = labels.masked_fill(~target_mask, IGNORED)
        tokens = sum(len(side) for pair in pairs for side in pair)
        return Padded(source, sides[0][1].long(), read, labels, tokens)

    def _grid(self, sentences: Sequence[Any], length: int) -> tuple[Tensor, Tensor]:
        width = max(length, *map(len, sentences))
        grid = torch.full((len(sentences), width), PAD_ID, dtype=torch.long)
        for row, sentence in zip(grid, sentences, strict=True):
            row[: len(sentence)] = torch.from_numpy(sentence.astype(np.int64))
        lengths = torch.tensor([len(sentence) for sentence in sentences])
        return grid.to(self._device), (torch.arange(width) < lengths[:, None]).to(self._device)


def speed(marian: Marian, batches: Sequence[Padded]) -> tuple[float, int]:
    """Real tokens a second once every shape was seen, and the most bytes that were in use."""
    for batch in batches:
        marian.step(batch)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    started_at = time.perf_counter()
    for batch in batches:
        marian.step(batch)
    torch.cuda.synchronize()
    elapsed_s = time.perf_counter() - started_at
    return sum(batch.tokens for batch in batches) / elapsed_s, torch.cuda.max_memory_allocated()


def learn(marian: Marian, batches: Sequence[Padded], seconds: float) -> float:
    """Train for so long, over all batches again and again. Gives tokens a second."""
    started_at, tokens = time.perf_counter(), 0
    for batch in _forever(batches):
        marian.step(batch)
        tokens += batch.tokens
        if marian._steps % 50 == 0:
            torch.cuda.synchronize()
            if time.perf_counter() - started_at > seconds:
                return tokens / (time.perf_counter() - started_at)
    raise AssertionError("unreachable")


def _forever(batches: Sequence[Padded]) -> Iterator[Padded]:
    order = np.random.default_rng(1)
    while True:
        for number in order.permutation(len(batches)):
            yield batches[number]
