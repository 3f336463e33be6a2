"""Evaluation on the validation set and other sets: loss, BLEU and chrF, with the work shared by all workers."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from dragoman.batching.data_loader import DataLoader, Position, WorkerBatch
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.evaluation_set import EvaluationSet
from dragoman.corpus.shards import Pairs
from dragoman.distributed.cluster import Cluster
from dragoman.events import EvaluationDone
from dragoman.model.out_of_memory import is_out_of_memory
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.kept_translations import KeptTranslations, TranslationStore
from dragoman.telemetry.score_gains import Gain
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

    def gain(self, before: Sequence[str], translations: Sequence[str], references: Sequence[str]) -> Gain:
        """The difference of translations from those before."""
        ...


@dataclass(frozen=True)
class SetScores:
    """Scores of a model on one evaluation set."""

    loss: float
    nll: float
    target_tokens: int
    quality: Quality | None
    """None if nothing was translated."""
    gain: Gain | None
    """None without translations by the model that the run began with."""
    translations: Sequence[str]

    def to_json(self) -> dict[str, float | None]:
        bleu, chrf = (self.quality.bleu, self.quality.chrf) if self.quality else (None, None)
        scores = {"loss": self.loss, "nll": self.nll, "bleu": bleu, "chrf": chrf, "target_tokens": self.target_tokens}
        return {name: value if value is None or math.isfinite(value) else None for name, value in scores.items()}


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
    other_sets: Sequence[EvaluationSet] = ()
    """Those of `--also-evaluate`."""

    def evaluate(self, model: Transformer, step: int, checkpoint: str = BEST_BLEU) -> EvaluationDone:
        """Evaluate a model. Its translations are kept under the name of the checkpoint, of `best-bleu` the best."""
        started = time.perf_counter()
        valid = EvaluationSet.validation(self.data)
        with torch.inference_mode(), _evaluation_mode(model):
            scored = {each.name: self._evaluate_set(model, each, step) for each in (valid, *self.other_sets)}
        found = scored[valid.name]
        quality = found.quality
        if quality is not None and self.cluster.is_main:
            self._keep(checkpoint, step, quality, found.translations, valid.references[: len(found.translations)])
        texts = zip(valid.sources, valid.references, found.translations, strict=False)
        samples = [
            {"source": source, "reference": reference, "translation": translation}
            for source, reference, translation in islice(texts, self.settings.evaluation.samples)
        ]
        return EvaluationDone(
            step=step,
            loss=found.loss,
            nll=found.nll,
            perplexity=math.exp(min(found.nll, 700.0)),
            bleu=quality.bleu if quality else None,
            bleu_signature=quality.bleu_signature if quality else None,
            chrf=quality.chrf if quality else None,
            chrf_signature=quality.chrf_signature if quality else None,
            target_tokens=found.target_tokens,
            evaluation_s=time.perf_counter() - started,
            samples=samples,
            sets={each.name: scored[each.name].to_json() for each in self.other_sets},
            gains={name: asdict(scores.gain) for name, scores in scored.items() if scores.gain is not None},
        )

    def _evaluate_set(self, model: Transformer, evaluated: EvaluationSet, step: int) -> SetScores:
        loss_sum, nll_sum, tokens = self._losses(model, evaluated.pairs)
        translations = self._translate(model, evaluated.sources)
        quality, gain = self._score(evaluated, translations, step) if translations else (None, None)
        return SetScores(loss_sum / tokens, nll_sum / tokens, tokens, quality, gain, translations)

    def _score(self, evaluated: EvaluationSet, translations: Sequence[str], step: int) -> tuple[Quality, Gain | None]:
        """Scores of translations. Those of the model that the run began with, at step 0, are kept to compare with."""
        references, kept_as = evaluated.references[: len(translations)], f"start-{evaluated.name}"
        before = TranslationStore(self.run.translations).read(kept_as) if step > 0 else None
        if before is not None and before.references != tuple(references):
            before = None  # The run was resumed with other text.
        # Every worker has all translations; scoring them once is enough. A machine that joined later has no start.
        has_start = self.cluster.all_gather_json(before is not None)
        scoring_rank = has_start.index(True) if True in has_start else 0
        scores = None
        if self.cluster.rank == scoring_rank:
            quality = self.scorer.score(translations, references)
            gain = None if before is None else self.scorer.gain(before.translations, translations, references)
            scores = [asdict(quality), None if gain is None else asdict(gain)]
        quality_json, gain_json = self.cluster.all_gather_json(scores)[scoring_rank]
        quality = Quality(**quality_json)
        if step == 0:
            self._keep(kept_as, step, quality, translations, references)
        return quality, None if gain_json is None else Gain(**gain_json)

    def _keep(
        self, checkpoint: str, step: int, quality: Quality, translations: Sequence[str], references: Sequence[str]
    ) -> None:
        store = TranslationStore(self.run.translations)
        keep = store.keep_best if checkpoint == BEST_BLEU else store.keep
        language = self.data.languages.target
        keep(checkpoint, KeptTranslations(step, quality.bleu, language, tuple(references), tuple(translations)))

    def _losses(self, model: Transformer, pairs: Pairs) -> tuple[float, float, int]:
        """Sums over an evaluation set of the smoothed loss and of the negative log-likelihood, and its tokens."""
        longest = int(pairs.lengths().max())
        budget = max(longest, self.settings.batch.tokens)
        loader = DataLoader(
            pairs, self.data.tokenizer, budget, seed=0, micro_batch_tokens=max(longest, self.micro_batch_tokens)
        )
        sums = torch.zeros(3, dtype=torch.float64)
        for batch in loader.batches(Position(), [1.0] * self.cluster.world_size, self.cluster.rank):
            sums += self._batch_losses(model, loader, batch)
            if batch.next_position.epoch > 0:
                break
        by_worker = torch.tensor(self.cluster.all_gather_json(sums.tolist()), dtype=torch.float64)
        loss, nll, count = by_worker.sum(dim=0).tolist()
        return loss, nll, int(count)

    def _batch_losses(self, model: Transformer, loader: DataLoader, batch: WorkerBatch) -> Tensor:
        """The sums of `_losses` over a batch; if it does not fit into memory, in smaller micro-batches."""
        device, label_smoothing = self.cluster.device, self.settings.training.label_smoothing
        micro_batches, sums = batch.micro_batches, torch.zeros(3, dtype=torch.float64)
        while True:
            try:
                for micro_batch in micro_batches:
                    with self.precision.autocast():
                        loss_sum, nll_sum = model(micro_batch.to(device), label_smoothing)
                    tokens = loss_sum.new_tensor(micro_batch.labels.numel())
                    sums += torch.stack([loss_sum, nll_sum, tokens]).double().cpu()
                return sums
            except RuntimeError as error:
                if not is_out_of_memory(error) or len(micro_batches) >= len(batch.pairs):
                    raise
            # After the handler, so that the failed pass and its memory are freed.
            sums.zero_()
            loader.micro_batch_tokens = max(1, loader.micro_batch_tokens // 2)
            micro_batches = loader.split(batch.pairs, batch.first_places, loader.micro_batch_tokens)

    def _translate(self, model: Transformer, lines: Sequence[str]) -> list[str]:
        """Translations of the first sentences of a set, in order. Of n workers, each translates every n-th."""
        if not self.settings.evaluation.bleu:
            return []
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
