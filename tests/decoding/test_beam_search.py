"""Beam search, compared with exhaustive search, the plain forward pass and Hugging Face."""

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import SimpleNamespace

import pytest
import torch
from benchmarks.huggingface_m2m100 import generate, make_m2m100
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.batching.packed_batch import Batch, pack_sentences
from dragoman.decoding import beam_search, length_rules
from dragoman.decoding.beam_search import search
from dragoman.decoding.hypotheses import Hypothesis
from dragoman.decoding.length_rules import length_penalty, max_length
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.errors import DragomanError
from dragoman.model.architecture import Architecture, architecture_of
from dragoman.model.transformer import Transformer
from dragoman.recipe import recipe_names
from dragoman.settings import DecodingSettings

PAD, UNKNOWN, START, END = range(4)
SPECIAL_TOKENS = SpecialTokens(START, END, (PAD, UNKNOWN, START))
SMALL = Architecture(vocabulary=32, d_model=32, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=64)
SOURCES = [
    [5, 6, 7, 8, 9, 3], [4, 3], [8, 8, 5, 4, 6, 3], [9, 3], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 3],
    [31, 30, 3], [7, 21, 9, 3], [22, 8, 23, 24, 25, 26, 27, 3], [10, 11, 10, 11, 10, 3],
]  # fmt: skip
GREEDY = DecodingSettings(beam=1)


def random_model(architecture: Architecture = SMALL, seed: int = 0) -> Transformer:
    """A model with random weights. It generates up to the limit, or ends at once."""
    torch.manual_seed(seed)
    model = Transformer(architecture).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embedding" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        model.embedding.weight *= 0.5
    return model


@lru_cache
def half_trained_model(seed: int = 0) -> Transformer:
    """A model trained for a few steps to reverse its input: often uncertain, but it ends its sentences."""
    torch.manual_seed(seed)
    model = Transformer(SMALL.replaced(dropout=0.0))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for step in range(90):
        optimizer.param_groups[0]["lr"] = 5e-3 * min(1, (step + 1) / 20)
        words = [torch.randint(4, 32, (length,)).tolist() for length in torch.randint(1, 9, (48,)).tolist()]
        targets = [[*reversed(sentence), END] for sentence in words]
        batch = Batch(
            pack_sentences([[*sentence, END] for sentence in words]),
            pack_sentences([[START, *sentence[:-1]] for sentence in targets]),
            torch.tensor([token for sentence in targets for token in sentence]),
        )
        loss_sum, _ = model(batch)
        optimizer.zero_grad()
        (loss_sum / len(batch.labels)).backward()
        optimizer.step()
    return model.eval()


def log_probability(model: Transformer, source: Sequence[int], tokens: Sequence[int]) -> float:
    """Log-probability of a translation, with the end token, by one forward pass."""
    batch = Batch(pack_sentences([source]), pack_sentences([[START, *tokens]]), torch.tensor([*tokens, END]))
    with torch.no_grad():
        log_probs = model.logits(model.hidden(batch)).log_softmax(-1)
    return float(log_probs.gather(1, batch.labels[:, None]).sum())


def run_search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    options: DecodingSettings,
    n_best: int = 1,
    special_tokens: SpecialTokens = SPECIAL_TOKENS,
) -> list[list[Hypothesis]]:
    return search(model, pack_sentences(sources), options, special_tokens, n_best)


