"""Finished hypotheses of a beam search.

Shapes: S sentences, F finished hypotheses kept for each, R capacity for tokens.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One translation."""

    tokens: list[int]
    """Without start and end tokens."""
    score: float
    """Log-probability over the length penalty, plus the coverage penalty if there is one. It ranks hypotheses."""
    log_probability: float
    """Of the tokens and the end token."""


@dataclass
class FinishedHypotheses:
    """The best finished hypotheses of each sentence, best first; empty slots have a score of -inf."""

    scores: Tensor
    """[S, F]"""
    log_probabilities: Tensor
    """[S, F]"""
    lengths: Tensor
    """[S, F] int64, with the end token."""
    tokens: Tensor
    """[S, F, R] int64."""

    @classmethod
    def empty(cls, sentences: int, capacity: int, max_length: int, device: torch.device) -> "FinishedHypotheses":
        shape = (sentences, capacity)
        return cls(
            torch.full(shape, -math.inf, device=device),
            torch.full(shape, -math.inf, device=device),
            torch.zeros(shape, dtype=torch.long, device=device),
            torch.zeros(*shape, max_length, dtype=torch.long, device=device),
        )

    def add(self, other: "FinishedHypotheses") -> None:
        """Keep the best of both; among equal scores, those of `self` first, then in the order of `other`."""
        joined = [torch.cat(pair, dim=1) for pair in zip(self._tensors(), other._tensors(), strict=True)]
        order = joined[0].sort(dim=1, descending=True, stable=True).indices[:, : self.scores.shape[1]]  # [S, F]
        # In place: a captured step reads and writes the same memory each time.
        for tensor, both in zip(self._tensors()[:3], joined[:3], strict=True):
            tensor.copy_(both.gather(1, order))
        self.tokens.copy_(gather_hypotheses(joined[3], order))

    def select(self, sentences: Tensor) -> "FinishedHypotheses":
        return FinishedHypotheses(*(tensor.index_select(0, sentences) for tensor in self._tensors()))

    def to_lists(self) -> list[list[Hypothesis]]:
        scores, log_probabilities, lengths, tokens = (tensor.tolist() for tensor in self._tensors())
        return [
            [
                Hypothesis(row[: length - 1], score, log_probability)
                for score, log_probability, length, row in zip(*sentence, strict=True)
                if score > -math.inf
            ]
            for sentence in zip(scores, log_probabilities, lengths, tokens, strict=True)
        ]

    def _tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.scores, self.log_probabilities, self.lengths, self.tokens


def gather_hypotheses(tokens: Tensor, indexes: Tensor) -> Tensor:
    """[S, B, R] and [S, C] -> [S, C, R]."""
    return tokens.gather(1, indexes[:, :, None].expand(-1, -1, tokens.shape[2]))
