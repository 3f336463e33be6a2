"""Evaluation on the validation set: loss, BLEU and chrF, with the work shared by all workers."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Protocol

import torch

from dragoman.batching.data_loader import DataLoader, Position
from dragoman.corpus.dataset import DataSet
from dragoman.distributed.cluster import Cluster
from dragoman.events import EvaluationDone
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.kept_translations import KeptTranslations, TranslationStore
from dragoman.training.checkpoint import BEST_BLEU


@dataclass(frozen=True)
class Quality:
    """Scores of translations against references, each with the signature that makes it comparable."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


class TranslationScorer(Protocol):
    """Translates and scores. Passed in by the caller: training must not import decoding, which is a later stage."""

    def translate(self, model: Transformer, lines: Sequence[str]) -> list[str]: ...

    def score(self, translations: Sequence[str], references: Sequence[str]) -> Quality: ...


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model. All workers take part and get the same result."""

    settings: Settings
    data: DataSet
    run: RunFolder
    cluster: Cluster
    precision: Precision
    scorer: TranslationScorer
    micro_batch_tokens: int

    def evaluate(self, model: Transformer, step: int, checkpoint: str = BEST_BLEU) -> EvaluationDone:
        """Evaluate a model. Its translations are kept under the name of the checkpoint, of `best-bleu` the best."""
        started = time.perf_counter()
        with torch.inference_mode(), _evaluation_mode(model):
            loss_sum, nll_sum, tokens = self._losses(model)
            translations = self._translate(model)
        nll = nll_sum / tokens
        quality, samples = None, []
        if translations:
            sources, references = (side[: len(translations)] for side in self.data.text("valid"))
            # Every worker has all translations; scoring them once is enough.
            scores = None
            if self.cluster.is_main:
                found = self.scorer.score(translations, references)
                scores = asdict(found)
                self._keep(checkpoint, step, found, translations, references)
            quality = Quality(**self.cluster.broadcast_json(scores))
            samples = [
                {"source": source, "reference": reference, "translation": translation}
                for source, reference, translation in islice(
                    zip(sources, references, translations, strict=True), self.settings.evaluation.samples
                )
            ]
        return EvaluationDone(
            step=step,
            loss=loss_sum / tokens,
            nll=nll,
            perplexity=math.exp(min(nll, 700.0)),
            bleu=quality.bleu if quality else None,
            bleu_signature=quality.bleu_signature if quality else None,
            chrf=quality.chrf if quality else None,
            chrf_signature=quality.chrf_signature if quality else None,
            target_tokens=tokens,
            evaluation_s=time.perf_counter() - started,
            samples=samples,
        )

    def _keep(
        self, checkpoint: str, step: int, quality: Quality, translations: Sequence[str], references: Sequence[str]
    ) -> None:
        store = TranslationStore(self.run.translations)
        keep = store.keep_best if checkpoint == BEST_BLEU else store.keep
        language = self.data.languages.target
        keep(checkpoint, KeptTranslations(step, quality.bleu, language, tuple(references), tuple(translations)))

    def _losses(self, model: Transformer) -> tuple[float, float, int]:
        """Sums over the validation set of the smoothed loss and of the negative log-likelihood, and its tokens."""
        pairs = self.data.pairs("valid")
        longest = int(pairs.lengths().max())
        budget = max(longest, self.settings.batch.tokens)
        loader = DataLoader(
            pairs, self.data.tokenizer, budget, seed=0, micro_batch_tokens=max(longest, self.micro_batch_tokens)
        )
        sums = torch.zeros(3, dtype=torch.float64)
        device, label_smoothing = self.cluster.device, self.settings.training.label_smoothing
        for batch in loader.batches(Position(), [1.0] * self.cluster.world_size, self.cluster.rank):
            for micro_batch in batch.micro_batches:
                with self.precision.autocast():
                    loss_sum, nll_sum = model(micro_batch.to(device), label_smoothing)
                tokens = loss_sum.new_tensor(micro_batch.labels.numel())
                sums += torch.stack([loss_sum, nll_sum, tokens]).double().cpu()
            if batch.next_position.epoch > 0:
                break
        by_worker = torch.tensor(self.cluster.all_gather_json(sums.tolist()), dtype=torch.float64)
        loss, nll, count = by_worker.sum(dim=0).tolist()
        return loss, nll, int(count)

    def _translate(self, model: Transformer) -> list[str]:
        """Translations of the first validation sentences, in order. Of n workers, each translates every n-th."""
        if not self.settings.evaluation.bleu:
            return []
        lines = self.data.text("valid")[0]
        lines = lines[: self.settings.evaluation.sentences or len(lines)]
        rank, world_size = self.cluster.rank, self.cluster.world_size
        with self.precision.autocast():
            parts = self.cluster.all_gather_json(self.scorer.translate(model, lines[rank::world_size]))
        assert sum(map(len, parts)) == len(lines), "each line has one translation"
        return [parts[number % world_size][number // world_size] for number in range(len(lines))]


@contextmanager
def _evaluation_mode(model: Transformer) -> Iterator[None]:
    """Turn dropout off, and on again if a worker is lost meanwhile: the survivors continue to train this model."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
