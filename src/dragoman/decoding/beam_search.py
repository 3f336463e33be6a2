"""Beam search: the most likely translations of a batch of sentences.

All sentences of a batch are searched together. Each has `beam` unfinished hypotheses; a step scores their
continuations, sets finished ones aside and continues the best of the others. A sentence is done once no unfinished
hypothesis can beat its finished ones; sentences that are done are removed from the batch.

The score of a translation is its log-probability divided by ((5 + length) / 6)^alpha, with the end token counted in
the length (Wu et al. 2016, and the first Transformer). Forbidden tokens are excluded from the search but not from the
softmax, so that probabilities stay the model's own.

On a GPU, several hundred small kernels make a step: launched one by one, they wait for the CPU. There steps are
captured as a CUDA graph and replayed. So a step has static shapes, updates its tensors in place, and does not wait for
the device.

Shapes: S sentences, B hypotheses of a sentence, N = S * B, C candidates, R capacity for tokens, V vocabulary, L tokens
of the longest source.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.batching.packed_batch import Packed
from dragoman.decoding.hypotheses import FinishedHypotheses, Hypothesis, gather_hypotheses
from dragoman.decoding.length_rules import check_n_best, length_penalty, max_length
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.model.cuda_graph import thread_capturer
from dragoman.model.kernels.availability import has_kernels, supports_head_size
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings

REMOVAL_SHARE = 0.25
"""Share of sentences that must be done before they are removed: the rest is copied."""
GRAPH_REMOVAL_SHARE = 0.4
"""The same with CUDA graphs, where a smaller batch also needs a new capture."""
GRAPH_MIN_SENTENCES = 256
"""Batches up to this size are not reduced with CUDA graphs: a step of fewer sentences takes as long."""
GRAPH_STEPS_PER_SYNC = 6
"""Steps between two reads of which sentences are done: each read waits for the GPU."""
CHUNK = 64
CHUNKED_VOCABULARY = 4096
"""Smallest vocabulary whose best tokens are searched by chunks; below, that costs more than it saves."""
MIN_COVERAGE = 1e-6


def search(
    model: Transformer, source: Packed, settings: DecodingSettings, special_tokens: SpecialTokens, n_best: int = 1
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first: at most `n_best`, at least one.

    A beam of 1 is greedy search: it takes the most likely token and stops at the first end token. Up to rounding, the
    result for a sentence does not depend on the other sentences of the batch.
    """
    check_n_best(n_best, settings)
    was_training = model.training
    if was_training:
        model.eval()
    device = model.embedding.weight.device
    # Triton kernels run on the current device.
    on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    try:
        with torch.inference_mode(), on_device:
            beams = Beams(model, source, settings, special_tokens, n_best)
            if can_use_cuda_graphs(model, settings):
                _run_with_cuda_graphs(beams, device)
            else:
                _run(beams)
            return beams.results
    finally:
        if was_training:
            model.train()


def can_use_cuda_graphs(model: Transformer, settings: DecodingSettings) -> bool:
    """True if steps can be captured: plain beam search in half precision on a GPU with the Triton kernels."""
    return (
        settings.beam > 1
        and not settings.no_repeat_ngram
        and not settings.coverage_penalty
        and has_kernels(model.embedding.weight.device)
        and torch.is_autocast_enabled("cuda")
        and supports_head_size(model.architecture.head_size)
    )


def _run(beams: "Beams") -> None:
    while beams.sentences:
        beams.step()
        beams.remove_done(at_least=max(1.0, REMOVAL_SHARE * beams.sentences))


def _run_with_cuda_graphs(beams: "Beams", device: torch.device) -> None:
    """Run captured steps; one graph serves until the batch shrinks."""
    capturer, state = thread_capturer(device), beams.state
    with capturer.on_stream():
        beams.step()  # The warm-up.
        has_shrunk = True
        while beams.sentences:
            if has_shrunk:
                step = state.step
                graph = capturer.capture(beams.step)
                state.step = step  # Capturing counts a step but does not run it.
            for _ in range(min(GRAPH_STEPS_PER_SYNC, state.max_length - state.step)):
                graph.replay()
                state.step += 1
            share = 1.0 if beams.sentences <= GRAPH_MIN_SENTENCES else GRAPH_REMOVAL_SHARE
            has_shrunk = beams.remove_done(at_least=share * beams.sentences)


