"""The Transformer, encoder and decoder, on packed tokens.

Pre-norm layers with a norm after the last; one matrix embeds both languages and scores the output. With its default
settings it computes what fairseq's and Hugging Face's M2M100 compute from the same weights.

Training goes through `Transformer.forward`, which gives sums of losses. Translation goes step by step: see
`Transformer.start_decoding`.

Shapes: T tokens (packed), N hypotheses, d features, V vocabulary; those of attention in `attention`.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.model.architecture import Architecture
from dragoman.model.attention import RMS_EPSILON, CrossAttention, Rotation, SelfAttention, rotation_at
from dragoman.model.decoder_state import DecoderState, IndexedState, LayerCache
from dragoman.model.dropout import Dropout
from dragoman.model.kernels import runs_kernels, takes_heads
from dragoman.model.loss import linear_cross_entropy
from dragoman.model.packing import Batch, Layout, Packed

FIRST_POSITION = 1
"""The sinusoid that a sentence's first token gets: CTranslate2's, and M2M100's where padding has id 0."""


class Transformer(nn.Module):
    """Trains on batches with `model(batch, smoothing)`; translates with `start_decoding` and `decode_step`."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = a = architecture
        self.embedding = nn.Embedding(a.vocabulary, a.d_model)
        self.positions = Sinusoids(a.d_model) if a.positions == "sinusoidal" else None
        self.source_dropout, self.target_dropout = Dropout(a.dropout), Dropout(a.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(a) for _ in range(a.encoder_layers))
        self.encoder_norm = make_norm(a)
        self.decoder = nn.ModuleList(DecoderLayer(a) for _ in range(a.decoder_layers))
        self.decoder_norm = make_norm(a)
        self._trained_parts: _Parts | None = None
        self.reset_parameters()

    def compile_for_training(self) -> None:
        """From now on, run compiled while in training. All layers of a kind share what the first one's use compiles.

        Searches and evaluations run as before: their shapes change too often.
        """
        self._trained_parts = _Parts._make(torch.compile(part) for part in _parts())

    def forward(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Sums over the batch's labels of the smoothed loss, to minimise, and of the negative log-likelihood.

        Sums, not means: they add up over chunks, workers and batches, and are divided once by the number of labels.
        """
        return linear_cross_entropy(self.hidden(batch), self.embedding.weight, batch.labels, smoothing)

    def hidden(self, batch: Batch) -> Tensor:
        """The decoder's output for every target token, [T, d]; `logits` turns it into scores."""
        return self.decode(self.encode(batch.source), batch.source.layout, batch.target)

    def encode(self, source: Packed) -> Tensor:
        """[T, d]: what the decoder looks at."""
        parts, layout = self._parts, source.layout
        x, rotation = parts.embed(self, source.tokens, layout.positions, layout.max_len, self.source_dropout)
        for layer in self.encoder:
            x = parts.encode(layer, x, layout, rotation)
        y: Tensor = self.encoder_norm(x)
        return y

    def decode(self, memory: Tensor, memory_layout: Layout, target: Packed) -> Tensor:
        """[T, d] for target tokens that are all known, as in training."""
        parts, layout = self._parts, target.layout
        x, rotation = parts.embed(self, target.tokens, layout.positions, layout.max_len, self.target_dropout)
        for layer in self.decoder:
            x = parts.decode(layer, x, memory, layout, memory_layout, rotation)
        y: Tensor = self.decoder_norm(x)
        return y

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., d] -> [..., V]."""
        return F.linear(hidden, self.embedding.weight)

    @torch.no_grad()
    def start_decoding(self, source: Packed, beam: int, max_length: int, *, watching: bool = False) -> DecoderState:
        """Reads the source and makes room for `beam` hypotheses a sentence of at most `max_length` tokens.

        Hypotheses are numbered sentence by sentence: those of sentence s are s * beam to (s + 1) * beam - 1. A search
        loops over `decode_step`, `DecoderState.reorder` and, as sentences finish, `DecoderState.keep_sentences`.
        With `watching`, the state notes where hypotheses look.
        """
        memory = self.encode(source)
        layout, a = source.layout, self.architecture
        projected = [layer.cross_attention.project_memory(memory) for layer in self._decoder_layers()]
        if runs_kernels(projected[0][0]) and takes_heads(a.head_size) and not watching:
            room = (layout.sentences * beam, max_length, a.heads, a.head_size)
            caches = [
                LayerCache(k.new_empty(room), k.new_empty(room), k.contiguous(), v.contiguous()) for k, v in projected
            ]
            return IndexedState(caches, layout.cu_seqlens, beam, max_length)
        room = (layout.sentences * beam, a.heads, max_length, a.head_size)
        caches = []
        for keys_and_values in projected:
            memory_keys, memory_values = (
                layout.to_grid(x.flatten(1))
                .view(layout.sentences, layout.max_len, *x.shape[1:])
                .transpose(1, 2)
                .contiguous()
                for x in keys_and_values
            )
            caches.append(
                LayerCache(memory_keys.new_empty(room), memory_keys.new_empty(room), memory_keys, memory_values)
            )
        mask = None if layout.rectangular else layout.grid.mask
        return DecoderState(caches, mask, beam, max_length, watching=watching)

    @torch.no_grad()
    def decode_step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Appends one token to each hypothesis, [N], and gives the hidden vector that predicts the next, [N, d]."""
        state.check_room(tokens.shape[0])
        x, rotation = self._embed(tokens, state.positions(tokens), state.max_length, self.target_dropout)
        for layer, cache in zip(self._decoder_layers(), state.caches, strict=True):
            x = layer.step(x, cache, state, rotation)
        state.advance()
        y: Tensor = self.decoder_norm(x)
        return y

    def _decoder_layers(self) -> Iterator["DecoderLayer"]:
        return cast(Iterator[DecoderLayer], iter(self.decoder))

    @property
    def _parts(self) -> "_Parts":
        return self._trained_parts if self.training and self._trained_parts is not None else _parts()

    def _embed(self, tokens: Tensor, positions: Tensor, max_len: int, drop: Dropout) -> tuple[Tensor, Rotation | None]:
        """[T] tokens -> [T, d], and the angles by which attention turns queries and keys, if it does."""
        x = self.embedding(tokens) * math.sqrt(self.architecture.d_model)
        rotation = None
        if self.positions is None:
            rotation = rotation_at(positions, self.architecture.head_size)
        else:
            x = x + self.positions(positions, max_len)
        return drop(x), rotation

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws all weights anew from torch's generator: Xavier for layers, a normal that scaling undoes for tokens."""
        nn.init.normal_(self.embedding.weight, std=self.architecture.d_model**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
            # A fused projection is several matrices that only lie together. Those into attention begin smaller,
            # as fairseq found it to train better.
            if isinstance(module, SelfAttention):
                _xavier(module.qkv, parts=3, gain=2**-0.5)
                _xavier(module.out)
            elif isinstance(module, CrossAttention):
                _xavier(module.query, gain=2**-0.5)
                _xavier(module.key_value, parts=2, gain=2**-0.5)
                _xavier(module.out)
            elif isinstance(module, FeedForward):
                _xavier(module.widen, parts=2 if module.gated else 1)
                _xavier(module.narrow)


def _xavier(linear: nn.Linear, parts: int = 1, gain: float = 1.0) -> None:
    for part in linear.weight.chunk(parts):
        nn.init.xavier_uniform_(part, gain)


class EncoderLayer(nn.Module):
    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.self_attention_norm = make_norm(a)
        self.self_attention = make_self_attention(a, causal=False)
        self.self_attention_dropout, self.feed_forward_dropout = Dropout(a.dropout), Dropout(a.dropout)
        self.feed_forward_norm = make_norm(a)
        self.feed_forward = FeedForward(a)

    def forward(self, x: Tensor, layout: Layout, rotation: Rotation | None) -> Tensor:
        x = self.self_attention_dropout.added(x, self.self_attention(self.self_attention_norm(x), layout, rotation))
        return self.feed_forward_dropout.added(x, self.feed_forward(self.feed_forward_norm(x)))


class DecoderLayer(nn.Module):
    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.self_attention_dropout, self.cross_attention_dropout = Dropout(a.dropout), Dropout(a.dropout)
        self.feed_forward_dropout = Dropout(a.dropout)
        self.self_attention_norm = make_norm(a)
        self.self_attention = make_self_attention(a, causal=True)
        self.cross_attention_norm = make_norm(a)
        self.cross_attention = CrossAttention(
            a.d_model, a.heads, bias=a.bias, qk_norm=a.qk_norm, dropout_rate=a.attention_dropout
        )
        self.feed_forward_norm = make_norm(a)
        self.feed_forward = FeedForward(a)

    def forward(
        self, x: Tensor, memory: Tensor, layout: Layout, memory_layout: Layout, rotation: Rotation | None
    ) -> Tensor:
        y = self.self_attention(self.self_attention_norm(x), layout, rotation)
        x = self.self_attention_dropout.added(x, y)
        y = self.cross_attention(self.cross_attention_norm(x), memory, layout, memory_layout)
        x = self.cross_attention_dropout.added(x, y)
        return self.feed_forward_dropout.added(x, self.feed_forward(self.feed_forward_norm(x)))

    def step(self, x: Tensor, cache: LayerCache, state: DecoderState, rotation: Rotation | None) -> Tensor:
        """One more token for each hypothesis, [N, d] -> [N, d], with what came before taken from the cache."""
        q, k, v = self.self_attention.project(self.self_attention_norm(x), rotation)
        x = x + self.self_attention.out(state.attend_to_past(cache, q, k, v))
        q = self.cross_attention.project_query(self.cross_attention_norm(x))
        if state.watching:
            state.attention = cache.weigh_source(q, state.memory_mask, state.beam)
        x = x + self.cross_attention.out(state.attend_to_source(cache, q))
        y: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return y


class FeedForward(nn.Module):
    """Widens each token, bends it, and narrows it again."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.gated = a.activation == "swiglu"
        self.dropout = Dropout(a.activation_dropout)
        self.widen = nn.Linear(a.d_model, a.feed_forward * (2 if self.gated else 1), bias=a.bias)
        self.narrow = nn.Linear(a.feed_forward, a.d_model, bias=a.bias)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.widen(x)  # [T, feed_forward], or twice that
        if self.gated:
            gate, value = wide.chunk(2, dim=-1)
            wide = self.dropout(F.silu(gate) * value)
        else:
            wide = self.dropout.of_relu(wide)
        y: Tensor = self.narrow(wide)
        return y


class Sinusoids(nn.Module):
    """Positions as waves: all sines, then all cosines, of wavelengths from 2 pi to 10,000 * 2 pi."""

    table: Tensor  # [positions, d]

    def __init__(self, d_model: int, positions: int = 512) -> None:
        super().__init__()
        self.d_model = d_model
        self.register_buffer("table", self._waves(positions), persistent=False)

    def forward(self, positions: Tensor, max_len: int) -> Tensor:
        """[T] positions below `max_len` -> [T, d]. The table grows to what is asked for."""
        if max_len > self.table.shape[0]:
            with torch.inference_mode(False):  # A table made while translating must serve training too.
                self.table = self._waves(2 * max_len).to(self.table.device)
        return F.embedding(positions, self.table)

    def _waves(self, positions: int) -> Tensor:
        half = self.d_model // 2
        frequencies = torch.exp(torch.arange(half) * -(math.log(10_000) / (half - 1)))
        angles = (torch.arange(positions) + FIRST_POSITION)[:, None] * frequencies  # [positions, d/2]
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class _Parts(NamedTuple):
    """What a forward pass consists of: as written, or compiled."""

    embed: Callable[..., tuple[Tensor, Rotation | None]]
    encode: Callable[..., Tensor]
    decode: Callable[..., Tensor]


def _parts() -> _Parts:
    return _Parts(Transformer._embed, EncoderLayer.forward, DecoderLayer.forward)


def make_norm(a: Architecture) -> nn.Module:
    return nn.LayerNorm(a.d_model) if a.norm == "layernorm" else nn.RMSNorm(a.d_model, eps=RMS_EPSILON)


def make_self_attention(a: Architecture, *, causal: bool) -> SelfAttention:
    return SelfAttention(
        a.d_model, a.heads, causal=causal, bias=a.bias, qk_norm=a.qk_norm, dropout_rate=a.attention_dropout
    )
