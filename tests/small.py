"""Settings of a tiny model whose training step takes milliseconds."""

from dragoman.recipe import resolve
from dragoman.settings import Settings

TINY = [
    "batch.tokens=200", "model.d_model=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "model.feed_forward=64", "model.dropout=0.1", "training.steps=12", "evaluation.every=5", "checkpoint.every=4",
    "evaluation.sentences=4", "schedule.policy=constant",
    "training.precision=fp32", "schedule.learning_rate=0.003", "schedule.warmup_steps=2",
]  # fmt: skip


def tiny(*overrides: str) -> Settings:
    return resolve(None, [*TINY, *overrides]).settings
