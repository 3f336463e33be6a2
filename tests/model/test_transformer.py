"""The Transformer: compared with Hugging Face, packed and alone, step by step, and in training.

Shapes: T tokens, N hypotheses, S sentences, d features, V vocabulary.
"""

import weakref
from collections.abc import Sequence

import pytest
import torch
from benchmarks.huggingface_m2m100 import m2m100_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.batching.packed_batch import IGNORED_LABEL, Batch, pack, pack_sentences
from dragoman.model.architecture import Architecture, architecture_of, parameter_count
from dragoman.model.attention import rotation_at
from dragoman.model.dropout import draw_seeds, seed_dropout
from dragoman.model.transformer import Transformer
from dragoman.recipe import recipe_names

START, END = 2, 3
Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]
PAIRS: Pairs = [([5, 6, 7, 3], [9, 8, 3]), ([4, 3], [5, 6, 7, 8, 9, 3]), ([8, 8, 5, 4, 6, 3], [4, 3])]
RECIPES = {name: architecture_of(name) for name in recipe_names()}
SMALLEST = Architecture(vocabulary=40, d_model=32, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=64)
MODERN = SMALLEST.replaced(norm="rmsnorm", activation="swiglu", positions="rotary", bias=False)
KINDS = {
    "classic": SMALLEST,
    "modern": MODERN,
    "modern with qk_norm": MODERN.replaced(qk_norm=True),
    "marian": SMALLEST.replaced(
        norm_position="after", activation="swish", positions="marian", first_position=0, output_bias=True
    ),
}
DROPOUT = {"dropout": 0.2, "attention_dropout": 0.2, "activation_dropout": 0.2}
kinds = pytest.mark.parametrize("architecture", KINDS.values(), ids=KINDS.keys())


def make_batch(pairs: Pairs) -> Batch:
    """A training batch of pairs of token ids: the decoder input is the target shifted right behind the start token."""
    target = [[START, *translation[:-1]] for _, translation in pairs]
    labels = [token for _, translation in pairs for token in translation]
    return Batch(pack_sentences([source for source, _ in pairs]), pack_sentences(target), torch.tensor(labels))


def make_model(architecture: Architecture, seed: int = 0) -> Transformer:
    """A model with random biases and norms too, so that tests notice if one is not used."""
    torch.manual_seed(seed)
    model = Transformer(architecture).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    draw_seeds(seed_dropout(model, torch.device("cpu")), seed, step=1)
    return model


def part_of(pairs: Pairs, chosen: Sequence[int]) -> Batch:
    """Some pairs of a global batch, in any order."""
    batch = make_batch([pairs[number] for number in chosen])
    sides = []
    for packed, side in ((batch.source, 0), (batch.target, 1)):
        lengths = torch.tensor([len(pair[side]) for pair in pairs])
        first_places = lengths.cumsum(0) - lengths
        sides.append(pack(packed.tokens, lengths[list(chosen)], first_places[list(chosen)]))
    return Batch(*sides, batch.labels)


def test_logits_loss_and_gradients_equal_those_of_hugging_faces_m2m100() -> None:
    transformers = pytest.importorskip("transformers")
    model = make_model(SMALLEST)
    theirs = transformers.M2M100ForConditionalGeneration(
        transformers.M2M100Config(
            vocab_size=40, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, dropout=0.0, attention_dropout=0.0,
            encoder_layerdrop=0.0, decoder_layerdrop=0.0, scale_embedding=True, activation_function="relu",
            pad_token_id=0, bos_token_id=START, eos_token_id=END, decoder_start_token_id=START,
        )
    ).eval()  # fmt: skip
    missing, unexpected = theirs.load_state_dict(m2m100_weights(model), strict=False)
    assert not missing
    assert not unexpected

    batch = make_batch(PAIRS)
    source, translation = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(pair[side]) for pair in PAIRS], batch_first=True)
        for side in (0, 1)
    )
    labels = translation.masked_fill(translation == 0, IGNORED_LABEL)
    real = labels != IGNORED_LABEL
    output = theirs(
        input_ids=source,
        attention_mask=(source != 0).long(),
        decoder_input_ids=torch.cat([torch.full((3, 1), START), translation[:, :-1]], dim=1),
        labels=labels,
    )
    torch.testing.assert_close(model.logits(model.hidden(batch)), output.logits[real], atol=1e-4, rtol=1e-5)

    loss_sum, nll_sum = model(batch, smoothing=0.0)
    torch.testing.assert_close(nll_sum / real.sum(), output.loss, atol=1e-5, rtol=1e-5)
    output.loss.backward()
    (loss_sum / real.sum()).backward()
    torch.testing.assert_close(model.embedding.weight.grad, theirs.model.shared.weight.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        model.encoder[0].self_attention.qkv.weight.grad[:32],
        theirs.model.encoder.layers[0].self_attn.q_proj.weight.grad,
        atol=1e-5,
        rtol=1e-4,
    )


