"""Transformers' `generate` with the weights of a run, text to text, as a peer for translation of large texts.

Its batches hold sentences of similar length, as many as fit into a number of tokens, and that number is the one of
several with which it is fastest. It has half precision on a GPU, the beam and the limits of length of ours, and no
length penalty: with one, the two would not search for the same.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from dragoman.decoding.length_rules import max_length
from dragoman.decoding.line_translator import MAX_SEGMENT_TOKENS

BATCH_TOKENS = (8192, 16384, 32768, 65536)
"""Source tokens of a batch, padding included, that are tried."""


class GeneratePeer:
    """A model of transformers on a device."""

    def __init__(self, folder: Path, device: str, *, beam: int, max_length_ratio: float) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        torch.backends.cuda.enable_cudnn_sdp(False)  # It makes `generate` several times slower.
        self._device, self._beam, self._max_length_ratio = device, beam, max_length_ratio
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        self.batch_tokens = BATCH_TOKENS[0]

    def choose_batches(self, lines: Sequence[str]) -> dict[int, float]:
        """Set the size of batches with which these lines are translated fastest. Returns the lines a second of each."""
        self.translate(lines[:64])
        rates: dict[int, float] = {}
        for self.batch_tokens in BATCH_TOKENS:
            try:
                rates[self.batch_tokens] = self.lines_per_s(lines)
            except torch.OutOfMemoryError:
                break
            finally:
                torch.cuda.empty_cache()
        self.batch_tokens = max(rates, key=lambda tokens: rates[tokens])
        return rates

    def lines_per_s(self, lines: Sequence[str]) -> float:
        started_s = time.monotonic()
        self.translate(lines)
        return len(lines) / (time.monotonic() - started_s)

    def translate(self, lines: Sequence[str]) -> list[str]:
        encoded = self._tokenizer(list(lines), truncation=True, max_length=MAX_SEGMENT_TOKENS)["input_ids"]
        found: list[str] = [""] * len(lines)
        for batch in self._batches(encoded):
            inputs = self._tokenizer.pad({"input_ids": [encoded[index] for index in batch]}, return_tensors="pt")
            limit = max_length(len(encoded[batch[0]]), self._max_length_ratio)
            with torch.inference_mode():
                tokens = self._model.generate(
                    **inputs.to(self._device), num_beams=self._beam, do_sample=False, early_stopping=False,
                    length_penalty=0.0, max_length=None, max_new_tokens=limit,
                )  # fmt: skip
            for index, text in zip(batch, self._tokenizer.batch_decode(tokens, skip_special_tokens=True), strict=True):
                found[index] = text
        return found

    def _batches(self, encoded: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indexes of the sentences of each batch, the longest first."""
        batch: list[int] = []
        for index in sorted(range(len(encoded)), key=lambda index: -len(encoded[index])):
            if batch and (len(batch) + 1) * len(encoded[batch[0]]) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(index)
        yield batch
