"""Tokens that fit into a device's memory at once, in training."""

import psutil
import torch

from dragoman.model.architecture import Architecture
from dragoman.settings import Settings

CPU_MICRO_BATCH_TOKENS = 4096
"""Activations of more tokens do not fit into a CPU's caches, and gain no speed."""
ACTIVATION_SHARE = 0.5
"""Share of a device's memory that activations may use: weights, optimizer state and other programs need the rest."""


def choose_micro_batch_tokens(
    settings: Settings, architecture: Architecture, device: torch.device, workers_on_host: int
) -> int:
    """Most tokens of one side in a micro-batch.

    The memory of a token is estimated, generously; if it does not suffice, training splits further. The estimate uses
    the memory that the machine has, not what is free now, so that a resumed run splits batches the same way.
    """
    if settings.training.micro_batch_tokens:
        return settings.training.micro_batch_tokens
    if device.type == "cuda":
        workers_on_gpu = -(-workers_on_host // torch.cuda.device_count())
        memory_bytes = torch.cuda.get_device_properties(device).total_memory // workers_on_gpu
        most = settings.batch.tokens
    else:
        memory_bytes = psutil.virtual_memory().total // workers_on_host
        most = CPU_MICRO_BATCH_TOKENS
    fitting = int(ACTIVATION_SHARE * memory_bytes / activation_bytes(architecture))
    return max(1, min(most, fitting))


def activation_bytes(a: Architecture) -> int:
    """Bytes that one source and one target token keep for the backward pass, in float32, without padding."""
    encoder = a.encoder_layers * (12 * a.d_model + 4 * a.feed_forward)
    decoder = a.decoder_layers * (20 * a.d_model + 4 * a.feed_forward)
    return 4 * (encoder + decoder + 8 * a.d_model)