def token_lists(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.tokens for hypothesis in sentence] for sentence in found]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_wide_beam_finds_the_result_of_exhaustive_search(
    alpha: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(length_rules, "EXTRA_LENGTH", 0)
    words, longest = [4, 5, 6], 4  # with the end token
    model = random_model(SMALL.replaced(vocabulary=7), seed)
    sources = [[4, 5, 6, 3], [6, 6, 4, 3]]
    options = DecodingSettings(beam=81, length_penalty=alpha, max_length_ratio=1.0)
    for source, found in zip(sources, run_search(model, sources, options, n_best=10), strict=True):
        everything = [list(tokens) for length in range(longest) for tokens in itertools.product(words, repeat=length)]
        scored = sorted(
            (-log_probability(model, source, tokens) / length_penalty(len(tokens) + 1, alpha), tokens)
            for tokens in everything
        )
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in scored[:10]]
        for hypothesis, (cost, _) in zip(found, scored, strict=False):
            assert hypothesis.score == pytest.approx(-cost, abs=1e-4)


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_beam_of_one_takes_the_most_likely_token_at_each_step(recipe: str) -> None:
    shape = architecture_of(recipe).replaced(vocabulary=32, d_model=32, heads=4, feed_forward=64)
    model = random_model(shape.replaced(encoder_layers=2, decoder_layers=2))
    for source, [hypothesis] in zip(SOURCES, run_search(model, SOURCES, GREEDY), strict=True):
        generated: list[int] = []
        for _ in range(max_length(len(source), GREEDY.max_length_ratio) - 1):
            batch = Batch(
                pack_sentences([source]), pack_sentences([[START, *generated]]), torch.zeros(len(generated) + 1)
            )
            with torch.no_grad():
                logits = model.logits(model.hidden(batch))[-1]
            logits[[PAD, UNKNOWN, START]] = -math.inf
            token = int(logits.argmax())
            if token == END:
                break
            generated.append(token)
        assert hypothesis.tokens == generated


@pytest.mark.parametrize("recipe", recipe_names())
def test_beam_search_works_with_every_recipe(recipe: str) -> None:
    model = Transformer(architecture_of(recipe).replaced(encoder_layers=1, decoder_layers=1)).train()
    [[hypothesis]] = run_search(model, [[5, 6, 3]], DecodingSettings(max_length_ratio=0.01))
    assert len(hypothesis.tokens) < 21
    assert model.training, "training mode was not restored"


@pytest.mark.parametrize("beam", [1, 4])
@settings(max_examples=15)
@given(sources=st.lists(st.lists(st.integers(4, 31), max_size=12).map(lambda s: [*s, END]), min_size=1, max_size=8))
def test_a_translation_does_not_depend_on_the_other_sentences_of_the_batch(beam: int, sources: list[list[int]]) -> None:
    model, options = half_trained_model(), DecodingSettings(beam=beam, coverage_penalty=0.1 if beam == 4 else 0.0)
    together = run_search(model, sources, options, n_best=min(2, beam))
    for source, found in zip(sources, together, strict=True):
        [alone] = run_search(model, [source], options, n_best=min(2, beam))
        assert [hypothesis.tokens for hypothesis in alone] == [hypothesis.tokens for hypothesis in found]
        for one, other in zip(alone, found, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-3)


@pytest.mark.parametrize("make", [random_model, half_trained_model])
def test_n_best_are_distinct_sorted_and_scored_by_the_model(make: Callable[[], Transformer]) -> None:
    model, options = make(), DecodingSettings(beam=6, max_length_ratio=0.5)
    for source, found in zip(SOURCES, run_search(model, SOURCES, options, n_best=6), strict=True):
        assert len(found) == 6
        assert len({tuple(hypothesis.tokens) for hypothesis in found}) == 6
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in found:
            assert hypothesis.log_probability == pytest.approx(
                log_probability(model, source, hypothesis.tokens), abs=1e-3
            )
            penalty = length_penalty(len(hypothesis.tokens) + 1, options.length_penalty)
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / penalty)
        assert token_lists(run_search(model, [source], options))[0][0] == found[0].tokens


def test_a_smaller_n_best_does_not_change_the_best() -> None:
    for model in (random_model(), half_trained_model(0), half_trained_model(1)):
        few, many = (run_search(model, SOURCES, DecodingSettings(beam=4), n_best=n) for n in (1, 4))
        assert [sentence[:1] for sentence in token_lists(few)] == [sentence[:1] for sentence in token_lists(many)]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("beam", [1, 3])
