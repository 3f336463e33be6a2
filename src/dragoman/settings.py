"""All settings of Dragoman: documented, frozen and defaulted here, changed by recipes and by `key=value` (`recipe`)."""

from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1, le=10**12)]
CountOrNone = Annotated[int, Field(ge=0, le=10**12)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e9)]
RuleName = Literal[
    "invalid_utf8",
    "control_characters",
    "normal_form",
    "mojibake",
    "empty",
    "words",
    "ratio",
    "identical",
    "script",
    "duplicate",
    "tokens",
]
ALL_RULES: tuple[RuleName, ...] = get_args(RuleName)


class Section(BaseModel):
    """A group of settings. What a field is for stands under it, and is what the documentation shows."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class CorpusSettings(Section):
    """Which pairs are held out where a corpus brings no validation or test set of its own."""

    seed: CountOrNone = 1
    """Seed of the shuffle, the held-out split and the tokenizer's sample."""
    valid_pairs: CountOrNone = 2000
    """Pairs held out to validate, at most a tenth of the corpus; unused where the corpus names a validation set."""
    test_pairs: CountOrNone = 0
    """Pairs held out to test, at most a tenth of the corpus; unused where the corpus names a test set."""


class CleaningSettings(Section):
    """Which training pairs are mended or left out. Validation and test sets keep every line."""

    rules: tuple[RuleName, ...] = ALL_RULES
    """The rules in use; each is counted and sampled in the manifest."""
    form: Literal["NFC", "NFKC"] = "NFC"
    """Unicode normal form that `normal_form` brings text into."""
    min_words: Count = 1
    """Fewest words of a side."""
    max_words: Count = 80
    """Most words of a side, as in the original recipe."""
    max_length_ratio: Annotated[float, Field(ge=1, le=1000)] = 4.0
    """Longest side over shortest, in characters, ten added to each so that short sentences may differ."""
    max_tokens: Annotated[int, Field(ge=2, le=65536)] = 256
    """Most tokens of a side, its end mark included."""


class TokenizerSettings(Section):
    """The joint SentencePiece model of both languages."""

    algorithm: Literal["bpe", "unigram"] = "bpe"
    """How pieces are found: byte-pair merges, or a unigram language model."""
    vocabulary_size: Annotated[int, Field(ge=300, le=1_000_000)] = 32768
    """Number of pieces, 256 bytes and 4 marks included; fewer where the text has not as many."""
    sample_pairs: Count = 100_000
    """Pairs that the tokenizer is trained on, drawn evenly from the corpus."""
    character_coverage: Annotated[float, Field(gt=0.9, le=1)] = 0.9998
    """Share of characters that get a piece of their own; the rest are spelled in bytes."""


class BatchSettings(Section):
    """How pairs make a global batch: the same whatever the number of workers."""

    tokens: Annotated[int, Field(ge=16, le=10**8)] = 25_000
    """Most target tokens, and most source tokens, of a global batch."""
    seed: CountOrNone = 1
    """Seed of the order of pairs and batches."""


class ModelSettings(Section):
    """The Transformer. Its vocabulary comes from the data set. CTranslate2 runs all of it but qk_norm."""

    d_model: Annotated[int, Field(ge=8, le=16384)] = 512
    """Features of a token between layers; a multiple of twice the heads."""
    heads: Annotated[int, Field(ge=1, le=256)] = 8
    """Attention heads, which share d_model evenly."""
    encoder_layers: Annotated[int, Field(ge=1, le=200)] = 6
    """Layers that read the source."""
    decoder_layers: Annotated[int, Field(ge=1, le=200)] = 6
    """Layers that write the translation."""
    feed_forward: Annotated[int, Field(ge=8, le=131072)] = 2048
    """Features inside a feed-forward layer; a gated one has this many twice."""
    dropout: Fraction = 0.1
    """Dropout of the embeddings, and of what each sublayer adds."""
    attention_dropout: Fraction = 0.0
    """Dropout of attention weights."""
    activation_dropout: Fraction = 0.0
    """Dropout of the features inside a feed-forward layer."""
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Normalisation before each sublayer and after the last."""
    activation: Literal["relu", "swiglu"] = "relu"
    """Non-linearity of the feed-forward layers; swiglu is gated."""
    positions: Literal["sinusoidal", "rotary"] = "sinusoidal"
    """Added to the embeddings, or turned into queries and keys of self-attention."""
    qk_norm: bool = False
    """Normalise queries and keys, head by head. Such a model cannot be exported to CTranslate2."""
    bias: bool = True
    """Biases in linear layers."""

    @model_validator(mode="after")
    def _heads_share_evenly(self) -> Self:
        if self.d_model % (2 * self.heads):
            raise ValueError(
                f"model.d_model = {self.d_model} does not give each of {self.heads} heads an even number of features: "
                f"use a multiple of {2 * self.heads}, or another model.heads."
            )
        return self


class OptimizerSettings(Section):
    """How gradients change the weights."""

    algorithm: Literal["adamw", "muon"] = "adamw"
    """AdamW for everything, or Muon for the matrices and AdamW for the rest, at the same rate."""
    beta1: Fraction = 0.9
    """AdamW's decay of the mean gradient."""
    beta2: Fraction = 0.997
    """AdamW's decay of the mean squared gradient."""
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-9
    """AdamW's guard against division by zero."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Decoupled decay of the matrices; norms, biases and embeddings have none."""
    clip_norm: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Largest global norm of the gradient; larger ones are scaled down. 0 is off."""
    ema_decay: Fraction = 0.0
    """Decay of a running average of the weights, which is then evaluated and saved too. 0 is off."""


class ScheduleSettings(Section):
    """The learning rate at each step. `docs/train.md` explains the shapes."""

    policy: Literal["inverse_sqrt", "constant", "linear", "cosine", "warmup_stable_decay"] = "inverse_sqrt"
    """Shape: the original's inverse square root, or warm-up and then no, linear, cosine or late decay."""
    learning_rate: PositiveFloat = 2.0
    """Peak rate; for inverse_sqrt the factor in rate * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)."""
    warmup_steps: CountOrNone = 8000
    """Steps of linear growth before the decay."""
    decay_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Last part of the steps in which warmup_stable_decay falls to zero."""


class TrainingSettings(Section):
    """The run itself."""

    steps: Count = 50_000
    """Updates of the weights until the end."""
    seed: CountOrNone = 1
    """Seed of the first weights and of dropout."""
    label_smoothing: Fraction = 0.1
    """Share of the probability that the loss spreads over the whole vocabulary."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the matrix products: auto takes bf16 where the hardware has it, and fp32 elsewhere."""
    micro_batch_tokens: CountOrNone = 0
    """Most target tokens a worker takes through the model at once; 0 finds out by itself what memory allows."""
    shares: Literal["auto", "equal"] | tuple[Annotated[float, Field(ge=0, le=1e6)], ...] = "auto"
    """Share of each batch for each worker, such as [3, 1]; auto follows the speeds of several machines."""
    max_skipped_steps: Count = 5
    """Steps in a row with a loss or gradient that is not finite, before the run goes back to a checkpoint."""


