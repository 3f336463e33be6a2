"""The first events of a run: its workers, model and data."""

from collections.abc import Sequence

import numpy as np
import torch

from dragoman import __version__
from dragoman.batching.batch_plan import Lengths
from dragoman.corpus.dataset import Manifest, TextCounts
from dragoman.distributed.cluster import Cluster
from dragoman.events import DataOpened, RunStarted
from dragoman.model.architecture import attention_flops, token_flops
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.settings import Settings
from dragoman.training.start_model import StartWeights


def start_events(
    run: str,
    cluster: Cluster,
    workers: Sequence[str],
    model: Transformer,
    precision: Precision,
    manifest: Manifest,
    lengths: Lengths,
    resumed_step: int,
    session_at_s: float,
    settings: Settings,
    start: StartWeights | None,
) -> tuple[RunStarted, DataOpened]:
    source_flops, target_flops = token_flops(model.architecture)
    tokens = int(lengths.sum(dtype=np.int64))
    started = RunStarted(
        run=run,
        version=__version__,
        torch_version=torch.__version__,
        world_size=cluster.world_size,
        workers=list(workers),
        device=torch.cuda.get_device_name(cluster.device) if cluster.device.type == "cuda" else "CPU",
        host=cluster.host,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        precision=precision.name,
        data_hash=manifest.identity,
        resumed_step=resumed_step,
        session_at_s=session_at_s,
        total_steps=settings.training.steps,
        flops_per_source_token=source_flops,
        flops_per_target_token=target_flops,
        attention_flops_per_token=attention_flops(model.architecture, lengths) / tokens,
        settings=settings.model_dump(mode="json"),
        start=None if start is None else dict(start.origin),
    )
    return started, _data_opened(manifest)


def _data_opened(manifest: Manifest) -> DataOpened:
    before = sum((source.before for source in manifest.sources), TextCounts())
    train = manifest.splits["train"]
    return DataOpened(
        name=manifest.name,
        languages=f"{manifest.languages.source}-{manifest.languages.target}",
        pairs_before=before.pairs,
        bytes_before=before.text_bytes,
        pairs=train.pairs,
        text_bytes=train.text_bytes,
        source_tokens=train.source_tokens,
        target_tokens=train.target_tokens,
        valid_pairs=manifest.splits["valid"].pairs,
        vocabulary=manifest.pieces,
    )