def test_no_repeat_ngram_prevents_repetition(n: int, beam: int) -> None:
    model, plain, strict = random_model(), DecodingSettings(beam=beam), DecodingSettings(beam=beam, no_repeat_ngram=n)

    def repeats(found: list[list[Hypothesis]]) -> int:
        ngrams = [list(zip(*(best.tokens[i:] for i in range(n)), strict=False)) for [best] in found]
        return sum(len(sentence) - len(set(sentence)) for sentence in ngrams)

    assert repeats(run_search(model, SOURCES, plain)) > 0, "the test data is too simple"
    assert repeats(run_search(model, SOURCES, strict)) == 0


def test_forbidden_tokens_are_never_generated_and_lengths_stay_within_their_limits() -> None:
    model = random_model()
    with torch.no_grad():
        model.embedding.weight[[PAD, START, 30]] = 2 * model.embedding.weight[10]
    special_tokens = SpecialTokens(START, END, (PAD, UNKNOWN, START, 30, 31))
    options = DecodingSettings(beam=4, max_length_ratio=1.5)
    found = run_search(model, SOURCES, options, n_best=4, special_tokens=special_tokens)
    generated = {token for sentence in found for hypothesis in sentence for token in hypothesis.tokens}
    assert generated.isdisjoint({*special_tokens.forbidden, END})
    longest = [max(len(hypothesis.tokens) + 1 for hypothesis in sentence) for sentence in found]
    limits = [max_length(len(source), 1.5) for source in SOURCES]
    assert all(length <= limit for length, limit in zip(longest, limits, strict=True))
    assert any(length == limit for length, limit in zip(longest, limits, strict=True)), "the test data is too simple"


def test_the_coverage_penalty_prefers_translations_that_attend_to_the_whole_source() -> None:
    model = half_trained_model()
    plain, covering = (
        run_search(model, SOURCES, DecodingSettings(beam=6, coverage_penalty=c), n_best=6) for c in (0.0, 5.0)
    )
    for without, with_penalty in zip(plain, covering, strict=True):
        best = {tuple(h.tokens): h.score for h in without}
        for hypothesis in with_penalty:
            assert hypothesis.score <= best.get(tuple(hypothesis.tokens), math.inf) + 1e-4
    assert token_lists(plain) != token_lists(covering)


def test_returned_attention_weights_sum_to_one_over_real_tokens() -> None:
    model = random_model()
    state = model.start_decoding(pack_sentences(SOURCES), beam=2, max_length=3, returns_attention=True)
    model.decode_step(torch.full((2 * len(SOURCES),), START), state)
    assert state.attention is not None
    torch.testing.assert_close(state.attention.sum(-1), torch.ones(2 * len(SOURCES)))
    assert state.attention[2, 2:].abs().max() == 0, "the second source has two tokens"


def test_the_search_is_deterministic() -> None:
    model = half_trained_model()
    assert run_search(model, SOURCES, DecodingSettings(), n_best=4) == run_search(
        model, SOURCES, DecodingSettings(), n_best=4
    )


def test_among_equals_the_lower_hypothesis_and_then_the_lower_token_comes_first() -> None:
    with torch.inference_mode():
        beams = beam_search.Beams(
            random_model(), pack_sentences([[4, 3], [5, 6, 3]]), DecodingSettings(beam=3), SPECIAL_TOKENS, 1
        )
        beams._log_probabilities.zero_()
        log_probs = torch.full((6, 32), -math.inf)
        log_probs[:, [20, 11, 4]] = -1.0
        log_probs[4, 7] = -0.5
        candidates = beams._best_candidates(log_probs)
    assert candidates.parents.tolist() == [[0, 0, 0, 1, 1, 1], [1, 0, 0, 0, 1, 1]]
    assert candidates.tokens.tolist() == [[4, 11, 20, 4, 11, 20], [7, 4, 11, 20, 4, 11]]


@pytest.mark.parametrize("count", [8, 128, 512])
def test_the_top_tokens_of_a_large_vocabulary_are_exact(count: int) -> None:
    torch.manual_seed(0)
    values = torch.randn(5, 8192)
    values[1] = -math.inf
    values[1, 77] = 1.0
    found, columns = beam_search.top_tokens(values, count)
    expected = values.topk(count)
    assert torch.equal(found, expected.values)
    assert torch.equal(values.gather(1, columns), expected.values)
    assert columns[1, 0] == 77