class ExchangeSettings(Section):
    """How gradients get from machine to machine. `docs/machines.md` explains the methods."""

    method: Literal["auto", "plain", "bf16", "powersgd", "local"] = "auto"
    """auto measures and takes the least lossy one that is fast enough; on a single machine that is plain."""
    every: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Steps between meetings of the local method; auto finds its own."""
    wire_format: Literal["bf16", "int8"] = "bf16"
    """How the local method sends what the weights moved."""
    outer_learning_rate: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Rate of the local method's outer optimizer."""
    outer_momentum: Fraction = 0.0
    """Its Nesterov momentum; with none, workers meet at the mean of their weights."""
    powersgd_rank: Annotated[int, Field(ge=1, le=1024)] = 8
    """Columns of the thin matrices that powersgd sends."""


class EvaluationSettings(Section):
    """How the run is judged on the validation set."""

    every: Count = 4001
    """Steps between evaluations; there is one more at the end."""
    sentences: CountOrNone = 0
    """Validation sentences that are translated for BLEU, from the first on; 0 is all of them."""
    samples: Annotated[int, Field(ge=0, le=100)] = 3
    """Translations shown side by side with their reference."""
    bleu: bool = True
    """Translate and score BLEU and chrF, not only the loss."""
    patience: CountOrNone = 0
    """Evaluations without a better value before training stops early; 0 is never."""
    patience_metric: Literal["loss", "bleu", "chrf"] = "loss"
    """What must get better."""


class CheckpointSettings(Section):
    """What is kept of a run."""

    every: Count = 1000
    """Steps between checkpoints; there is one more at the end and at each evaluation."""
    keep_last: Count = 3
    """Newest checkpoints kept, besides the best by loss and the best by BLEU."""
    average: CountOrNone = 0
    """Checkpoints whose weights are averaged at the end, into `checkpoints/averaged`; 0 is none."""
    average_of: Literal["last", "best"] = "last"
    """Which ones: the newest, or the best by validation loss; as many are kept."""


class DecodingSettings(Section):
    """How translations are searched for."""

    beam: Annotated[int, Field(ge=1, le=256)] = 4
    """Hypotheses kept for each sentence."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Length penalty: scores are divided by ((5 + length) / 6)^alpha."""
    max_length_ratio: Annotated[float, Field(gt=0, le=100)] = 2.0
    """Longest translation as a multiple of the source's tokens, 20 tokens added."""
    no_repeat_ngram: Annotated[int, Field(ge=0, le=100)] = 0
    """Runs of this many tokens never occur twice in a translation; 0 is off."""
    coverage_penalty: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Weight of the penalty for source tokens that no attention fell on; 0 is off."""
    batch_tokens: Annotated[int, Field(ge=16, le=10**7)] = 4096
    """Source tokens translated at once, the beam not counted. A GPU takes more, as far as its memory allows."""


class MoneySettings(Section):
    """What machines cost, so that a run can say what it has cost and will."""

    price_per_hour: tuple[Annotated[float, Field(ge=0, le=1e6)], ...] = ()
    """Of each machine in the order of `--hosts`, such as [2.1, 0.9]; a single one is that of every machine."""
    currency: Annotated[str, Field(min_length=1, max_length=12)] = "USD"
    """What prices are in."""


class Settings(Section):
    """The whole."""

    corpus: CorpusSettings = CorpusSettings()
    cleaning: CleaningSettings = CleaningSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    batch: BatchSettings = BatchSettings()
    model: ModelSettings = ModelSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    training: TrainingSettings = TrainingSettings()
    exchange: ExchangeSettings = ExchangeSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    decoding: DecodingSettings = DecodingSettings()
    money: MoneySettings = MoneySettings()
