"""Beam search on a GPU: the same as in `search`, but each step is recorded and replayed, and the GPU is seldom asked.

A step is several hundred small kernels: started one by one, they wait for the processor. So everything that changes
from step to step, the step itself among it, lives on the GPU and changes in place, and one recording serves until the
batch shrinks. Every few steps the GPU is asked which sentences are done, and once enough of them are, they leave.

Shapes: S sentences, B hypotheses of a sentence, N = S * B, C candidates, F finished and kept, R room for tokens,
V vocabulary.
"""

import contextlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from dragoman.batching.packing import Packed
from dragoman.decoding.beam_search import (
    FinishedHypotheses,
    Hypothesis,
    SpecialTokens,
    gather_rows,
    largest,
    length_limits,
    length_penalty,
)
from dragoman.model.kv_cache import IndexedState
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings

STEPS_UNASKED = 6
"""Steps between two questions: each waits until the GPU has come to its end."""
DONE_SHARE = 0.4
"""Share of sentences that must be done before the batch shrinks: that costs a recording."""
FEW = 256
"""Sentences from which down a step takes as long whatever their number: these stay together to the end."""


@dataclass
class _Studio:
    """Where one thread's searches run and are recorded. Memory belongs to the stream that asked for it, and to the pool
    of the recordings that use it: were they made anew for each search, a long file would fill the GPU with both."""

    stream: torch.cuda.Stream
    pool: Any
    latest: torch.cuda.CUDAGraph | None = None
    """As long as there is one, the pool keeps its memory for the next."""

    def record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()  # Else nothing else could ever run on this stream.
            raise
        graph.capture_end()
        self.latest = graph
        return graph


@lru_cache(maxsize=8)
def _studio(device: torch.device, thread: int) -> _Studio:  # noqa: ARG001 (each thread has its own)
    return _Studio(torch.cuda.Stream(device), torch.cuda.graph_pool_handle())  # type: ignore[no-untyped-call]


