import keyword
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DragomanError
from dragoman.openseq2seq.conversion import SECTIONS, convert
from dragoman.openseq2seq.counterparts import BEAM_SEARCH, BUILT_IN, CHOICES, REASONS, SAME_VALUE
from dragoman.openseq2seq.recipe_text import as_recipe
from dragoman.recipe import known_fields, resolve

from .configurations import TRANSFORMER


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "config.py"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_a_transformer_becomes_a_recipe_that_can_be_used(write, tmp_path):
    conversion = convert(write(TRANSFORMER))
    (tmp_path / "recipe.toml").write_text(as_recipe(conversion))
    settings = resolve(str(tmp_path / "recipe.toml")).settings
    assert (settings.model.d_model, settings.model.feed_forward, settings.model.heads) == (64, 256, 4)
    assert (settings.model.encoder_layers, settings.model.decoder_layers) == (2, 3)
    assert (settings.model.dropout, settings.model.attention_dropout, settings.model.activation_dropout) == (
        0.3,
        0.1,
        0.2,
    )
    assert (settings.training.steps, settings.training.seed, settings.training.precision) == (3000, 7, "auto")
    assert (settings.schedule.policy, settings.schedule.warmup_steps) == ("inverse_sqrt", 400)
    assert settings.schedule.learning_rate == 1.0  # Twice the coefficient.
    assert settings.batch.tokens == 100 * 2 * 30
    assert (settings.decoding.beam, settings.decoding.length_penalty) == (5, 0.6)
    assert settings.cleaning.max_tokens == 56
    assert conversion.commands[:2] == (
        "dragoman prepare /corpora/mine/train.en /corpora/mine/train.de "
        "--valid /corpora/mine/dev.en,/corpora/mine/dev.de --recipe config.toml --out data/mine",
        "dragoman train config.toml --data data/mine --out runs/small --workers 2",
    )


def test_settings_without_a_counterpart_are_listed_with_reasons(write):
    reasons = {one.leaf.path: one.note for one in convert(write(TRANSFORMER)).without_counterpart}
    assert set(reasons) == {
        "base_params.print_loss_steps",
        "base_params.loss_scaling",
        "base_params.decoder_params.num_heads",
        "base_params.decoder_params.extra_decode_length",
        "eval_params.batch_size_per_gpu",
    }
    assert (
        "model.heads is 4, from base_params.encoder_params.num_heads" in reasons["base_params.decoder_params.num_heads"]
    )
    assert "bfloat16" in reasons["base_params.loss_scaling"]


def test_other_architectures_lose_no_setting_and_say_so(write):
    text = TRANSFORMER.replace("encoder=TransformerEncoder", "encoder=ConvS2SEncoder")
    conversion = convert(write(text))
    absent = [one.leaf.key for one in conversion.without_counterpart]
    assert "encoder_params.encoder_layers" in absent
    assert "is a Transformer, not ConvS2SEncoder" in as_recipe(conversion)
    assert "model.encoder_layers" not in conversion.settings()


def test_a_value_that_is_not_allowed_here_is_listed(write):
    [one] = [
        one
        for one in convert(write(TRANSFORMER.replace("max_steps=3 * 1000", "max_steps=0"))).without_counterpart
        if one.leaf.key == "max_steps"
    ]
    assert "training.steps must be a whole number from 1" in one.note


def test_settings_that_cannot_be_combined_are_named_in_the_recipe(write):
    text = as_recipe(convert(write(TRANSFORMER.replace('"num_heads": 4', '"num_heads": 7'))))
    assert "# model.d_model = 64 does not give each of 7 heads an even dimension" in text
    tomllib.loads(text)


def test_defaults_of_their_classes_are_kept_unless_the_file_states_others(write):
    text = TRANSFORMER.replace('"beta2": 0.98, "epsilon": 1e-09', "")
    settings = convert(write(text)).settings()
    assert [settings[f"optimizer.{name}"] for name in ("beta1", "beta2", "epsilon")] == [0.9, 0.999, 1e-8]


def test_modes_have_their_own_values(write):
    text = TRANSFORMER + 'infer_params = {"decoder_params": {"beam_size": 1}}\ntrain_params["max_steps"] = 9\n'
    conversion = convert(write(text))
    assert conversion.settings()["decoding.beam"] == 1
    assert conversion.settings()["training.steps"] == 9
    replaced = {one.leaf.path for one in conversion.without_counterpart}
    assert {"base_params.decoder_params.beam_size", "base_params.max_steps"} <= replaced


