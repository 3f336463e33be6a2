"""Beam search: the translations that a model finds most likely.

Sentences of a batch are searched together. Each has `beam` hypotheses under way; a step looks at the best
continuations of all of them, sets those aside that end, and goes on with the best of the rest. A sentence is done once
nothing that is still under way could become better than what it has, and the batch shrinks as sentences get done.

The score of a translation is its log-probability divided by ((5 + length) / 6)^alpha, its end mark counted (Wu et al.
2016, and the first Transformer). Its probability is the model's own: what may not be said is left out of the search,
but not out of the sum that probabilities are shares of.

Shapes: S sentences, B hypotheses of a sentence, N = S * B, C candidates, F finished and kept, R room for tokens,
V vocabulary, L tokens of the longest source.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.batching.packing import Packed
from dragoman.errors import DragomanError
from dragoman.model.kernels.availability import has_kernels, takes_heads
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings

EXTRA_LENGTH = 20
"""Tokens that a translation may have beyond the multiple of its source's: short sentences need them most."""
DONE_SHARE = 0.25
"""Share of the batch's sentences that must be done before they are taken out: it costs a copy of the rest."""
CHUNK = 64
CHUNKED_VOCABULARY = 4096
"""From here on the best tokens are looked for among chunks first; below, that costs more than it saves."""
LEAST_COVERAGE = 1e-6


@dataclass(frozen=True)
class SpecialTokens:
    """The tokens that mean something to a search."""

    start: int
    end: int
    forbidden: tuple[int, ...] = ()
    """What no translation may contain: padding, the unknown, the start mark, and rows that only fill the matrix."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation."""

    tokens: list[int]
    """Without start and end marks."""
    score: float
    """What hypotheses are compared by: length taken into account, and coverage where asked for."""
    log_probability: float
    """Of the tokens and the end mark."""


