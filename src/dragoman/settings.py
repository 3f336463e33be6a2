"""All settings: documented, frozen and defaulted here; changed by recipes and by `key=value` (see `recipe`)."""

from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1, le=10**12)]
CountOrZero = Annotated[int, Field(ge=0, le=10**12)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
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
    "truncated",
    "copied",
    "repetition",
    "language",
    "duplicate",
    "score",
    "agreement",
    "tokens",
]
ALL_RULES: tuple[RuleName, ...] = get_args(RuleName)
# Language detection takes longer than all other rules together.
DEFAULT_RULES: tuple[RuleName, ...] = tuple(rule for rule in ALL_RULES if rule != "language")


AugmentationName = Literal["upper_case", "title_case", "typos", "no_end_punctuation", "inline_noise"]
AUGMENTATIONS: tuple[AugmentationName, ...] = get_args(AugmentationName)
FrozenPart = Literal["embeddings", "encoder", "decoder"]
FROZEN_PARTS: tuple[FrozenPart, ...] = get_args(FrozenPart)


def _split_at_commas(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _change_default_rules(value: object) -> object:
    """Rules as a list, or as changes of the default such as `+language,-script`."""
    parts = _split_at_commas(value)
    if not isinstance(value, str) or not isinstance(parts, list) or not all(part[0] in "+-" for part in parts):
        return parts
    removed = {part[1:].strip() for part in parts if part[0] == "-"}
    added = [part[1:].strip() for part in parts if part[0] == "+"]
    unknown = removed - set(ALL_RULES)  # Left in the list, so that the check of its values names them.
    rules = dict.fromkeys([*DEFAULT_RULES, *added, *sorted(unknown)])
    return [rule for rule in rules if rule not in removed - unknown]


class Section(BaseModel):
    """A group of settings. The docstring under each field is its documentation."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class CorpusSettings(Section):
    """Held-out pairs for corpora without a validation or test set of their own."""

    seed: CountOrZero = 1
    """Seed of the shuffle, the held-out split and the tokenizer's sample."""
    valid_pairs: CountOrZero = 2000
    """Pairs held out for validation, at most a tenth of the corpus; ignored if the corpus has a validation set."""
    test_pairs: CountOrZero = 0
    """Pairs held out for testing, at most a tenth of the corpus; ignored if the corpus has a test set."""


def _as_tuple(value: object) -> object:
    """A single number stands for a list of one."""
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else value


class CleaningSettings(Section):
    """Rules that repair or drop training pairs. Validation and test sets keep every line."""

    rules: Annotated[tuple[RuleName, ...], BeforeValidator(_change_default_rules)] = DEFAULT_RULES
    """Active rules, or changes of the default, such as +language,-script. The manifest has the count and samples of
    each."""
    form: Literal["NFC", "NFKC"] = "NFC"
    """Unicode normal form used by the rule `normal_form`."""
    min_words: Count = 1
    """Minimum words on each side."""
    max_words: Count = 80
    """Maximum words on each side."""
    max_length_ratio: Annotated[float, Field(ge=1, le=1000)] = 2.5
    """Maximum length ratio of the two sides, in characters; ten are added to each, so that short pairs may differ."""
    max_copied: Share = 0.8
    """Maximum share of a side's words that occur on the other side, too."""
    max_repeated: Share = 0.4
    """Maximum share of a side's trigrams that repeat earlier ones."""
    min_score: Annotated[float, Field(ge=-1000, le=1000)] | None = None
    """Minimum score of a pair by a model, for the rules score and agreement (default: found from mismatched pairs)."""
    max_tokens: Annotated[int, Field(ge=2, le=65536)] = 256
    """Maximum tokens on each side, including the end-of-sentence token."""


class AugmentationSettings(Section):
    """Changed copies of training pairs, added to them. Each setting is the share of pairs that get such a copy."""

    upper_case: Share = 0.0
    """Both sides in upper case."""
    title_case: Share = 0.0
    """Both sides with a capital at the beginning of each word."""
    typos: Share = 0.0
    """Typing errors on the source side."""
    no_end_punctuation: Share = 0.0
    """Both sides without the punctuation at their end."""
    inline_noise: Share = 0.0
    """The same emoji, bullet, tag or placeholder at the beginning or at the end of both sides."""

    @property
    def is_active(self) -> bool:
        return any(getattr(self, name) for name in AUGMENTATIONS)


class TokenizerSettings(Section):
    """The joint SentencePiece tokenizer of both languages."""

    algorithm: Literal["bpe", "unigram"] = "bpe"
    """Tokenizer model: byte-pair encoding, or a unigram language model."""
    vocabulary_size: Annotated[int, Field(ge=300, le=1_000_000)] = 32768
    """Vocabulary size, including 256 byte tokens and 4 special tokens; smaller if the text has fewer pieces."""
    sample_pairs: Count = 100_000
    """Pairs to train the tokenizer on, sampled evenly from the corpus."""
    character_coverage: Annotated[float, Field(gt=0.9, le=1)] = 0.9998
    """Fraction of characters that get a piece of their own; the rest are encoded as bytes."""


class BatchSettings(Section):
    """The global batch, the same for any number of workers."""

    tokens: Annotated[int, Field(ge=16, le=10**8)] = 25_000
    """Maximum target tokens, and maximum source tokens, of a global batch."""
    seed: CountOrZero = 1
    """Seed of the shuffling of pairs and batches."""


class ModelSettings(Section):
    """The Transformer. The vocabulary comes from the data set. CTranslate2 supports everything except qk_norm."""

    d_model: Annotated[int, Field(ge=8, le=16384)] = 512
    """Model dimension; a multiple of twice the number of heads."""
    heads: Annotated[int, Field(ge=1, le=256)] = 8
    """Attention heads; each has d_model / heads dimensions."""
    encoder_layers: Annotated[int, Field(ge=1, le=200)] = 6
    """Encoder layers."""
    decoder_layers: Annotated[int, Field(ge=1, le=200)] = 6
    """Decoder layers."""
    feed_forward: Annotated[int, Field(ge=8, le=131072)] = 2048
    """Inner dimension of the feed-forward layers; a gated one has two projections of this size."""
    dropout: Fraction = 0.1
    """Dropout on the embeddings and on each sublayer's output."""
    attention_dropout: Fraction = 0.0
    """Dropout on attention weights."""
    activation_dropout: Fraction = 0.0
    """Dropout on the activations inside the feed-forward layers."""
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Kind of normalisation."""
    norm_position: Literal["before", "after"] = "before"
    """Norm before each sublayer and after the last layer (pre-norm), or after each sublayer (post-norm)."""
    activation: Literal["relu", "swish", "swiglu"] = "relu"
    """Activation function of the feed-forward layers; swiglu is gated."""
    positions: Literal["sinusoidal", "marian", "rotary"] = "sinusoidal"
    """Position encoding: sinusoidal, added to the embeddings; marian: other wavelengths; rotary, in self-attention."""
    first_position: Annotated[int, Field(ge=0, le=1024)] = 1
    """Position of the first token of a sentence; rotary positions begin with 0."""
    scale_embedding: bool = True
    """Multiply embeddings by the square root of d_model."""
    output_bias: bool = False
    """Constant added to the logits of each token, as in MarianMT. Training does not change it."""
    qk_norm: bool = False
    """Normalise queries and keys of each head. Such a model cannot be exported to CTranslate2."""
    bias: bool = True
    """Bias terms in linear layers."""

    @model_validator(mode="after")
    def _heads_share_evenly(self) -> Self:
        if self.d_model % (2 * self.heads):
            raise ValueError(
                f"model.d_model = {self.d_model} does not give each of {self.heads} heads an even dimension: "
                f"use a multiple of {2 * self.heads}, or another model.heads."
            )
        return self


class OptimizerSettings(Section):
    """The optimizer."""

    algorithm: Literal["adamw", "muon"] = "adamw"
    """AdamW for all parameters, or Muon for the matrices and AdamW for the rest, with the same learning rate."""
    beta1: Fraction = 0.9
    """AdamW: decay of the first moment."""
    beta2: Fraction = 0.997
    """AdamW: decay of the second moment."""
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-9
    """AdamW: term in the denominator for numerical stability."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Decoupled weight decay of the matrices; norms, biases and embeddings have none."""
    clip_norm: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Maximum global gradient norm; larger gradients are scaled down. 0: no clipping."""
    ema_decay: Fraction = 0.0
    """Decay of an exponential moving average of the weights, which is then evaluated and saved. 0: none."""


class ScheduleSettings(Section):
    """The learning rate at each step. `docs/train.md` explains the shapes."""

    policy: Literal["inverse_sqrt", "constant", "linear", "cosine", "warmup_stable_decay"] = "inverse_sqrt"
    """Shape after the warm-up: inverse square root, constant, linear, cosine, or constant with a late decay."""
    learning_rate: PositiveFloat = 2.0
    """Peak learning rate; with inverse_sqrt the factor f in f * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)."""
    warmup_steps: CountOrZero = 8000
    """Steps of linear warm-up."""
    decay_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Final fraction of the steps in which warmup_stable_decay falls to zero."""


