"""Beam search: against trying everything, the plain forward pass, Hugging Face's, and its own promises."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import pytest
import torch
from benchmarks.huggingface_m2m100 import generate, make_m2m100
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.batching.packing import Batch, pack_sentences
from dragoman.decoding import beam_search as search_module
from dragoman.decoding.beam_search import Hypothesis, SpecialTokens, length_limits, length_penalty, search
from dragoman.errors import DragomanError
from dragoman.model.architecture import Architecture, architecture_of
from dragoman.model.transformer import Transformer
from dragoman.recipe import recipe_names
from dragoman.settings import DecodingSettings

PAD, UNKNOWN, START, END = range(4)
MARKS = SpecialTokens(START, END, (PAD, UNKNOWN, START))
SMALL = Architecture(vocabulary=32, d_model=32, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=64)
SOURCES = [
    [5, 6, 7, 8, 9, 3], [4, 3], [8, 8, 5, 4, 6, 3], [9, 3], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 3],
    [31, 30, 3], [7, 21, 9, 3], [22, 8, 23, 24, 25, 26, 27, 3], [10, 11, 10, 11, 10, 3],
]  # fmt: skip
GREEDY = DecodingSettings(beam=1)


def random_model(architecture: Architecture = SMALL, seed: int = 0) -> Transformer:
    """A model with opinions of no meaning; it goes on until it is stopped, or stops at once."""
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
    """A model that has begun to learn to say words in reverse: it is often in doubt, and ends by itself."""
    torch.manual_seed(seed)
    model = Transformer(SMALL.replaced(dropout=0.0))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for step in range(90):
        optimizer.param_groups[0]["lr"] = 5e-3 * min(1, (step + 1) / 20)
        words = [torch.randint(4, 32, (length,)).tolist() for length in torch.randint(1, 9, (48,)).tolist()]
        said = [[*reversed(sentence), END] for sentence in words]
        batch = Batch(
            pack_sentences([[*sentence, END] for sentence in words]),
            pack_sentences([[START, *sentence[:-1]] for sentence in said]),
            torch.tensor([token for sentence in said for token in sentence]),
        )
        loss_sum, _ = model(batch)
        optimizer.zero_grad()
        (loss_sum / len(batch.labels)).backward()
        optimizer.step()
    return model.eval()


def log_probability(model: Transformer, source: Sequence[int], tokens: Sequence[int]) -> float:
    """Of a translation, its end mark included, by one pass over the whole."""
    batch = Batch(pack_sentences([source]), pack_sentences([[START, *tokens]]), torch.tensor([*tokens, END]))
    with torch.no_grad():
        log_probs = model.logits(model.hidden(batch)).log_softmax(-1)
    return float(log_probs.gather(1, batch.labels[:, None]).sum())


def find(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    options: DecodingSettings,
    n_best: int = 1,
    marks: SpecialTokens = MARKS,
) -> list[list[Hypothesis]]:
    return search(model, pack_sentences(sources), options, marks, n_best)


def texts(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.tokens for hypothesis in sentence] for sentence in found]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_wide_beam_finds_what_trying_everything_finds(
    alpha: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "EXTRA_LENGTH", 0)
    words, longest = [4, 5, 6], 4  # tokens, the end mark counted
    model = random_model(SMALL.replaced(vocabulary=7), seed)
    sources = [[4, 5, 6, 3], [6, 6, 4, 3]]
    options = DecodingSettings(beam=81, alpha=alpha, max_length_ratio=1.0)
    for source, found in zip(sources, find(model, sources, options, n_best=10), strict=True):
        everything = [list(tokens) for length in range(longest) for tokens in itertools.product(words, repeat=length)]
        scored = sorted(
            (-log_probability(model, source, tokens) / length_penalty(len(tokens) + 1, alpha), tokens)
            for tokens in everything
        )
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in scored[:10]]
        for hypothesis, (cost, _) in zip(found, scored, strict=False):
            assert hypothesis.score == pytest.approx(-cost, abs=1e-4)


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_beam_of_one_is_the_most_likely_token_each_time(recipe: str) -> None:
    shape = architecture_of(recipe).replaced(vocabulary=32, d_model=32, heads=4, feed_forward=64)
    model = random_model(shape.replaced(encoder_layers=2, decoder_layers=2))
    for source, [hypothesis] in zip(SOURCES, find(model, SOURCES, GREEDY), strict=True):
        said: list[int] = []
        for _ in range(length_limits([len(source)], GREEDY.max_length_ratio)[0] - 1):
            batch = Batch(pack_sentences([source]), pack_sentences([[START, *said]]), torch.zeros(len(said) + 1))
            with torch.no_grad():
                logits = model.logits(model.hidden(batch))[-1]
            logits[[PAD, UNKNOWN, START]] = -math.inf
            token = int(logits.argmax())
            if token == END:
                break
            said.append(token)
        assert hypothesis.tokens == said


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_beam_works_with_every_recipe(recipe: str) -> None:
    model = Transformer(architecture_of(recipe).replaced(encoder_layers=1, decoder_layers=1)).train()
    [[hypothesis]] = find(model, [[5, 6, 3]], DecodingSettings(max_length_ratio=0.01))
    assert len(hypothesis.tokens) < 21
    assert model.training, "the model is given back as it was"


@pytest.mark.parametrize("beam", [1, 4])
@settings(max_examples=15, deadline=None)
@given(sources=st.lists(st.lists(st.integers(4, 31), max_size=12).map(lambda s: [*s, END]), min_size=1, max_size=8))
def test_a_sentence_is_translated_the_same_in_any_company(beam: int, sources: list[list[int]]) -> None:
    model, options = half_trained_model(), DecodingSettings(beam=beam, coverage=0.1 if beam == 4 else 0.0)
    together = find(model, sources, options, n_best=min(2, beam))
    for source, found in zip(sources, together, strict=True):
        [alone] = find(model, [source], options, n_best=min(2, beam))
        assert [hypothesis.tokens for hypothesis in alone] == [hypothesis.tokens for hypothesis in found]
        for one, other in zip(alone, found, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-3)


@pytest.mark.parametrize("make", [random_model, half_trained_model])
def test_n_best_are_different_sorted_and_scored_as_the_model_does(make: Callable[[], Transformer]) -> None:
    model, options = make(), DecodingSettings(beam=6, max_length_ratio=0.5)
    for source, found in zip(SOURCES, find(model, SOURCES, options, n_best=6), strict=True):
        assert len(found) == 6
        assert len({tuple(hypothesis.tokens) for hypothesis in found}) == 6
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in found:
            assert hypothesis.log_probability == pytest.approx(
                log_probability(model, source, hypothesis.tokens), abs=1e-3
            )
            penalty = length_penalty(len(hypothesis.tokens) + 1, options.alpha)
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / penalty)
        assert texts(find(model, [source], options))[0][0] == found[0].tokens


def test_keeping_fewer_does_not_change_the_best() -> None:
    for model in (random_model(), half_trained_model(0), half_trained_model(1)):
        few, many = (find(model, SOURCES, DecodingSettings(beam=4), n_best=n) for n in (1, 4))
        assert [sentence[:1] for sentence in texts(few)] == [sentence[:1] for sentence in texts(many)]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("beam", [1, 3])
def test_no_run_of_tokens_is_repeated_where_that_is_asked_for(n: int, beam: int) -> None:
    model, plain, strict = random_model(), DecodingSettings(beam=beam), DecodingSettings(beam=beam, no_repeat_ngram=n)

    def repeats(found: list[list[Hypothesis]]) -> int:
        runs = [list(zip(*(best.tokens[i:] for i in range(n)), strict=False)) for [best] in found]
        return sum(len(sentence) - len(set(sentence)) for sentence in runs)

    assert repeats(find(model, SOURCES, plain)) > 0, "else this shows nothing"
    assert repeats(find(model, SOURCES, strict)) == 0


def test_what_is_forbidden_is_never_said_and_no_length_exceeds_its_limit() -> None:
    model = random_model()
    with torch.no_grad():
        model.embedding.weight[[PAD, START, 30]] = 2 * model.embedding.weight[10]
    marks = SpecialTokens(START, END, (PAD, UNKNOWN, START, 30, 31))
    options = DecodingSettings(beam=4, max_length_ratio=1.5)
    found = find(model, SOURCES, options, n_best=4, marks=marks)
    said = {token for sentence in found for hypothesis in sentence for token in hypothesis.tokens}
    assert said.isdisjoint({*marks.forbidden, END})
    longest = [max(len(hypothesis.tokens) + 1 for hypothesis in sentence) for sentence in found]
    limits = length_limits([len(source) for source in SOURCES], 1.5)
    assert all(length <= limit for length, limit in zip(longest, limits, strict=True))
    assert any(length == limit for length, limit in zip(longest, limits, strict=True)), "else this shows nothing"


def test_coverage_prefers_a_translation_that_looks_at_the_whole_source() -> None:
    model = half_trained_model()
    plain, covering = (find(model, SOURCES, DecodingSettings(beam=6, coverage=c), n_best=6) for c in (0.0, 5.0))
    for without, with_penalty in zip(plain, covering, strict=True):
        best = {tuple(h.tokens): h.score for h in without}
        for hypothesis in with_penalty:
            assert hypothesis.score <= best.get(tuple(hypothesis.tokens), math.inf) + 1e-4
    assert texts(plain) != texts(covering)


def test_attention_that_is_watched_sums_to_one_over_real_tokens() -> None:
    model = random_model()
    state = model.start_decoding(pack_sentences(SOURCES), beam=2, max_length=3)
    state.watching = True
    model.decode_step(torch.full((2 * len(SOURCES),), START), state)
    assert state.attention is not None
    torch.testing.assert_close(state.attention.sum(-1), torch.ones(2 * len(SOURCES)))
    assert state.attention[2, 2:].abs().max() == 0, "the second source has two tokens"


def test_the_search_is_the_same_each_time() -> None:
    model = half_trained_model()
    assert find(model, SOURCES, DecodingSettings(), n_best=4) == find(model, SOURCES, DecodingSettings(), n_best=4)


def test_of_equals_the_lower_hypothesis_and_then_the_lower_token_comes_first() -> None:
    with torch.inference_mode():
        beams = search_module._Beams(
            random_model(), pack_sentences([[4, 3], [5, 6, 3]]), DecodingSettings(beam=3), MARKS, 1
        )
        beams.totals.zero_()
        log_probs = torch.full((6, 32), -math.inf)
        log_probs[:, [20, 11, 4]] = -1.0
        log_probs[4, 7] = -0.5
        candidates = beams._best(log_probs)
    assert candidates.parents.tolist() == [[0, 0, 0, 1, 1, 1], [1, 0, 0, 0, 1, 1]]
    assert candidates.tokens.tolist() == [[4, 11, 20, 4, 11, 20], [7, 4, 11, 20, 4, 11]]


@pytest.mark.parametrize("count", [8, 128, 512])
def test_large_vocabularies_are_searched_as_exactly_as_small_ones(count: int) -> None:
    torch.manual_seed(0)
    values = torch.randn(5, 8192)
    values[1] = -math.inf
    values[1, 77] = 1.0
    found, places = search_module.largest(values, count)
    expected = values.topk(count)
    assert torch.equal(found, expected.values)
    assert torch.equal(values.gather(1, places), expected.values)
    assert places[1, 0] == 77


def test_hypotheses_stay_in_their_parents_place_where_they_can() -> None:
    parents = torch.tensor([[2, 2, 0, 1], [3, 2, 1, 0], [1, 1, 1, 1], [0, 1, 2, 3]])
    slots = search_module._slots(parents)
    assert slots.tolist() == [[2, 3, 0, 1], [3, 2, 1, 0], [1, 0, 2, 3], [0, 1, 2, 3]]


def test_a_model_that_lost_its_numbers_says_nothing_and_comes_to_an_end() -> None:
    model = random_model()
    torch.nn.init.constant_(model.decoder_norm.weight, math.nan)
    for beam in (1, 3):
        assert texts(find(model, SOURCES, DecodingSettings(beam=beam))) == [[[]]] * len(SOURCES)


@pytest.mark.parametrize("n_best", [0, 5])
def test_more_translations_than_hypotheses_are_refused(n_best: int) -> None:
    with pytest.raises(DragomanError, match=r"raise decoding\.beam"):
        find(random_model(), SOURCES, DecodingSettings(beam=4), n_best)


@pytest.mark.parametrize("seed", range(2))
def test_hypotheses_are_those_of_hugging_face(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    model = half_trained_model(seed)
    theirs = make_m2m100(model, START, END, PAD)
    # Without a length penalty both mean the same by "done"; the limit is far beyond where these models stop.
    options = DecodingSettings(beam=4, alpha=0.0, max_length_ratio=10)
    ours = find(model, SOURCES, options)
    expected = generate(theirs, SOURCES, beam=4, max_new_tokens=60, forbidden=MARKS.forbidden)
    lengths = {len(best.tokens) for [best] in ours}
    assert len(lengths) > 3
    assert max(lengths) < 60
    assert [best.tokens for [best] in ours] == expected
