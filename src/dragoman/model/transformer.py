"""The encoder-decoder Transformer on packed tokens.

One matrix embeds both languages and is the output projection. By default, layers are pre-norm, with a norm after the
last, and the model computes the same function as fairseq's and Hugging Face's M2M100 with the same weights. With
post-norm layers, Marian's positions and an output bias it computes that of MarianMT.

Training calls `Transformer.forward`, which returns sums of losses. Translation runs step by step: see
`Transformer.start_decoding`.

Shapes: T tokens (packed), N hypotheses, d features, V vocabulary; those of attention in `attention`.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.batching.packed_batch import Batch, Packed, SequenceLayout
from dragoman.model.architecture import Architecture
from dragoman.model.attention import CrossAttention, Rotation, SelfAttention, rotation_at
from dragoman.model.dropout import Dropout
from dragoman.model.kernels.availability import can_run_kernels, supports_head_size
from dragoman.model.kv_cache import DecoderState, IndexedState, LayerCache
from dragoman.model.loss import linear_cross_entropy
from dragoman.model.residual import add_and_norm, apply_norm, make_norm, to_product_type
from dragoman.settings import FrozenPart


class Transformer(nn.Module):
    """Train it with `model(batch, smoothing)`; translate with `start_decoding` and `decode_step`."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = a = architecture
        self.embedding = nn.Embedding(a.vocabulary, a.d_model)
        self.output_bias = nn.Parameter(torch.zeros(a.vocabulary), requires_grad=False) if a.output_bias else None
        self.positions = None if a.positions == "rotary" else SinusoidalPositions(a)
        self.source_dropout, self.target_dropout = Dropout(a.dropout), Dropout(a.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(a) for _ in range(a.encoder_layers))
        self.encoder_norm = make_norm(a) if a.norm_position == "before" else None
        self.decoder = nn.ModuleList(DecoderLayer(a) for _ in range(a.decoder_layers))
        self.decoder_norm = make_norm(a) if a.norm_position == "before" else None
        self._compiled: _LayerFunctions | None = None
        self.reset_parameters()

    def compile_for_training(self) -> None:
        """Run compiled from now on, in training mode. All layers of a kind share one compiled function.

        Searches and evaluations are not compiled: their shapes change too often.
        """
        self._compiled = _LayerFunctions._make(torch.compile(function) for function in _EAGER)

    def forward(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Sums over the batch's labels of the smoothed loss, to minimise, and of the negative log-likelihood.

        Sums, not means: they add up over micro-batches and workers, and are divided once by the number of labels.
        """
        hidden = self.hidden(batch)
        return linear_cross_entropy(hidden, self.embedding.weight, batch.labels, smoothing, self.output_bias)

    def hidden(self, batch: Batch) -> Tensor:
        """The decoder's output for every target token, [T, d]; `logits` projects it to the vocabulary."""
        return self.decode(self.encode(batch.source), batch.source.layout, batch.target)

    def encode(self, source: Packed) -> Tensor:
        """[T, d]: the memory that the decoder attends to."""
        run, layout = self._functions, source.layout
        first, *norms = self._norms(self.encoder, self.encoder_norm)
        x, y, rotation = run.embed(
            self, source.tokens, layout.positions, layout.max_len, self.source_dropout, first, layout.places
        )
        for layer, norm in zip(self.encoder, norms, strict=True):
            x, y = run.encode(layer, x, y, layout, rotation, norm)
        return y

    def decode(self, memory: Tensor, memory_layout: SequenceLayout, target: Packed) -> Tensor:
        """[T, d] for target tokens that are all given, as in training."""
        run, layout = self._functions, target.layout
        first, *norms = self._norms(self.decoder, self.decoder_norm)
        x, y, rotation = run.embed(
            self, target.tokens, layout.positions, layout.max_len, self.target_dropout, first, layout.places
        )
        for layer, norm in zip(self.decoder, norms, strict=True):
            x, y = run.decode(layer, x, y, memory, layout, memory_layout, rotation, norm)
        return y

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., d] -> [..., V]."""
        return F.linear(hidden, self.embedding.weight, self.output_bias)

    @torch.no_grad()
    def start_decoding(
        self, source: Packed, beam: int, max_length: int, *, returns_attention: bool = False
    ) -> DecoderState:
        """Encode the source and allocate caches for `beam` hypotheses per sentence of at most `max_length` tokens.

        Hypotheses are numbered sentence by sentence: those of sentence s are s * beam to (s + 1) * beam - 1. A search
        loops over `decode_step`, `DecoderState.reorder` and, as sentences finish, `DecoderState.keep_sentences`.
        With `returns_attention`, each step stores its cross-attention weights in the state.
        """
        memory = self.encode(source)
        layout, a = source.layout, self.architecture
        projected = [layer.cross_attention.project_memory(memory) for layer in self._decoder_layers()]
        if can_run_kernels(projected[0][0]) and supports_head_size(a.head_size) and not returns_attention:
            cache_shape = (layout.sentences * beam, max_length, a.heads, a.head_size)
            caches = [
                LayerCache(k.new_empty(cache_shape), k.new_empty(cache_shape), k.contiguous(), v.contiguous())
                for k, v in projected
            ]
            return IndexedState(caches, layout.cu_seqlens, beam, max_length)
        cache_shape = (layout.sentences * beam, a.heads, max_length, a.head_size)
        caches = []
        for keys_and_values in projected:
            memory_keys, memory_values = (
                layout.pad(x.flatten(1))
                .view(layout.sentences, layout.max_len, *x.shape[1:])
                .transpose(1, 2)
                .contiguous()
                for x in keys_and_values
            )
            caches.append(
                LayerCache(
                    memory_keys.new_empty(cache_shape), memory_keys.new_empty(cache_shape), memory_keys, memory_values
                )
            )
        mask = None if layout.has_equal_lengths else layout.padding.mask
        return DecoderState(caches, mask, beam, max_length, memory.device, returns_attention=returns_attention)

    @torch.no_grad()
    def decode_step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Append one token to each hypothesis, [N]; returns the hidden vector that predicts the next, [N, d]."""
        state.check_capacity(tokens.shape[0])
        first, *norms = self._norms(self.decoder, self.decoder_norm)
        x, y, rotation = self._embed(tokens, state.positions(tokens), state.max_length, self.target_dropout, first)
        for layer, cache, norm in zip(self._decoder_layers(), state.caches, norms, strict=True):
            x, y = layer.step(x, y, cache, state, rotation, norm)
        state.advance()
        return y

    def freeze(self, parts: Iterable[FrozenPart]) -> None:
        """Exclude parts of the model from training. The norm after the last layer of a side belongs to it."""
        prefixes = tuple("embedding." if part == "embeddings" else part for part in parts)
        for name, parameter in self.named_parameters():
            if name.startswith(prefixes):
                parameter.requires_grad_(False)

    @property
    def trainable_parameters(self) -> list[nn.Parameter]:
        """All parameters that are not frozen."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    @staticmethod
    def _norms(layers: Iterable[nn.Module], last: nn.Module | None) -> list[nn.Module | None]:
        """The first norm of each layer, and the norm after the last layer; none if the layers are post-norm."""
        if last is None:
            return [*(None for _ in layers), None]
        return [*(cast(nn.Module, layer.self_attention_norm) for layer in layers), last]

    def _decoder_layers(self) -> Iterator["DecoderLayer"]:
        return cast(Iterator[DecoderLayer], iter(self.decoder))

    @property
    def _functions(self) -> "_LayerFunctions":
        return self._compiled if self.training and self._compiled is not None else _EAGER

    def _embed(
        self,
        tokens: Tensor,
        positions: Tensor,
        max_len: int,
        drop: Dropout,
        norm: nn.Module | None,
        places: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Rotation | None]:
        """[T] tokens -> the residual stream and the first layer's input, [T, d] both, and the rotation of queries and
        keys, if positions are rotary."""
        x = self.embedding(tokens)
        if self.architecture.scale_embedding:
            x = x * math.sqrt(self.architecture.d_model)
        rotation = None
        if self.positions is None:
            rotation = rotation_at(positions, self.architecture.head_size)
        else:
            x = x + self.positions(positions, max_len)
        x = drop(x, places)
        return x, to_product_type(x) if norm is None else apply_norm(x, norm), rotation

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all weights from torch's generator: Xavier for layers, a normal of std d^-0.5 for embeddings."""
        nn.init.normal_(self.embedding.weight, std=self.architecture.d_model**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
            # A fused projection is several matrices, each initialized by itself. Those into attention get a smaller
            # gain, as in fairseq, which trains better.
            if isinstance(module, SelfAttention):
                _xavier(module.qkv, parts=3, gain=2**-0.5)
                _xavier(module.out)
            elif isinstance(module, CrossAttention):
                _xavier(module.query, gain=2**-0.5)
                _xavier(module.key_value, parts=2, gain=2**-0.5)
                _xavier(module.out)
            elif isinstance(module, FeedForward):
                _xavier(module.up_projection, parts=2 if module.gated else 1)
                _xavier(module.down_projection)


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

    def forward(
        self, x: Tensor, y: Tensor, layout: SequenceLayout, rotation: Rotation | None, norm: nn.Module | None
    ) -> tuple[Tensor, Tensor]:
        """`x` is the residual stream and `y` this layer's input; returns both for the next layer.

        A residual addition and the norm after it run as one kernel. Before the next layer, that is the layer's own
        last norm if it is post-norm, and else `norm`, the next layer's first.
        """
        places, post_norm = layout.places, norm is None
        after_attention, after_feed_forward = (
            (self.self_attention_norm, self.feed_forward_norm) if norm is None else (self.feed_forward_norm, norm)
        )
        z = self.self_attention(y, layout, rotation)
        x, y = add_and_norm(x, z, self.self_attention_dropout, after_attention, places, post_norm=post_norm)
        z = self.feed_forward(y, places)
        return add_and_norm(x, z, self.feed_forward_dropout, after_feed_forward, places, post_norm=post_norm)


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
        self,
        x: Tensor,
        y: Tensor,
        memory: Tensor,
        layout: SequenceLayout,
        memory_layout: SequenceLayout,
        rotation: Rotation | None,
        norm: nn.Module | None,
    ) -> tuple[Tensor, Tensor]:
        """See `EncoderLayer.forward`."""
        places, post_norm, (first, second, third) = layout.places, norm is None, self._norms(norm)
        z = self.self_attention(y, layout, rotation)
        x, y = add_and_norm(x, z, self.self_attention_dropout, first, places, post_norm=post_norm)
        z = self.cross_attention(y, memory, layout, memory_layout)
        x, y = add_and_norm(x, z, self.cross_attention_dropout, second, places, post_norm=post_norm)
        z = self.feed_forward(y, places)
        return add_and_norm(x, z, self.feed_forward_dropout, third, places, post_norm=post_norm)

    def step(
        self,
        x: Tensor,
        y: Tensor,
        cache: LayerCache,
        state: DecoderState,
        rotation: Rotation | None,
        norm: nn.Module | None,
    ) -> tuple[Tensor, Tensor]:
        """The same for one more token of each hypothesis, [N, d], with earlier tokens in the cache."""
        post_norm, (first, second, third) = norm is None, self._norms(norm)
        z = self.self_attention.out(state.attend_to_past(cache, *self.self_attention.project(y, rotation)))
        x, y = add_and_norm(x, z, self.self_attention_dropout, first, post_norm=post_norm)
        q = self.cross_attention.project_query(y)
        if state.returns_attention:
            state.attention = cache.source_attention_weights(q, state.memory_mask, state.beam)
        z = self.cross_attention.out(state.attend_to_source(cache, q))
        x, y = add_and_norm(x, z, self.cross_attention_dropout, second, post_norm=post_norm)
        return add_and_norm(x, self.feed_forward(y), self.feed_forward_dropout, third, post_norm=post_norm)

    def _norms(self, norm: nn.Module | None) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The norms after each sublayer: its own if the layer is post-norm, else the next one's."""
        if norm is None:
            return self.self_attention_norm, self.cross_attention_norm, self.feed_forward_norm
        return self.cross_attention_norm, self.feed_forward_norm, norm