class GraphedBeams:
    """The hypotheses of all sentences that are not done."""

    def __init__(
        self, model: Transformer, source: Packed, options: DecodingSettings, marks: SpecialTokens, n_best: int
    ) -> None:
        self._model, self._options, self._marks = model, options, marks
        device = model.embedding.weight.device
        limits = length_limits(source.layout.cu_seqlens.diff().tolist(), options.max_length_ratio)
        S, B, R = len(limits), options.beam, max(limits)
        self._results: list[list[Hypothesis]] = [[] for _ in range(S)]
        self._origins = list(range(S))
        state = model.start_decoding(source.to(device), beam=B, max_length=R)
        assert isinstance(state, IndexedState)
        self._state = state
        self._limits = torch.tensor(limits, device=device)  # [S]
        penalties = [length_penalty(limit, options.length_penalty) for limit in limits]
        self._last_penalties = torch.tensor(penalties, device=device)  # [S]
        self._said = torch.full((S, B, R), marks.start, dtype=torch.long, device=device)
        self._latest = self._said[:, :, 0].clone()  # [S, B]
        # All hypotheses begin alike: but for the first they would only be found again.
        self._totals = torch.full((S, B), -math.inf, device=device)
        self._totals[:, 0] = 0.0
        self._kept = FinishedHypotheses.nothing(S, n_best, R, device)
        self._done = torch.zeros(S, dtype=torch.bool, device=device)
        self._forbidden = torch.tensor(marks.forbidden, dtype=torch.long, device=device)
        self._studio = _studio(device, threading.get_ident())

    def search(self) -> list[list[Hypothesis]]:
        """The best of each sentence, best first."""
        stream, callers = self._studio.stream, torch.cuda.current_stream(self._limits.device)
        stream.wait_stream(callers)
        try:
            self._run(stream)
        finally:  # What was made on the caller's stream may be given back there.
            callers.wait_stream(stream)
        return self._results

    def _run(self, stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            self._step()  # As it is: what happens for the first time cannot be recorded.
            graph, shrunk = self._record(), False
            while self._origins:
                if shrunk:
                    graph = self._record()
                left = self._state.max_length - self._state.step
                for _ in range(min(STEPS_UNASKED, left)):
                    graph.replay()
                    self._state.step += 1
                shrunk = self._drop_done(everything=self._state.step == self._state.max_length)

    def _record(self) -> torch.cuda.CUDAGraph:
        step = self._state.step
        graph = self._studio.record(self._step)
        self._state.step = step  # Recording is not doing.
        return graph

    def _step(self) -> None:
        """One more token for every hypothesis."""
        log_probs = self._log_probabilities()
        totals, parents, tokens = self._best(log_probs)
        self._keep_ended(totals, parents, tokens)
        self._go_on(totals, parents, tokens)
        self._mark_done()

    @property
    def _length(self) -> Tensor:
        """[1]: tokens of each hypothesis once this step is done."""
        return self._state.clock

    def _log_probabilities(self) -> Tensor:
        """[N, V] of the next token; -inf where it is never allowed."""
        logits = self._model.logits(self._model.decode_step(self._latest.flatten(), self._state))
        with torch.autocast("cuda", enabled=False):  # It would make a copy in float32 first.
            log_probs = torch.log_softmax(logits, -1, dtype=torch.float32)
        return log_probs.index_fill_(1, self._forbidden, -math.inf)

    def _best(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each sentence's best continuations, [S, C] each, best first: log-probability, parent and token."""
        S, B = self._totals.shape
        C = min(2 * B, log_probs.shape[1])
        values, tokens = largest(log_probs, C)  # [N, C] both
        # At its limit a sentence can only end.
        ending = (self._limits == self._length).repeat_interleave(B)[:, None]  # [N, 1]
        first = torch.arange(C, device=values.device) == 0
        end_values = torch.where(first, log_probs[:, self._marks.end, None], -math.inf)
        values, tokens = torch.where(ending, end_values, values), torch.where(ending, self._marks.end, tokens)
        tokens, order = tokens.sort(dim=-1, stable=True)  # so that of equals the lower token comes first
        totals = self._totals[:, :, None] + values.gather(1, order).view(S, B, -1)
        totals, places = totals.flatten(1).sort(dim=-1, descending=True, stable=True)
        places = places[:, : 2 * B]
        return totals[:, : 2 * B], places // C, tokens.view(S, -1).gather(1, places)

    def _keep_ended(self, totals: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Sets ended ones aside, of the B best."""
        B = self._options.beam
        totals, parents = totals[:, :B], parents[:, :B]
        ended = (tokens[:, :B] == self._marks.end) & (totals > -math.inf)
        scores = (totals / ((5 + self._length) / 6) ** self._options.length_penalty).masked_fill(~ended, -math.inf)
        said = gather_rows(self._said, parents)
        said.index_fill_(2, self._length - 1, self._marks.end)
        self._kept.add(FinishedHypotheses(scores, totals, self._length.expand_as(parents), said))

    def _go_on(self, totals: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """The B best candidates that have not ended become the hypotheses."""
        B = self._options.beam
        totals = totals.masked_fill(tokens == self._marks.end, -math.inf)
        chosen = totals.sort(dim=-1, descending=True, stable=True).indices[:, :B]
        parents = parents.gather(1, chosen)
        self._totals.copy_(totals.gather(1, chosen))
        self._latest.copy_(tokens.gather(1, chosen))
        rows = parents + torch.arange(len(parents), device=parents.device)[:, None] * B  # [S, B]
        self._state.reorder(rows.flatten())
        self._said.copy_(gather_rows(self._said, parents))
        self._said.index_copy_(2, self._length - 1, self._latest[:, :, None])

    def _mark_done(self) -> None:
        """A sentence is done once no hypothesis can come to beat the worst that is kept, or at its limit."""
        self._done |= self._kept.scores[:, -1] >= self._totals.amax(1) / self._last_penalties
        self._done |= self._limits == self._length
        # Until it is taken out, nothing may come of it.
        self._totals.masked_fill_(self._done[:, None], -math.inf)

    def _drop_done(self, everything: bool) -> bool:
        """Takes sentences out that are done, if they are many; at the end of the room they all are. Says if it did."""
        done = [True] * len(self._origins) if everything else self._done.tolist()
        if sum(done) < (1.0 if len(done) <= FEW else DONE_SHARE) * len(done):
            return False
        finished, remaining = (
            [place for place, is_done in enumerate(done) if is_done == want] for want in (True, False)
        )
        kept = self._kept.rows(self._places(finished))
        for place, hypotheses in zip(finished, kept.hypotheses(), strict=True):
            # A model whose weights are not numbers says nothing.
            self._results[self._origins[place]] = hypotheses or [Hypothesis([], -math.inf, -math.inf)]
        self._origins = [self._origins[place] for place in remaining]
        places = self._places(remaining)
        self._state.keep_sentences(places)
        self._kept = self._kept.rows(places)
        self._said, self._latest, self._totals, self._done, self._limits, self._last_penalties = (
            part.index_select(0, places)
            for part in (self._said, self._latest, self._totals, self._done, self._limits, self._last_penalties)
        )
        return True

    def _places(self, places: list[int]) -> Tensor:
        return torch.tensor(places, dtype=torch.long, device=self._limits.device)