@dataclass
class _Candidates:
    """The best continuations of each sentence, best first, [S, C] each."""

    log_probabilities: Tensor
    """Of the hypothesis with the new token."""
    parents: Tensor
    """The hypothesis that each continues, 0 to B - 1."""
    tokens: Tensor


class Beams:
    """The unfinished hypotheses of all sentences that are not done."""

    def __init__(
        self,
        model: Transformer,
        source: Packed,
        settings: DecodingSettings,
        special_tokens: SpecialTokens,
        n_best: int,
    ) -> None:
        self._model, self._settings, self._end = model, settings, special_tokens.eos_id
        device = model.embedding.weight.device
        source_lengths = source.layout.cu_seqlens.diff().tolist()
        limits = [max_length(length, settings.max_length_ratio) for length in source_lengths]
        S, B, R = len(limits), settings.beam, max(limits)
        self.results: list[list[Hypothesis]] = [[] for _ in range(S)]
        self._batch_indexes = list(range(S))
        """Index of each remaining sentence in the batch as it was given."""

        covers = settings.coverage_penalty > 0
        *given, last = (special_tokens.decoder_start_id, *special_tokens.target_prefix)
        self._given = len(given)
        """Decoder inputs before the last one that all hypotheses begin with. They are not part of the hypotheses."""
        capacity = self._given + R
        self.state = model.start_decoding(source.to(device), beam=B, max_length=capacity, returns_attention=covers)
        for token in given:
            model.decode_step(torch.full((S * B,), token, device=device), self.state)
        self._limits = torch.tensor(limits, device=device)  # [S]
        penalties = [length_penalty(length, settings.length_penalty) for length in range(1, R + 1)]
        self._penalties = torch.tensor(penalties, device=device)  # [R]
        self._limit_penalties = self._penalties.index_select(0, self._limits - 1)  # [S]
        self._tokens = torch.full((S, B, R), last, dtype=torch.long, device=device)
        self._last_tokens = self._tokens[:, :, 0].clone()  # [S, B]
        # All hypotheses of a sentence begin alike: more than one would only find the same continuations again.
        self._log_probabilities = torch.full((S, B), -math.inf, device=device)
        self._log_probabilities[:, 0] = 0.0
        self._finished = FinishedHypotheses.empty(S, n_best, R, device)
        self._done = torch.zeros(S, dtype=torch.bool, device=device)
        self._forbidden = torch.tensor(special_tokens.forbidden, dtype=torch.long, device=device)
        self._coverage = torch.zeros(S * B, source.layout.max_len, device=device) if covers else None
        # On a CPU, allocating this much anew each step takes longer than the softmax.
        shape = (S * B, model.architecture.vocabulary)
        self._softmax_buffer = torch.empty(shape) if device.type == "cpu" else None

    @property
    def sentences(self) -> int:
        return len(self._batch_indexes)

    def step(self) -> None:
        """Append one token to every hypothesis."""
        log_probs = self._next_log_probabilities()
        candidates = self._best_candidates(log_probs)
        self._add_finished(candidates)
        self._continue_unfinished(candidates)
        self._mark_done()

    @property
    def _length(self) -> Tensor:
        """[1]: tokens of each hypothesis at the end of this step."""
        return self.state.device_step - self._given

    def _next_log_probabilities(self) -> Tensor:
        """[N, V] of the next token; -inf where it is forbidden."""
        hidden = self._model.decode_step(self._last_tokens.flatten(), self.state)
        logits = self._model.logits(hidden)
        out = None if self._softmax_buffer is None else self._softmax_buffer[: logits.shape[0]]
        with torch.autocast(logits.device.type, enabled=False):  # It would copy the logits to float32 first.
            log_probs = torch.log_softmax(logits, -1, dtype=torch.float32, out=out)
        log_probs.index_fill_(1, self._forbidden, -math.inf)
        if self._settings.no_repeat_ngram:
            self._forbid_repetition(log_probs)
        if self._coverage is not None:
            assert self.state.attention is not None
            self._coverage += self.state.attention
        return log_probs

    def _forbid_repetition(self, log_probs: Tensor) -> None:
        """Forbid each token that would complete an n-gram which the hypothesis already has."""
        n, length = self._settings.no_repeat_ngram, self.state.step - self._given - 1
        if length < n:
            return
        ngrams = self._tokens[:, :, :length].flatten(0, 1).unfold(1, n, 1)  # [N, length - n + 1, n]
        prefix = self._tokens[:, :, length - n + 1 : length].flatten(0, 1)  # [N, n - 1]
        repeats = (ngrams[:, :, :-1] == prefix[:, None]).all(-1)
        log_probs.scatter_reduce_(1, ngrams[:, :, -1], torch.where(repeats, -math.inf, math.inf), "amin")

    def _best_candidates(self, log_probs: Tensor) -> _Candidates:
        """2 B candidates: if B of them end, B are left to continue. A beam of 1 stops where its candidate ends."""
        S, B = self._log_probabilities.shape
        C = 1 if B == 1 else min(2 * B, log_probs.shape[1])
        values, tokens = top_tokens(log_probs, C)  # [N, C] both
        # At its limit a sentence can only end.
        at_limit = (self._limits == self._length).repeat_interleave(B)[:, None]  # [N, 1]
        is_first = torch.arange(C, device=values.device) == 0
        end_values = torch.where(is_first, log_probs[:, self._end, None], -math.inf)
        values, tokens = torch.where(at_limit, end_values, values), torch.where(at_limit, self._end, tokens)
        if B == 1:
            return _Candidates(self._log_probabilities + values, torch.zeros_like(tokens), tokens)
        tokens, order = tokens.sort(dim=-1, stable=True)  # Among equals, the lower token comes first.
        totals = self._log_probabilities[:, :, None] + values.gather(1, order).view(S, B, C)
        totals, indexes = totals.flatten(1).sort(dim=-1, descending=True, stable=True)
        indexes = indexes[:, : 2 * B]
        return _Candidates(totals[:, : 2 * B], indexes // C, tokens.view(S, -1).gather(1, indexes))

    def _add_finished(self, candidates: _Candidates) -> None:
        """Set aside finished candidates among the best B: any further down would not have been continued either."""
        B = self._settings.beam
        log_probabilities, parents = candidates.log_probabilities[:, :B], candidates.parents[:, :B]
        has_ended = (candidates.tokens[:, :B] == self._end) & (log_probabilities > -math.inf)
        if has_ended.device.type == "cpu" and not has_ended.any():  # Elsewhere the question would wait for the device.
            return
        scores = log_probabilities / self._penalties.index_select(0, self._length - 1)
        if self._coverage is not None:
            scores = scores + self._coverage_penalties().gather(1, parents)
        scores = scores.masked_fill(~has_ended, -math.inf)
        tokens = gather_hypotheses(self._tokens, parents).index_fill_(2, self._length - 1, self._end)
        lengths = self._length.expand_as(parents)
        self._finished.add(FinishedHypotheses(scores, log_probabilities, lengths, tokens))

    def _coverage_penalties(self) -> Tensor:
        """[S, B], at most 0: lower where less of the source was attended to (Wu et al. 2016)."""
        assert self._coverage is not None
        logs = self._coverage.clamp(MIN_COVERAGE, 1.0).log().view(*self._log_probabilities.shape, -1)  # [S, B, L]
        if self.state.memory_mask is not None:
            logs = logs.masked_fill(~self.state.memory_mask[:, 0], 0.0)
        return self._settings.coverage_penalty * logs.sum(-1)

    def _continue_unfinished(self, candidates: _Candidates) -> None:
        """Make the best B candidates that have not ended the new hypotheses."""
        B = self._settings.beam
        totals = candidates.log_probabilities.masked_fill(candidates.tokens == self._end, -math.inf)
        # Finished candidates may lie between the others. Impossible candidates sort last, too.
        chosen = totals.sort(dim=-1, descending=True, stable=True).indices[:, :B]
        totals, parents, tokens = (
            tensor.gather(1, chosen) for tensor in (totals, candidates.parents, candidates.tokens)
        )
        if B > 1:
            if self.state.copies_on_reorder:
                slots = _parents_first(parents)
                totals, parents, tokens = (
                    torch.empty_like(tensor).scatter_(1, slots, tensor) for tensor in (totals, parents, tokens)
                )
            rows = (parents + torch.arange(len(parents), device=parents.device)[:, None] * B).flatten()  # [N]
            self.state.reorder(rows)
            self._tokens.copy_(gather_hypotheses(self._tokens, parents))
            if self._coverage is not None:
                self._coverage.copy_(self._coverage.index_select(0, rows))
        self._log_probabilities.copy_(totals)
        self._last_tokens.copy_(tokens)
        self._tokens.index_copy_(2, self._length - 1, tokens[:, :, None])

    def _mark_done(self) -> None:
        """Mark sentences whose unfinished hypotheses cannot beat the worst finished one, and those at their limit.

        Log-probabilities only fall and coverage penalties are at most 0, so the score of a hypothesis never exceeds
        its log-probability divided by the length penalty at the limit.
        """
        best_possible = self._log_probabilities.amax(1) / self._limit_penalties
        self._done |= self._finished.scores[:, -1] >= best_possible
        self._done |= self._limits == self._length
        # Until the sentence is removed, none of its hypotheses may finish.
        self._log_probabilities.masked_fill_(self._done[:, None], -math.inf)

    def remove_done(self, at_least: float) -> bool:
        """Move sentences that are done to `results`, if there are at least `at_least`; returns true if so."""
        done = self._done.tolist()
        if sum(done) < at_least:
            return False
        removed, remaining = (
            [index for index, is_done in enumerate(done) if is_done == want] for want in (True, False)
        )
        found = self._finished.select(self._index_tensor(removed)).to_lists()
        for index, hypotheses in zip(removed, found, strict=True):
            # A model whose weights are NaN finishes no hypothesis.
            self.results[self._batch_indexes[index]] = hypotheses or [Hypothesis([], -math.inf, -math.inf)]
        self._batch_indexes = [self._batch_indexes[index] for index in remaining]
        if remaining:
            self._select(self._index_tensor(remaining))
        return True

    def _select(self, sentences: Tensor) -> None:
        self.state.keep_sentences(sentences)
        self._finished = self._finished.select(sentences)
        self._tokens, self._last_tokens, self._log_probabilities, self._done, self._limits, self._limit_penalties = (
            tensor.index_select(0, sentences)
            for tensor in (
                self._tokens, self._last_tokens, self._log_probabilities, self._done, self._limits,
                self._limit_penalties,
            )
        )  # fmt: skip
        if self._coverage is not None:
            L = self._coverage.shape[1]
            self._coverage = self._coverage.view(-1, self._settings.beam, L).index_select(0, sentences).flatten(0, 1)

    def _index_tensor(self, indexes: list[int]) -> Tensor:
        return torch.tensor(indexes, dtype=torch.long, device=self._limits.device)


def top_tokens(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row and their columns, [N, V] -> [N, count] both.

    The largest values lie in the chunks with the largest maxima. Finding maxima is several times as fast as sorting.
    """
    if count == 1:
        return values.max(-1, keepdim=True)  # Of equals the first, which topk does not promise.
    rows, columns = values.shape
    if columns < CHUNKED_VOCABULARY or columns % CHUNK or count > columns // CHUNK:
        top = values.topk(count)
        return top.values, top.indices
    chunks = values.view(rows, -1, CHUNK)
    best_chunks = chunks.amax(-1).topk(count).indices  # [N, count]
    top = chunks.gather(1, best_chunks[:, :, None].expand(-1, -1, CHUNK)).flatten(1).topk(count)
    return top.values, best_chunks.gather(1, top.indices // CHUNK) * CHUNK + top.indices % CHUNK


def _parents_first(parents: Tensor) -> Tensor:
    """The row of each hypothesis, [S, B]: the first child of a hypothesis keeps its parent's row, others fill gaps.

    A hypothesis that keeps its row needs no copy of its keys and values, and most do.
    """
    same = parents[:, :, None] == parents[:, None, :]  # [S, B, B]
    is_first = ~same.tril(-1).any(-1)
    taken = torch.zeros_like(is_first).scatter_(1, parents, True)
    free = taken.long().sort(dim=-1, stable=True).indices  # Gaps first, in order.
    ordinals = ((~is_first).cumsum(-1) - 1).clamp(min=0)
    return torch.where(is_first, parents, free.gather(1, ordinals))