class FineTuningSettings(Section):
    """A run that begins with the weights of another model (`train --from`). `docs/fine-tuning.md` explains it."""

    learning_rate: PositiveFloat = 2e-4
    """Peak learning rate, in place of schedule.learning_rate."""
    warmup_fraction: Fraction = 0.05
    """Fraction of the steps in which the learning rate grows, in place of schedule.warmup_steps."""
    policy: Literal["linear", "cosine", "constant", "warmup_stable_decay"] = "linear"
    """Shape of the learning rate after the warm-up, in place of schedule.policy."""
    freeze: Annotated[tuple[FrozenPart, ...], BeforeValidator(_split_at_commas)] = ()
    """Parts of the model that training does not change, such as encoder or embeddings,encoder. The embeddings are the
    output projection, too."""

    @model_validator(mode="after")
    def _something_is_trained(self) -> Self:
        if set(self.freeze) == set(FROZEN_PARTS):
            raise ValueError("fine_tuning.freeze freezes the whole model: leave out one part.")
        return self


class TrainingSettings(Section):
    """The training run."""

    steps: Count = 50_000
    """Total steps (weight updates) of the run."""
    seed: CountOrZero = 1
    """Seed of the initial weights and of dropout."""
    label_smoothing: Fraction = 0.1
    """Probability mass that the loss spreads over the whole vocabulary."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of matrix products: auto is bf16 where the hardware supports it, else fp32."""
    micro_batch_tokens: CountOrZero = 0
    """Maximum tokens of a micro-batch; 0 chooses by the available memory."""
    shares: Literal["auto", "equal"] | tuple[Annotated[float, Field(ge=0, le=1e6)], ...] = "auto"
    """Share of each batch by worker, such as [3, 1]; auto adapts to the speeds of several machines."""
    max_skipped_steps: Count = 5
    """Consecutive steps with a non-finite loss or gradient before the run rolls back to a checkpoint."""