def test_the_first_child_keeps_the_row_of_its_parent() -> None:
    parents = torch.tensor([[2, 2, 0, 1], [3, 2, 1, 0], [1, 1, 1, 1], [0, 1, 2, 3]])
    slots = beam_search._parents_first(parents)
    assert slots.tolist() == [[2, 3, 0, 1], [3, 2, 1, 0], [1, 0, 2, 3], [0, 1, 2, 3]]


def test_a_model_with_nan_weights_generates_nothing_and_ends() -> None:
    model = random_model()
    torch.nn.init.constant_(model.decoder_norm.weight, math.nan)
    for beam in (1, 3):
        assert token_lists(run_search(model, SOURCES, DecodingSettings(beam=beam))) == [[[]]] * len(SOURCES)


def test_a_step_updates_its_tensors_in_place() -> None:
    """A captured CUDA graph reads and writes the same memory at each replay."""
    with torch.inference_mode():
        beams = beam_search.Beams(
            half_trained_model(), pack_sentences(SOURCES), DecodingSettings(beam=3), SPECIAL_TOKENS, 2
        )
        tensors = {name: value for name, value in vars(beams).items() if isinstance(value, torch.Tensor)}
        tensors |= {name: value for name, value in vars(beams._finished).items() if isinstance(value, torch.Tensor)}
        for _ in range(6):
            beams.step()
        assert tensors.keys() >= {"_tokens", "_last_tokens", "_log_probabilities", "_done", "scores", "tokens"}
        for name, tensor in tensors.items():
            assert getattr(beams, name, getattr(beams._finished, name, None)) is tensor, name


class EagerCapturer:
    """Stands in for CUDA graphs: a replay runs the step again."""

    def __init__(self) -> None:
        self.captures = 0

    def on_stream(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def capture(self, work: Callable[[], None]) -> SimpleNamespace:
        self.captures += 1
        state = work.__self__.state  # type: ignore[attr-defined]
        state.step += 1  # As a capture does: Python runs, the device does not.

        def replay() -> None:
            work()
            state.step -= 1  # A replay runs no Python.

        return SimpleNamespace(replay=replay)


@pytest.mark.parametrize("n_best", [1, 3])
def test_the_loop_for_cuda_graphs_finds_the_same_translations(n_best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, options, capturer = half_trained_model(), DecodingSettings(beam=3), EagerCapturer()
    expected = run_search(model, SOURCES, options, n_best)
    monkeypatch.setattr(beam_search, "can_use_cuda_graphs", lambda *_: True)
    monkeypatch.setattr(beam_search, "thread_capturer", lambda _: capturer)
    monkeypatch.setattr(beam_search, "GRAPH_MIN_SENTENCES", 2)
    monkeypatch.setattr(beam_search, "GRAPH_STEPS_PER_SYNC", 2)
    found = run_search(model, SOURCES, options, n_best)
    assert token_lists(found) == token_lists(expected)
    assert capturer.captures > 1, "the batch did not shrink"


@pytest.mark.parametrize("n_best", [0, 5])
def test_an_n_best_beyond_the_beam_is_refused(n_best: int) -> None:
    with pytest.raises(DragomanError, match=r"raise decoding\.beam"):
        run_search(random_model(), SOURCES, DecodingSettings(beam=4), n_best)


@pytest.mark.parametrize("seed", range(2))
def test_hypotheses_equal_those_of_hugging_face(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    model = half_trained_model(seed)
    theirs = make_m2m100(model, START, END, PAD)
    # Without a length penalty both stop by the same rule; the limit is far beyond the lengths of these models.
    options = DecodingSettings(beam=4, length_penalty=0.0, max_length_ratio=10)
    ours = run_search(model, SOURCES, options)
    expected = generate(theirs, SOURCES, beam=4, max_new_tokens=60, forbidden=SPECIAL_TOKENS.forbidden)
    lengths = {len(best.tokens) for [best] in ours}
    assert len(lengths) > 3
    assert max(lengths) < 60
    assert [best.tokens for [best] in ours] == expected