def search(
    model: Transformer, source: Packed, options: DecodingSettings, marks: SpecialTokens, n_best: int = 1
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first: `n_best`, or as many as there are; always at least one.

    A beam of 1 is greedy: it takes the most likely token each time and stops at the first end mark. The result for a
    sentence does not depend on its company, but for rounding.
    """
    if not 1 <= n_best <= options.beam:
        raise DragomanError(
            f"{n_best} translations were asked for, but decoding.beam = {options.beam}: "
            f"ask for 1 to {options.beam}, or raise decoding.beam."
        )
    was_training = model.training
    if was_training:
        model.eval()
    device = model.embedding.weight.device
    # Kernels of ours run on the device that is current.
    on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    try:
        with torch.inference_mode(), on_device:
            if can_record(model, options):
                from dragoman.decoding.graphed_beam_search import (
                    GraphedBeams,  # Uses kernels of ours, which need Triton.
                )

                return GraphedBeams(model, source, options, marks, n_best).search()
            beams = _Beams(model, source, options, marks, n_best)
            while beams.sentences:
                beams.step()
            return beams.results
    finally:
        if was_training:
            model.train()


def can_record(model: Transformer, options: DecodingSettings) -> bool:
    """Whether steps can be recorded on a GPU and replayed: those of plain beam search, in half precision."""
    weight = model.embedding.weight
    return (
        options.beam > 1
        and not options.no_repeat_ngram
        and not options.coverage_penalty
        and has_kernels(weight.device)
        and torch.is_autocast_enabled("cuda")
        and takes_heads(model.architecture.head_size)
    )


def length_penalty(length: float, alpha: float) -> float:
    """What the log-probability of `length` tokens, the end mark among them, is divided by."""
    return float(((5 + length) / 6) ** alpha)


def length_limits(source_lengths: Sequence[int], max_length_ratio: float) -> list[int]:
    """The most tokens, the end mark among them, that a translation of each source may have."""
    return [int(max_length_ratio * length) + EXTRA_LENGTH for length in source_lengths]


@dataclass
class FinishedHypotheses:
    """The best finished hypotheses of each sentence, best first; where there is none yet, its score is -inf."""

    scores: Tensor
    """[S, F]"""
    log_probabilities: Tensor
    """[S, F]"""
    lengths: Tensor
    """[S, F] int64, the end mark counted."""
    tokens: Tensor
    """[S, F, R] int64."""

    @classmethod
    def nothing(cls, sentences: int, kept: int, room: int, device: torch.device) -> "FinishedHypotheses":
        shape = (sentences, kept)
        return cls(
            torch.full(shape, -math.inf, device=device),
            torch.full(shape, -math.inf, device=device),
            torch.zeros(shape, dtype=torch.long, device=device),
            torch.zeros(*shape, room, dtype=torch.long, device=device),
        )

    def add(self, other: "FinishedHypotheses") -> None:
        """Takes in what is better; of equals, those that were here first and then the earlier ones."""
        joined = [torch.cat(pair, dim=1) for pair in zip(self._parts(), other._parts(), strict=True)]
        order = joined[0].sort(dim=1, descending=True, stable=True).indices[:, : self.scores.shape[1]]  # [S, F]
        # In place, so that a GPU finds the result where it looks for it the next time.
        for part, both in zip(self._parts()[:3], joined[:3], strict=True):
            part.copy_(both.gather(1, order))
        self.tokens.copy_(gather_rows(joined[3], order))

    def rows(self, sentences: Tensor) -> "FinishedHypotheses":
        return FinishedHypotheses(*(part.index_select(0, sentences) for part in self._parts()))

    def hypotheses(self) -> list[list[Hypothesis]]:
        scores, log_probabilities, lengths, tokens = (part.tolist() for part in self._parts())
        return [
            [
                Hypothesis(said[: length - 1], score, log_probability)
                for score, log_probability, length, said in zip(*sentence, strict=True)
                if score > -math.inf
            ]
            for sentence in zip(scores, log_probabilities, lengths, tokens, strict=True)
        ]

    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.scores, self.log_probabilities, self.lengths, self.tokens


@dataclass
class _Candidates:
    """The best continuations of each sentence, best first, [S, C] each."""

    totals: Tensor
    """Log-probability of the whole."""
    parents: Tensor
    """The hypothesis that each continues, 0 to B - 1."""
    tokens: Tensor


class _Beams:
    """The hypotheses of all sentences that are not done."""

    def __init__(
        self, model: Transformer, source: Packed, options: DecodingSettings, marks: SpecialTokens, n_best: int
    ) -> None:
        self.model, self.options, self.marks = model, options, marks
        self.device = device = model.embedding.weight.device
        source_lengths = source.layout.cu_seqlens.diff().tolist()
        self.limits = length_limits(source_lengths, options.max_length_ratio)
        S, B, R = len(self.limits), options.beam, max(self.limits)
        self.results: list[list[Hypothesis]] = [[] for _ in range(S)]
        self.origins = list(range(S))
        """The place of each remaining sentence in the batch as it was given."""

        watching = options.coverage_penalty > 0
        self.state = model.start_decoding(source.to(device), beam=B, max_length=R, watching=watching)
        self.length = 0
        self.said = torch.full((S, B, R), marks.start, dtype=torch.long, device=device)
        self.latest = self.said[:, :, 0].clone()  # [S, B]
        # All hypotheses begin alike: but for the first they would only be found again.
        self.totals = torch.full((S, B), -math.inf, device=device)
        self.totals[:, 0] = 0.0
        self.kept = FinishedHypotheses.nothing(S, n_best, R, device)
        self.done = torch.zeros(S, dtype=torch.bool, device=device)
        self.last_penalties = self._penalties_at_the_limits()
        self.forbidden = torch.tensor(marks.forbidden, dtype=torch.long, device=device)
        # Written to the same memory each time: asking for this much anew takes longer than the sum itself.
        self.scratch = torch.empty(S * B, model.architecture.vocabulary, device=device)
        self.coverage = torch.zeros(S * B, source.layout.max_len, device=device) if watching else None

    @property
    def sentences(self) -> int:
        return len(self.origins)

    def step(self) -> None:
        """One more token for every hypothesis."""
        log_probs = self._log_probabilities()
        self.length += 1
        candidates = self._best(log_probs)
        self._keep_ended(candidates)
        self._go_on(candidates)
        self._mark_done()
        self._drop_done()

    def _log_probabilities(self) -> Tensor:
        """[N, V] of the next token; -inf where it is not allowed."""
        logits = self.model.logits(self.model.decode_step(self.latest.flatten(), self.state))
        log_probs = torch.log_softmax(logits.float(), -1, out=self.scratch[: logits.shape[0]])
        log_probs.index_fill_(1, self.forbidden, -math.inf)
        if self.options.no_repeat_ngram:
            self._forbid_repetition(log_probs)
        at_limit = [place for place, limit in enumerate(self.limits) if limit == self.length + 1]
        if at_limit:
            rows = log_probs.view(self.sentences, self.options.beam, -1)
            ends = rows[at_limit, :, self.marks.end]
            rows[at_limit] = -math.inf
            rows[at_limit, :, self.marks.end] = ends
        if self.coverage is not None:
            assert self.state.attention is not None
            self.coverage += self.state.attention
        return log_probs

    def _forbid_repetition(self, log_probs: Tensor) -> None:
        """No token that would complete a run of n tokens that was there before."""
        n = self.options.no_repeat_ngram
        if self.length < n:
            return
        runs = self.said[:, :, : self.length].flatten(0, 1).unfold(1, n, 1)  # [N, length - n + 1, n]
        begun = self.said[:, :, self.length - n + 1 : self.length].flatten(0, 1)  # [N, n - 1]
        repeats = (runs[:, :, :-1] == begun[:, None]).all(-1)
        verdicts = torch.where(repeats, -math.inf, math.inf)
        log_probs.scatter_reduce_(1, runs[:, :, -1], verdicts, "amin")

    def _best(self, log_probs: Tensor) -> _Candidates:
        """Twice as many as there are hypotheses: if all of those end, there are still enough to go on with."""
        S, B = self.totals.shape
        if B == 1:
            values, tokens = log_probs.max(-1)  # the first of equals
            return _Candidates(self.totals + values[:, None], torch.zeros_like(tokens)[:, None], tokens[:, None])
        C = 2 * B
        values, tokens = largest(log_probs, min(C, log_probs.shape[1]))  # [N, C] each, or [N, V] if that is less
        tokens, order = tokens.sort(-1)  # so that of equals the lower token comes first
        totals = self.totals[:, :, None] + values.gather(1, order).view(S, B, -1)
        totals, places = totals.flatten(1).sort(dim=-1, descending=True, stable=True)
        places = places[:, :C]
        return _Candidates(totals[:, :C], places // values.shape[1], tokens.view(S, -1).gather(1, places))

    def _keep_ended(self, candidates: _Candidates) -> None:
        """Sets ended ones aside, of the B best: one further down would not have been kept had it not ended."""
        B = self.options.beam
        totals, parents = candidates.totals[:, :B], candidates.parents[:, :B]
        ended = (candidates.tokens[:, :B] == self.marks.end) & (totals > -math.inf)
        if not ended.any():
            return
        scores = totals / length_penalty(self.length, self.options.length_penalty)
        if self.coverage is not None:
            scores = scores + self._coverage_penalties().gather(1, parents)
        tokens = gather_rows(self.said, parents)
        tokens[:, :, self.length - 1] = self.marks.end
        scores = scores.masked_fill(~ended, -math.inf)
        self.kept.add(FinishedHypotheses(scores, totals, torch.full_like(parents, self.length), tokens))

    def _coverage_penalties(self) -> Tensor:
        """[S, B], at most 0: the smaller, the more of the source was not looked at (Wu et al. 2016)."""
        assert self.coverage is not None
        looked_at = self.coverage.clamp(LEAST_COVERAGE, 1.0).log().view(*self.totals.shape, -1)  # [S, B, L]
        if self.state.memory_mask is not None:
            looked_at = looked_at.masked_fill(~self.state.memory_mask[:, 0], 0.0)
        return self.options.coverage_penalty * looked_at.sum(-1)

    def _go_on(self, candidates: _Candidates) -> None:
        """The B best candidates that have not ended become the hypotheses."""
        B = self.options.beam
        totals = candidates.totals.masked_fill(candidates.tokens == self.marks.end, -math.inf)
        # Ended ones may lie between the others. A candidate that is no longer possible ends up last, too.
        chosen = totals.sort(dim=-1, descending=True, stable=True).indices[:, :B]
        parents = candidates.parents.gather(1, chosen)
        self.totals, self.latest = totals.gather(1, chosen), candidates.tokens.gather(1, chosen)
        if B > 1 and self.state.moves_keys:
            slots = _slots(parents)
            self.totals, self.latest, parents = (
                torch.empty_like(part).scatter_(1, slots, part) for part in (self.totals, self.latest, parents)
            )
        if B > 1:
            rows = (parents + torch.arange(self.sentences, device=self.device)[:, None] * B).flatten()  # [N]
            self.state.reorder(rows)
            self.said = gather_rows(self.said, parents)
            if self.coverage is not None:
                self.coverage = self.coverage.index_select(0, rows)
        self.said[:, :, self.length - 1] = self.latest

    def _mark_done(self) -> None:
        """A sentence is done once no hypothesis can come to beat the worst that is kept.

        Its log-probability can only fall and its coverage penalty not rise above 0, so that its score never exceeds
        what its log-probability would be worth at the limit of length.
        """
        if self.options.beam == 1:
            self.done |= self.kept.scores[:, 0] > -math.inf
        else:
            self.done |= self.kept.scores[:, -1] >= self.totals.amax(1) / self.last_penalties
        if self.length in self.limits:
            self.done |= torch.tensor(self.limits, device=self.device) == self.length
        # Until it is taken out, nothing may come of it.
        self.totals.masked_fill_(self.done[:, None], -math.inf)

    def _drop_done(self) -> None:
        done = self.done.tolist()
        if sum(done) < max(1, DONE_SHARE * self.sentences):
            return
        finished, remaining = (
            [place for place, is_done in enumerate(done) if is_done == want] for want in (True, False)
        )
        places = torch.tensor(finished, device=self.device)
        for place, hypotheses in zip(finished, self.kept.rows(places).hypotheses(), strict=True):
            # A model whose weights are not numbers says nothing.
            self.results[self.origins[place]] = hypotheses or [Hypothesis([], -math.inf, -math.inf)]
        self.origins = [self.origins[place] for place in remaining]
        self.limits = [self.limits[place] for place in remaining]
        if not remaining:
            return
        places = torch.tensor(remaining, device=self.device)
        self.state.keep_sentences(places)
        self.kept = self.kept.rows(places)
        self.said, self.latest, self.totals, self.done, self.last_penalties = (
            part.index_select(0, places)
            for part in (self.said, self.latest, self.totals, self.done, self.last_penalties)
        )
        if self.coverage is not None:
            self.coverage = self.coverage.view(len(done), -1).index_select(0, places).view(-1, self.coverage.shape[1])

    def _penalties_at_the_limits(self) -> Tensor:
        return torch.tensor(
            [length_penalty(limit, self.options.length_penalty) for limit in self.limits], device=self.device
        )


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and their places, [N, V] -> [N, count] both.

    The largest lie in the chunks with the largest maxima. Finding maxima is several times as fast as sorting.
    """
    rows, columns = values.shape
    if columns < CHUNKED_VOCABULARY or columns % CHUNK or count > columns // CHUNK:
        largest = values.topk(count)
        return largest.values, largest.indices
    chunks = values.view(rows, -1, CHUNK)
    promising = chunks.amax(-1).topk(count).indices  # [N, count]
    found = chunks.gather(1, promising[:, :, None].expand(-1, -1, CHUNK)).flatten(1).topk(count)
    return found.values, promising.gather(1, found.indices // CHUNK) * CHUNK + found.indices % CHUNK


def gather_rows(rows: Tensor, chosen: Tensor) -> Tensor:
    """[S, B, R] and [S, C] -> [S, C, R]."""
    return rows.gather(1, chosen[:, :, None].expand(-1, -1, rows.shape[2]))


def _slots(parents: Tensor) -> Tensor:
    """Where each hypothesis goes, [S, B]: the first child of each stays in its parent's place, the others fill gaps.

    What stays in place need not be copied, and most do.
    """
    same = parents[:, :, None] == parents[:, None, :]  # [S, B, B]
    is_first = ~same.tril(-1).any(-1)
    taken = torch.zeros_like(is_first).scatter_(1, parents, True)
    free = taken.long().sort(dim=-1, stable=True).indices  # gaps first, in order
    ordinals = ((~is_first).cumsum(-1) - 1).clamp(min=0)
    return torch.where(is_first, parents, free.gather(1, ordinals))
