"""Score a model in training by its translations. Training takes it as a callable, because decoding is a later stage."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.corpus.dataset import DataSet
from dragoman.decoding import scoring
from dragoman.decoding.translator import Translator
from dragoman.model.transformer import Transformer
from dragoman.settings import DecodingSettings, Settings
from dragoman.telemetry.score_gains import Gain
from dragoman.training.evaluation import Quality


@dataclass(frozen=True)
class ValidationScorer:
    """Translates with the same beam search as `dragoman translate`, and scores with sacreBLEU."""

    data: DataSet
    options: DecodingSettings

    def translate(self, model: Transformer, lines: Sequence[str]) -> list[str]:
        return Translator(model, self.data.tokenizer, self.options).translate(lines)

    def score(self, translations: Sequence[str], references: Sequence[str]) -> Quality:
        found = scoring.score(translations, references, language=self.data.languages.target)
        return Quality(found.bleu.value, found.bleu.signature, found.chrf.value, found.chrf.signature)

    def gain(self, before: Sequence[str], translations: Sequence[str], references: Sequence[str]) -> Gain:
        return scoring.measure_gain(before, translations, references, language=self.data.languages.target)


def make_scorer(settings: Settings, data: DataSet) -> ValidationScorer:
    return ValidationScorer(data, settings.decoding)
