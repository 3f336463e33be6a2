"""Training of Hugging Face's MarianMT at the size of transformer-base, tuned as far as a user could.

bf16, a fused optimizer, batches of similar lengths, all batches on the GPU before the start, and no cuDNN attention,
which would be planned anew for each shape.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import measure_s
from dragoman.batching.batch_plan import plan_epoch
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.tokenizer import PAD_ID

LEARNING_RATE, WARMUP_STEPS, LABEL_SMOOTHING = 7e-4, 1000, 0.1
IGNORE_INDEX = -100


@dataclass(frozen=True)
class PaddedBatch:
    """A batch in MarianMT's format, on the GPU."""

    source: Tensor
    attention_mask: Tensor
    decoder_input: Tensor
    labels: Tensor
    tokens: int
    """Tokens of both sides, without padding."""


class MarianTrainer:
    """A MarianMT model with its optimizer."""

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
            self.model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self._steps = 0

    def step(self, batch: PaddedBatch) -> None:
        self._steps += 1
        for group in self._optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(self._steps / WARMUP_STEPS, (WARMUP_STEPS / self._steps) ** 0.5)
        with torch.autocast("cuda", torch.bfloat16):
            logits = self._forward(
                input_ids=batch.source,
                attention_mask=batch.attention_mask,
                decoder_input_ids=batch.decoder_input,
                use_cache=False,
            ).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE_INDEX, label_smoothing=LABEL_SMOOTHING
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def batches(self, tokens: int, count: int) -> list[PaddedBatch]:
        """The first batches of Dragoman's plan."""
        pairs, lengths = self._data.pairs("train"), self._data.pairs("train").lengths()
        plan = plan_epoch(lengths, tokens, seed=1, epoch=0)
        return [self._pad([pairs[int(pair)] for pair in plan[number]]) for number in range(min(count, len(plan)))]

    def equal_batches(self, tokens: int, length: int, count: int) -> list[PaddedBatch]:
        """Batches of one shape, the best case for a compiler: sentences of nearly `length` tokens on both sides."""
        pairs, lengths = self._data.pairs("train"), self._data.pairs("train").lengths()
        similar = np.flatnonzero((lengths.min(axis=1) >= 0.8 * length) & (lengths.max(axis=1) <= length))
        size = tokens // length
        chosen = similar[: size * count].reshape(-1, size)
        return [self._pad([pairs[int(pair)] for pair in row], length) for row in chosen]

    def _pad(self, pairs: Sequence[Any], length: int = 0) -> PaddedBatch:
        (source, source_mask), (labels, target_mask) = (
            self._pad_side([pair[side] for pair in pairs], length) for side in (0, 1)
        )
        decoder_input = labels.roll(1, dims=1)
        decoder_input[:, 0] = self._data.tokenizer.decoder_start_id
        labels = labels.masked_fill(~target_mask, IGNORE_INDEX)
        tokens = sum(len(side) for pair in pairs for side in pair)
        return PaddedBatch(source, source_mask.long(), decoder_input, labels, tokens)

    def _pad_side(self, sentences: Sequence[Any], length: int) -> tuple[Tensor, Tensor]:
        width = max(length, *map(len, sentences))
        padded = torch.full((len(sentences), width), PAD_ID, dtype=torch.long)
        for row, sentence in zip(padded, sentences, strict=True):
            row[: len(sentence)] = torch.from_numpy(sentence.astype(np.int64))
        lengths = torch.tensor([len(sentence) for sentence in sentences])
        return padded.to(self._device), (torch.arange(width) < lengths[:, None]).to(self._device)


def measure_speed(trainer: MarianTrainer, batches: Sequence[PaddedBatch]) -> tuple[float, int]:
    """Tokens per second, without padding, in a second pass over the batches; and peak memory in bytes."""

    def train() -> None:
        for batch in batches:
            trainer.step(batch)

    train()  # Shapes are new in the first pass.
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    elapsed_s = measure_s(train, "cuda")
    return sum(batch.tokens for batch in batches) / elapsed_s, torch.cuda.max_memory_allocated()


def train_for(trainer: MarianTrainer, batches: Sequence[PaddedBatch], seconds: float) -> float:
    """Train for a time, over all batches repeatedly. Returns tokens per second, without padding."""
    started_at, tokens = time.perf_counter(), 0
    for steps, batch in enumerate(_shuffle_repeatedly(batches), 1):
        trainer.step(batch)
        tokens += batch.tokens
        if steps % 50 == 0:
            torch.cuda.synchronize()
            if time.perf_counter() - started_at > seconds:
                return tokens / (time.perf_counter() - started_at)
    raise AssertionError("unreachable")


def _shuffle_repeatedly(batches: Sequence[PaddedBatch]) -> Iterator[PaddedBatch]:
    rng = np.random.default_rng(1)
    while True:
        for number in rng.permutation(len(batches)):
            yield batches[number]