def test_horovod_becomes_a_launch(write):
    conversion = convert(write(TRANSFORMER.replace("use_horovod=False", "use_horovod=True")))
    assert conversion.commands[1].startswith("dragoman launch --hosts a,b -- train config.toml")
    assert conversion.settings()["batch.tokens"] == 100 * 30  # Of one worker: `mpirun` knew their number.
    assert "multiply it by Horovod's number of workers" in as_recipe(conversion)


def test_other_kinds_of_models_are_refused(write):
    with pytest.raises(DragomanError, match="is for Speech2Text: Dragoman trains translation models"):
        convert(write("from m import Speech2Text\nbase_model = Speech2Text\nbase_params = {}"))


@pytest.mark.parametrize("text", ["", "x = 1", "base_params = load()"])
def test_other_python_files_are_refused(write, text):
    with pytest.raises(DragomanError, match="has no base_params"):
        convert(write(text))


def test_a_configuration_that_contains_itself_is_refused(write):
    with pytest.raises(DragomanError, match="nested too deeply"):
        convert(write("base_params = {}\nbase_params['a'] = base_params"))


def test_a_configuration_that_explodes_is_refused(write):
    doubled = "".join('base_params = {"a": base_params, "b": base_params}\n' for _ in range(40))
    with pytest.raises(DragomanError, match="more than 10,000 settings"):
        convert(write(f'base_params = {{"x": 1}}\n{doubled}'))


def test_the_tables_name_settings_that_exist():
    known = {key for key, _ in known_fields()}
    chosen = {key for names in CHOICES.values() for settings in names.values() for key in settings}
    assert {*SAME_VALUE.values(), *BEAM_SEARCH.values(), *chosen} <= known


KEYS = sorted(
    {*SAME_VALUE, *BEAM_SEARCH, *CHOICES, *BUILT_IN, *REASONS, "batch_size_per_gpu", "num_gpus", "use_horovod"}
)
NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
SOURCES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers(), max_size=3)
).map(repr) | st.sampled_from(
    [
        "TransformerEncoder",
        "tf.float32",
        "f(x)",
        "lambda: 1",
        "{}",
        "'mixed'",
        "[x for x in y]",
        "2 ** 9",
        "d_model * 4",
    ]
)


@st.composite
def configurations(draw):
    """A configuration with known and unknown keys, and the paths of all its settings."""
    text, paths = "", set()
    for section in draw(st.lists(st.sampled_from(SECTIONS), min_size=1, unique=True)):
        text += f"{section} = {{}}\n"
        keys = draw(st.lists(st.sampled_from(KEYS) | NAMES | st.tuples(NAMES, NAMES).map(".".join), max_size=12))
        tree: dict = {}
        for key in keys:
            *parents, name = key.split(".")
            inner = tree
            for parent in parents:
                inner = inner.setdefault(parent, {}) if isinstance(inner.get(parent, {}), dict) else None
                if inner is None:
                    break
            if inner is not None and not isinstance(inner.get(name), dict):
                inner[name] = draw(SOURCES)

        def write_dict(content: dict, prefix: str) -> str:
            entries = []
            for name, value in content.items():
                if not isinstance(value, dict):
                    paths.add(f"{prefix}.{name}")
                entries.append(
                    f"{name!r}: {write_dict(value, f'{prefix}.{name}') if isinstance(value, dict) else value}"
                )
            return "{" + ", ".join(entries) + "}"

        if tree:
            text += f"{section}.update({write_dict(tree, section)})\n"
        else:
            paths.add(section)
    return text, paths


@given(configurations())
def test_every_setting_is_mapped_or_listed_and_the_recipe_is_valid_toml(tmp_path_factory, configuration):
    text, paths = configuration
    path = tmp_path_factory.mktemp("config") / "config.py"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    conversion = convert(path)
    assert sorted(one.leaf.path for one in conversion.converted) == sorted(paths)
    recipe = as_recipe(conversion)
    content = tomllib.loads(recipe)
    assert {f"{section}.{name}" for section, part in content.items() for name in part} == set(conversion.settings())
    assert all(one.leaf.path in recipe for one in conversion.converted)
    if not conversion.problems():
        (path.parent / "recipe.toml").write_text(recipe)
        resolve(str(path.parent / "recipe.toml"))