class ExchangeSettings(Section):
    """Gradient exchange between workers. `docs/machines.md` explains the methods."""

    method: Literal["auto", "plain", "bf16", "powersgd", "local"] = "auto"
    """auto measures the link and chooses the most exact method that is fast enough; plain on a single machine."""
    every: Annotated[int, Field(ge=1, le=10_000)] = 16
    """local: steps between synchronisations; auto chooses its own."""
    wire_format: Literal["bf16", "int8", "int4", "int2"] = "bf16"
    """local: number format of the weight changes on the wire."""
    overlap: Annotated[int, Field(ge=1, le=10_000)] = 1
    """local: steps that compute while one part of the weights is averaged; raise it where the round trip is long."""
    outer_learning_rate: Annotated[float, Field(gt=0, le=10)] = 1.0
    """local: learning rate of the outer optimizer."""
    outer_momentum: Fraction = 0.0
    """local: Nesterov momentum of the outer optimizer; with 0, workers continue from the mean of their weights."""
    lengthen_steps: bool = True
    """local: raise the learning rate, since the mean of the workers' steps is shorter than one on the whole batch. Turn
    it off where the learning rate is as high as it can be."""
    quorum: Annotated[float, Field(gt=0.5, le=1)] = 1.0
    """local, elastic worlds: part of the workers that goes on without the late ones; 1: all wait for all."""
    grace_s: Annotated[float, Field(ge=0, le=86_400)] = 10.0
    """Seconds that the quorum waits for late workers, whose steps are merged when they arrive."""
    powersgd_rank: Annotated[int, Field(ge=1, le=1024)] = 8
    """powersgd: rank of the gradient approximation."""