def test_rmsnorm_and_swiglu_equal_those_of_hugging_faces_llama() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = pytest.importorskip("transformers").LlamaConfig(hidden_size=32, intermediate_size=64, hidden_act="silu")
    model = make_model(MODERN)
    ours, x = model.encoder[0], torch.randn(7, 32)
    norm = llama.LlamaRMSNorm(32, eps=1e-6)
    norm.load_state_dict({"weight": ours.feed_forward_norm.weight})
    torch.testing.assert_close(ours.feed_forward_norm(x), norm(x))
    gate, up = ours.feed_forward.up_projection.weight.chunk(2)
    mlp = llama.LlamaMLP(config)
    mlp.load_state_dict(
        {"gate_proj.weight": gate, "up_proj.weight": up, "down_proj.weight": ours.feed_forward.down_projection.weight}
    )
    torch.testing.assert_close(ours.feed_forward(x), mlp(x))


def test_the_modern_attention_block_equals_that_of_hugging_faces_llama() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = pytest.importorskip("transformers").LlamaConfig(hidden_size=32, num_attention_heads=4)
    config._attn_implementation = "sdpa"
    ours = make_model(MODERN).decoder[0].self_attention
    q, k, v = ours.qkv.weight.chunk(3)
    theirs = llama.LlamaAttention(config, layer_idx=0)
    theirs.load_state_dict(
        {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v, "o_proj.weight": ours.out.weight}
    )
    x = torch.randn(6, 32)
    layout = pack_sentences([[4] * 6]).layout
    rotation = llama.LlamaRotaryEmbedding(config)(x[None], layout.positions[None])
    expected, _ = theirs(x[None], position_embeddings=rotation, attention_mask=None)
    torch.testing.assert_close(ours(x, layout, rotation_at(layout.positions, 8)), expected[0], atol=1e-5, rtol=1e-5)


sentences = st.lists(st.integers(4, 39), min_size=1, max_size=8)


@kinds
@settings(max_examples=20)
@given(pairs=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=5))
def test_the_output_of_a_sentence_does_not_depend_on_the_others(architecture: Architecture, pairs: Pairs) -> None:
    model = make_model(architecture)
    together = model.hidden(make_batch(pairs)).split([len(translation) for _, translation in pairs])
    for pair, expected in zip(pairs, together, strict=True):
        torch.testing.assert_close(model.hidden(make_batch([pair])), expected, atol=2e-5, rtol=1e-4)


@kinds
@settings(max_examples=20)
@given(pairs=st.lists(st.tuples(sentences, sentences), min_size=2, max_size=6), data=st.data())
def test_dropout_of_a_pair_does_not_depend_on_the_pairs_it_is_computed_with(
    architecture: Architecture, pairs: Pairs, data: st.DataObject
) -> None:
    model = make_model(architecture.replaced(**DROPOUT)).train()
    together = model.hidden(make_batch(pairs)).split([len(translation) for _, translation in pairs])
    order = data.draw(st.permutations(range(len(pairs))))
    cut = data.draw(st.integers(1, len(pairs) - 1))
    for chosen in (order[:cut], order[cut:]):
        expected = torch.cat([together[number] for number in chosen])
        torch.testing.assert_close(model.hidden(part_of(pairs, chosen)), expected, atol=2e-5, rtol=1e-4)