class FeedForward(nn.Module):
    """Up-projection, activation (ReLU, Swish or SwiGLU), down-projection."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.activation, self.gated = a.activation, a.activation == "swiglu"
        self.dropout = Dropout(a.activation_dropout)
        self.up_projection = nn.Linear(a.d_model, a.feed_forward * (2 if self.gated else 1), bias=a.bias)
        self.down_projection = nn.Linear(a.feed_forward, a.d_model, bias=a.bias)

    def forward(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        """[T, d] -> [T, d]. `places` are those of the tokens in the global batch. Only dropout needs them."""
        hidden = self.up_projection(x)  # [T, feed_forward], or twice that: gate and value
        if self.gated:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = self.dropout(F.silu(gate) * value, places)
        elif self.activation == "swish":
            hidden = self.dropout(F.silu(hidden), places)
        else:
            hidden = self.dropout.relu(hidden, places)
        y: Tensor = self.down_projection(hidden)
        return y


class SinusoidalPositions(nn.Module):
    """Sinusoidal position embeddings: all sines, then all cosines, of wavelengths from 2 pi to 10,000 * 2 pi.

    The longest wavelength of Marian, as of Vaswani et al. 2017, is a little shorter.
    """

    table: Tensor  # [positions, d]

    def __init__(self, a: Architecture, positions: int = 512) -> None:
        super().__init__()
        self._half, self._first = a.d_model // 2, a.first_position
        # As in transformers: fairseq's table is computed in float32, Marian's in float64.
        is_marian = a.positions == "marian"
        self._intervals, self._dtype = (self._half, torch.float64) if is_marian else (self._half - 1, torch.float32)
        self.register_buffer("table", self.make_table(positions), persistent=False)
        self._earlier_tables: list[Tensor] = []
        """Tables that became too short: captured CUDA graphs may still read them."""

    def forward(self, positions: Tensor, max_len: int) -> Tensor:
        """[T] positions below `max_len` -> [T, d]. The table grows as needed."""
        if max_len > self.table.shape[0]:
            self._earlier_tables.append(self.table)
            with torch.inference_mode(False):  # A table made in a search must also work in training.
                self.table = self.make_table(2 * max_len).to(self.table.device)
        return F.embedding(positions, self.table)

    def make_table(self, positions: int) -> Tensor:
        """Embeddings of the first positions of a sentence."""
        frequencies = torch.exp(torch.arange(self._half, dtype=self._dtype) * -(math.log(10_000) / self._intervals))
        angles = (torch.arange(positions) + self._first)[:, None] * frequencies  # [positions, d/2]
        return torch.cat([angles.sin(), angles.cos()], dim=1).float()


class _LayerFunctions(NamedTuple):
    """The functions of a forward pass: eager or compiled."""

    embed: Callable[..., tuple[Tensor, Tensor, Rotation | None]]
    encode: Callable[..., tuple[Tensor, Tensor]]
    decode: Callable[..., tuple[Tensor, Tensor]]


_EAGER = _LayerFunctions(Transformer._embed, EncoderLayer.forward, DecoderLayer.forward)


def make_self_attention(a: Architecture, *, causal: bool) -> SelfAttention:
    return SelfAttention(
        a.d_model, a.heads, causal=causal, bias=a.bias, qk_norm=a.qk_norm, dropout_rate=a.attention_dropout
    )
