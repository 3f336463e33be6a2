"""Sampling: translations drawn from the model's distribution, token by token.

The noise of a token is a hash of the seed, the number of its line, its candidate, its position and its piece. So a line
has the same translations in any batch, on any machine whose arithmetic is the same.

Shapes: N translations, V vocabulary, K tokens that may be drawn, R capacity for tokens.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dragoman.batching.packed_batch import pack_sentences
from dragoman.decoding.hypotheses import Hypothesis
from dragoman.decoding.length_rules import length_penalty, max_length
from dragoman.decoding.line_translator import Candidate, EncodedLines, Found, SourceTokens
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.decoding.translator import Translator
from dragoman.model.dropout import COUNTER_FACTOR, hashed_bits, mix_bits_
from dragoman.model.precision import Precision

REMOVAL_STEPS = 8
"""Steps between two reads of which translations have ended: each read waits for a GPU."""
_NOISE_BITS = 23
"""As many as a float32 of the middle of an interval can represent."""


@dataclass(frozen=True)
class SamplingSettings:
    """How tokens are drawn."""

    temperature: float = 1.0
    """Below 1, likely tokens become more likely."""
    top_k: int = 0
    """Most likely tokens of which one is drawn; 0 is all."""
    seed: int = 1


@dataclass(frozen=True)
class _Draw:
    """One translation to be drawn of one segment of a line."""

    line: int
    segment: int
    candidate: int
    source: SourceTokens


class LineSampler:
    """Draws translations of lines with the model of a translator."""

    def __init__(self, translator: Translator, sampling: SamplingSettings) -> None:
        self._translator, self._sampling = translator, sampling

    def sample(self, lines: Sequence[str], first_line: int, count: int) -> list[list[Candidate]]:
        """`count` translations of each line, equal ones once. `first_line` is the number of the first line."""
        encoded = self._translator.encode_lines(lines)
        drawn = self.draw(encoded, first_line, count)
        joined = (self._translator.join(*line) for line in zip(encoded.segments, drawn, strict=True))
        return [translation.candidates(count) for translation in joined]

    def draw(self, lines: EncodedLines, first_line: int, count: int) -> list[Found]:
        """`count` translations of all segments of each line."""
        draws = [
            _Draw(line, number, candidate, source)
            for line, sources in enumerate(lines.sources, first_line)
            for number, source in enumerate(sources)
            for candidate in range(count)
        ]
        found = self._draw(draws)
        return [
            [[found[line, number, candidate] for candidate in range(count)] for number in range(len(sources))]
            for line, sources in enumerate(lines.sources, first_line)
        ]

    def _draw(self, draws: Sequence[_Draw]) -> dict[tuple[int, int, int], Hypothesis]:
        found = {}
        for batch in self._batches(draws):
            drawn = self._translator.run_in_parts(self._sample_batch, batch, len(batch[0].source))
            for draw, hypothesis in zip(batch, drawn, strict=True):
                found[draw.line, draw.segment, draw.candidate] = hypothesis
        return found

    def _batches(self, draws: Sequence[_Draw]) -> list[list[_Draw]]:
        """Batches of similar length, the longest first."""
        batches: list[list[_Draw]] = []
        most = self._translator.batch_tokens.next()
        for draw in sorted(draws, key=lambda draw: -len(draw.source)):
            if not batches or (len(batches[-1]) + 1) * len(batches[-1][0].source) > most:
                batches.append([])
            batches[-1].append(draw)
        return batches

    def _sample_batch(self, batch: Sequence[_Draw]) -> list[Hypothesis]:
        translator = self._translator
        device = translator.model.embedding.weight.device
        on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with torch.inference_mode(), on_device, Precision.for_decoding(device).autocast():
            return _Samples(translator, batch, self._sampling).run()


class _Samples:
    """The unfinished translations of a batch."""

    def __init__(self, translator: Translator, batch: Sequence[_Draw], sampling: SamplingSettings) -> None:
        self._model, self._sampling, self._options = translator.model, sampling, translator.options
        special: SpecialTokens = translator.special_tokens
        device = self._model.embedding.weight.device
        prefix = translator.tokenizer.source_prefix
        source = pack_sentences([(*prefix, *draw.source) for draw in batch])
        limits = [max_length(len(prefix) + len(draw.source), self._options.max_length_ratio) for draw in batch]
        *given, last = (special.decoder_start_id, *special.target_prefix)
        capacity = len(given) + max(limits)
        self._state = self._model.start_decoding(source.to(device), beam=1, max_length=capacity)
        for token in given:
            self._model.decode_step(torch.full((len(batch),), token, device=device), self._state)
        self._end = special.eos_id
        self._forbidden = torch.tensor(special.forbidden, dtype=torch.long, device=device)
        self._last = torch.full((len(batch),), last, device=device)
        self._limits = torch.tensor(limits, device=device)
        self._keys = torch.from_numpy(_keys(batch)).to(device)
        self._seed = torch.from_numpy(np.random.SeedSequence(sampling.seed).generate_state(2).view(np.int32)).to(device)
        self._log_probabilities = torch.zeros(len(batch), device=device)
        self._done = torch.zeros(len(batch), dtype=torch.bool, device=device)
        self._tokens = torch.full((len(batch), max(limits)), self._end, device=device)
        self._places = list(range(len(batch)))
        self._found: list[Hypothesis | None] = [None] * len(batch)

    def run(self) -> list[Hypothesis]:
        step = 0
        while self._places:
            self._step(step)
            step += 1
            if step % REMOVAL_STEPS == 0 or step == self._tokens.shape[1]:
                self._remove_done()
        return [hypothesis for hypothesis in self._found if hypothesis is not None]

    def _step(self, step: int) -> None:
        hidden = self._model.decode_step(self._last, self._state)
        log_probs = torch.log_softmax(self._model.logits(hidden).float(), -1)
        log_probs.index_fill_(1, self._forbidden, -torch.inf)
        drawn = self._draw_tokens(log_probs, step)
        drawn = torch.where(self._done | (self._limits == step + 1), self._end, drawn)
        gained = log_probs.gather(1, drawn[:, None])[:, 0]
        self._log_probabilities += gained.masked_fill(self._done, 0.0)
        self._tokens[:, step] = drawn
        self._done |= drawn == self._end
        self._last = drawn

    def _draw_tokens(self, log_probs: Tensor, step: int) -> Tensor:
        """The largest of log-probability and Gumbel noise is a draw from the distribution, [N]."""
        if self._sampling.top_k:
            values, tokens = log_probs.topk(min(self._sampling.top_k, log_probs.shape[1]))  # [N, K] both
        else:
            values, tokens = log_probs, torch.arange(log_probs.shape[1], device=log_probs.device)[None]
        noisy = values / self._sampling.temperature + gumbel_noise(self._keys, self._seed, step, tokens)
        return tokens.expand(len(noisy), -1).gather(1, noisy.argmax(-1, keepdim=True))[:, 0]

    def _remove_done(self) -> None:
        done = self._done.tolist()
        rows, sums = self._tokens.tolist(), self._log_probabilities.tolist()
        for place, is_done, row, total in zip(self._places, done, rows, sums, strict=True):
            if is_done:
                tokens = row[: row.index(self._end)]
                score = total / length_penalty(len(tokens) + 1, self._options.length_penalty)
                self._found[place] = Hypothesis(tokens, score, total)
        remaining = [index for index, is_done in enumerate(done) if not is_done]
        self._places = [self._places[index] for index in remaining]
        if remaining and len(remaining) < len(done):
            kept = torch.tensor(remaining, device=self._done.device)
            self._state.keep_sentences(kept)
            self._last, self._limits, self._keys, self._log_probabilities, self._done, self._tokens = (
                tensor.index_select(0, kept)
                for tensor in (
                    self._last, self._limits, self._keys, self._log_probabilities, self._done, self._tokens,
                )
            )  # fmt: skip


def gumbel_noise(keys: Tensor, seed: Tensor, step: int, tokens: Tensor) -> Tensor:
    """Noise for each key, [N] int32, and token, [N or 1, K], at a step."""
    counter = (step * COUNTER_FACTOR + 2**31) % 2**32 - 2**31  # Wrapped, as products of tensors are.
    rows = hashed_bits(keys ^ counter, seed)[:, None]
    bits = mix_bits_(rows ^ tokens.to(torch.int32) * COUNTER_FACTOR)
    uniform: Tensor = ((bits >> (32 - _NOISE_BITS)) + 2 ** (_NOISE_BITS - 1) + 0.5) / 2**_NOISE_BITS
    return uniform.log_().neg_().log_().neg_()


def _keys(batch: Sequence[_Draw]) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """32 bits for each draw: a hash of line, segment and candidate (the mixer of splitmix64)."""
    key = np.array([draw.line for draw in batch], dtype=np.uint64)
    for numbers in ([draw.segment for draw in batch], [draw.candidate for draw in batch]):
        key = (key + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.array(numbers, dtype=np.uint64)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (key >> np.uint64(32)).astype(np.uint32).view(np.int32)