class EvaluationSettings(Section):
    """Evaluation on the validation set."""

    every: Count = 4001
    """Steps between evaluations; the last step is always evaluated."""
    sentences: CountOrZero = 0
    """Validation sentences to translate for BLEU, from the first on; 0: all."""
    samples: Annotated[int, Field(ge=0, le=100)] = 3
    """Sample translations to show with their references."""
    bleu: bool = True
    """Compute BLEU and chrF, not only the loss."""
    patience: CountOrZero = 0
    """Evaluations without improvement before training stops early; 0: never."""
    patience_metric: Literal["loss", "bleu", "chrf"] = "loss"
    """Metric that must improve."""


class CheckpointSettings(Section):
    """Checkpoints of a run."""

    every: Count = 1000
    """Steps between checkpoints; also saved at each evaluation and at the end."""
    keep_last: Count = 3
    """Newest checkpoints to keep, besides the best by loss and the best by BLEU."""
    average: CountOrZero = 0
    """Checkpoints to average at the end, into `checkpoints/averaged`; 0: none."""
    average_of: Literal["last", "best"] = "last"
    """Checkpoints to average: the newest, or the best by validation loss."""


class DecodingSettings(Section):
    """Beam search."""

    beam: Annotated[int, Field(ge=1, le=256)] = 4
    """Beam size."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Exponent of the length penalty: scores are divided by ((5 + length) / 6)^length_penalty."""
    max_length_ratio: Annotated[float, Field(gt=0, le=100)] = 2.0
    """Maximum length of a translation, as a multiple of the source tokens, plus 20 tokens."""
    no_repeat_ngram: Annotated[int, Field(ge=0, le=100)] = 0
    """N-grams of this size never occur twice in a translation; 0: no limit."""
    coverage_penalty: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Weight of the penalty for source tokens without attention; 0: none."""
    batch_tokens: Annotated[int, Field(ge=16, le=10**7)] = 4096
    """Source tokens of a decoding batch, not counting the beam. A GPU takes more if its memory allows."""


class TelemetrySettings(Section):
    """Curves and logs of a run. `docs/train.md` explains the trackers."""

    trackers: tuple[Literal["tensorboard", "mlflow", "wandb", "trackio"], ...] = ("tensorboard",)
    """Where the curves are shown; mlflow, wandb and trackio are packages of their own."""
    project: Annotated[str, Field(min_length=1, max_length=100)] = "dragoman"
    """Project, or experiment of MLflow, that the run belongs to."""
    mlflow_uri: str = ""
    """Store or server of MLflow, such as http://host:5000; empty: that of MLFLOW_TRACKING_URI on the first machine."""
    log_format: Literal["text", "json"] = "text"
    """Output of training: text with a progress bar, or JSON lines for log collectors."""


class MoneySettings(Section):
    """Prices of the machines, for the cost of a run."""

    price_per_hour: Annotated[tuple[Annotated[float, Field(ge=0, le=1e6)], ...], BeforeValidator(_as_tuple)] = ()
    """Price of each machine in the order of `--hosts`, such as [2.1, 0.9]; a single price applies to all."""
    currency: Annotated[str, Field(min_length=1, max_length=12)] = "USD"
    """Currency of the prices."""


class Settings(Section):
    """All settings, by section."""

    corpus: CorpusSettings = CorpusSettings()
    cleaning: CleaningSettings = CleaningSettings()
    augmentation: AugmentationSettings = AugmentationSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    batch: BatchSettings = BatchSettings()
    model: ModelSettings = ModelSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    fine_tuning: FineTuningSettings = FineTuningSettings()
    training: TrainingSettings = TrainingSettings()
    exchange: ExchangeSettings = ExchangeSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    decoding: DecodingSettings = DecodingSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    money: MoneySettings = MoneySettings()


PREPARATION_SECTIONS = {"corpus", "cleaning", "augmentation", "tokenizer"}
"""Sections that a data set depends on. Training does not read them."""