@kinds
def test_micro_batches_add_up_to_the_loss_and_the_gradients_of_the_batch_with_dropout(
    architecture: Architecture,
) -> None:
    model = make_model(architecture.replaced(**DROPOUT)).train()
    results = []
    for parts in ([[0, 1, 2]], [[2], [1, 0]]):
        model.zero_grad()
        losses = [model(part_of(PAIRS, chosen), smoothing=0.1)[0] for chosen in parts]
        sum(losses).backward()
        results.append([sum(losses), *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-4)


def test_each_step_and_each_seed_has_its_own_dropout() -> None:
    model = make_model(SMALLEST.replaced(**DROPOUT)).train()
    seeds = seed_dropout(model, torch.device("cpu"))
    outputs = []
    for run_seed, step in ((1, 1), (1, 2), (2, 1), (1, 1)):
        draw_seeds(seeds, run_seed, step)
        outputs.append(model.hidden(make_batch(PAIRS)))
    assert torch.equal(outputs[3], outputs[0])
    assert not any(torch.allclose(output, outputs[0], atol=0.01) for output in outputs[1:3])


@kinds
def test_later_target_tokens_have_no_influence(architecture: Architecture) -> None:
    model = make_model(architecture)
    one, other = (model.hidden(make_batch([([5, 6, 3], [9, 8, 7, last, 4])])) for last in (6, 30))
    torch.testing.assert_close(one[:4], other[:4])
    assert not torch.allclose(one[4], other[4])


@kinds
def test_gradients_reach_every_parameter(architecture: Architecture) -> None:
    model = make_model(architecture).train()
    model(make_batch(PAIRS), smoothing=0.1)[0].backward()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            assert name == "output_bias"
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@kinds
def test_filler_sentences_change_neither_loss_nor_gradients(architecture: Architecture) -> None:
    model = make_model(architecture)
    plain = make_batch(PAIRS)
    with_filler = make_batch([*PAIRS, ([0] * 5, [0] * 4), ([0], [0])])
    with_filler.labels[len(plain.labels) :] = IGNORED_LABEL
    results = []
    for batch in (plain, with_filler):
        model.zero_grad()
        loss_sum, nll_sum = model(batch, smoothing=0.1)
        loss_sum.backward()
        results.append([loss_sum, nll_sum, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-4)


def decode_stepwise(model: Transformer, pairs: Pairs) -> Tensor:
    """Hidden vectors of given translations, one step at a time, [S, steps, d]."""
    targets = [[START, *translation[:-1]] for _, translation in pairs]
    longest = max(map(len, targets))
    padded = torch.tensor([target + [0] * (longest - len(target)) for target in targets])
    state = model.start_decoding(pack_sentences([source for source, _ in pairs]), beam=1, max_length=longest)
    return torch.stack([model.decode_step(padded[:, step], state) for step in range(longest)], dim=1)


@pytest.mark.parametrize("architecture", [*RECIPES.values(), *KINDS.values()], ids=[*RECIPES, *KINDS])
def test_stepwise_decoding_equals_the_forward_pass(architecture: Architecture) -> None:
    shallow = architecture.replaced(vocabulary=40, encoder_layers=2, decoder_layers=2)
    model = make_model(shallow)
    expected_hidden = model.hidden(make_batch(PAIRS)).split([len(translation) for _, translation in PAIRS])
    for stepwise, expected in zip(decode_stepwise(model, PAIRS), expected_hidden, strict=True):
        torch.testing.assert_close(stepwise[: len(expected)], expected, atol=1e-4, rtol=1e-4)


@kinds
def test_hypotheses_can_be_reordered_and_sentences_removed(architecture: Architecture) -> None:
    model = make_model(architecture)
    sources = [[5, 6, 7, 3], [4, 3], [8, 5, 3]]
    state = model.start_decoding(pack_sentences(sources), beam=2, max_length=4)
    model.decode_step(torch.full((6,), START), state)
    model.decode_step(torch.tensor([10, 11, 12, 13, 14, 15]), state)
    state.reorder(torch.tensor([1, 0, 3, 3, 4, 4]))
    model.decode_step(torch.tensor([20, 21, 22, 23, 24, 25]), state)
    state.keep_sentences(torch.tensor([2, 0]))
    assert (state.sentences, state.hypotheses, state.step) == (2, 4, 3)
    hidden = model.decode_step(torch.tensor([30, 31, 32, 33]), state)

    expected_tokens = [(2, [14, 24, 30]), (2, [14, 25, 31]), (0, [11, 20, 32]), (0, [10, 21, 33])]
    for row, (sentence, tokens) in zip(hidden, expected_tokens, strict=True):
        expected = model.hidden(make_batch([(sources[sentence], [*tokens, END])]))[-1]
        torch.testing.assert_close(row, expected, atol=1e-5, rtol=1e-4)


def test_decoding_beyond_max_length_is_refused() -> None:
    model = make_model(SMALLEST)
    state = model.start_decoding(pack_sentences([[5, 3]]), beam=2, max_length=1)
    with pytest.raises(ValueError, match="3 tokens were given for 2 hypotheses"):
        model.decode_step(torch.tensor([START] * 3), state)
    model.decode_step(torch.tensor([START] * 2), state)
    with pytest.raises(ValueError, match="already have the 1 tokens"):
        model.decode_step(torch.tensor([START] * 2), state)


@pytest.mark.parametrize("name", RECIPES)
def test_parameter_count_equals_that_of_the_built_model(name: str) -> None:
    for architecture in (RECIPES[name], RECIPES[name].replaced(qk_norm=True)):
        with torch.device("meta"):
            model = Transformer(architecture)
        assert parameter_count(architecture) == sum(parameter.numel() for parameter in model.parameters())


def test_modern_has_as_many_parameters_as_transformer_base() -> None:
    ratio = parameter_count(RECIPES["modern"]) / parameter_count(RECIPES["transformer-base"])
    assert ratio == pytest.approx(1, abs=0.03)
    assert parameter_count(RECIPES["transformer-base"]) == 60_917_760


def test_an_invalid_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match="use a multiple of 16"):
        SMALLEST.replaced(d_model=500, heads=8)


def test_the_seed_determines_all_weights_and_their_scale_is_as_specified() -> None:
    torch.manual_seed(5)
    one = Transformer(SMALLEST).state_dict()
    torch.manual_seed(5)
    model = Transformer(SMALLEST)
    assert all(torch.equal(one[name], value) for name, value in model.state_dict().items())
    assert model.embedding.weight.std().item() == pytest.approx(32**-0.5, rel=0.1)
    layer = model.decoder[0]
    assert layer.self_attention.qkv.weight.abs().max().item() == pytest.approx((6 / 64 / 2) ** 0.5, rel=0.02)
    assert layer.cross_attention.out.weight.abs().max().item() == pytest.approx((6 / 64) ** 0.5, rel=0.02)
    assert layer.feed_forward.up_projection.weight.abs().max().item() == pytest.approx((6 / 96) ** 0.5, rel=0.02)


def test_the_table_of_sinusoidal_positions_grows_with_the_longest_sentence() -> None:
    model = make_model(SMALLEST)
    assert model.positions is not None
    before, first_table = model.positions.table.clone(), weakref.ref(model.positions.table)
    long = make_batch([([5] * 700, [6] * 3)])
    assert model.hidden(long).isfinite().all()
    torch.testing.assert_close(model.positions.table[: len(before)], before)
    assert first_table() is not None  # A captured CUDA graph may still read it.
    assert not any("positions" in name for name in model.state_dict())


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_is_active_only_in_training(rate: str) -> None:
    off = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model = make_model(SMALLEST.replaced(**(off | {rate: 0.5})))
    evaluated, trained = model.hidden(make_batch(PAIRS)), model.train().hidden(make_batch(PAIRS))
    assert not torch.allclose(evaluated, trained)
    torch.testing.assert_close(model.eval().hidden(make_batch(PAIRS)), evaluated)


@kinds
def test_bfloat16_autocast_on_a_cpu_stays_close(architecture: Architecture) -> None:
    model = make_model(architecture)
    exact, _ = model(make_batch(PAIRS), smoothing=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, _ = model(make_batch(PAIRS), smoothing=0.1)
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0.0)


@pytest.mark.parametrize("kind", ["classic", "modern"])
def test_the_model_compiles_as_one_graph_once_the_padding_index_exists(kind: str) -> None:
    model = make_model(KINDS[kind])
    batch = make_batch(PAIRS)
    expected, _ = model(batch, smoothing=0.1)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert batch.source.layout.padding is not None
    assert batch.target.layout.padding is not None
    actual, _ = compiled(batch, smoothing=0.1)
    torch.testing.assert_close(actual, expected)
    actual.backward()


def reversal(generator: torch.Generator, count: int) -> Pairs:
    """Random words, and the same in reverse order as translation."""
    pairs = []
    for _ in range(count):
        length = int(torch.randint(3, 7, (1,), generator=generator))
        words = torch.randint(4, 20, (length,), generator=generator).tolist()
        pairs.append(([*words, END], [*reversed(words), END]))
    return pairs


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_tiny_model_learns_to_reverse(positions: str) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    base = SMALLEST if positions == "sinusoidal" else MODERN
    model = Transformer(base.replaced(vocabulary=20, d_model=64, feed_forward=128, dropout=0.0))
    steps = 200
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.2)
    for _ in range(steps):
        batch = make_batch(reversal(generator, 48))
        loss_sum, _ = model(batch)
        optimizer.zero_grad()
        (loss_sum / len(batch.labels)).backward()
        optimizer.step()
        schedule.step()
    held_out = make_batch(reversal(generator, 100))
    with torch.no_grad():
        _, nll_sum = model.eval()(held_out)
        correct = (model.logits(model.hidden(held_out)).argmax(-1) == held_out.labels).float().mean()
    assert nll_sum / len(held_out.labels) < 0.1
    assert correct > 0.97


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@kinds
def test_packed_bfloat16_on_cuda_agrees_with_float32_on_the_cpu(architecture: Architecture) -> None:
    wide = architecture.replaced(d_model=128, heads=2)
    model = make_model(wide)
    expected, _ = model(make_batch(PAIRS), smoothing=0.1)
    model.to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        actual, _ = model(make_batch(PAIRS).to("cuda"), smoothing=0.1)
    actual.backward()
    torch.testing.assert_close(actual.cpu(), expected, rtol=0.02, atol=0.0)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
