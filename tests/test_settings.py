import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import settings
from dragoman.errors import DragomanError, SettingsError
from dragoman.recipe import known_fields, recipe_names, resolve, settings_from_json


def problems_of(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        resolve(None, overrides)
    return caught.value.problems


def test_defaults_hold_where_nothing_is_said():
    assert resolve().settings == settings.Settings()


def test_each_value_knows_where_it_came_from(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[cleaning]\nmax_words = 50\nmin_words = 2\n")
    rows = {row.key: row for row in resolve(str(recipe), ["cleaning.max_words=60"]).listing()}
    assert (rows["cleaning.max_words"].value, rows["cleaning.max_words"].origin) == (60, "command line")
    assert (rows["cleaning.min_words"].value, rows["cleaning.min_words"].origin) == (2, "recipe mine")
    assert rows["cleaning.max_length_ratio"].origin == "default"


def test_all_problems_are_told_at_once_with_key_value_range_and_remedy():
    problems = problems_of("cleaning.max_words=0", "tokenizer.algorithm=bp", "cleanin.max_words=7", "nonsense")
    assert len(problems) == 4
    assert any("cleaning.max_words = 0" in p and "from 1 to" in p and "default: 80" in p for p in problems)
    assert any('tokenizer.algorithm = "bp"' in p and '"bpe", "unigram"' in p for p in problems)
    assert any("cleanin.max_words" in p and "did you mean cleaning.max_words?" in p for p in problems)
    assert any("'nonsense'" in p and "key=value" in p for p in problems)


@pytest.mark.parametrize("key", [key for key, _ in known_fields()])
def test_a_setting_without_its_section_or_with_another_one_is_corrected(key):
    name = key.partition(".")[2]
    for wrong in (name, f"wrong.{name}"):
        [problem] = problems_of(f"{wrong}=1")
        assert "did you mean" in problem
        assert key in problem


def test_a_value_out_of_range_is_compared_with_what_the_recipe_has():
    with pytest.raises(SettingsError, match=r"training.steps = 0 is not allowed.*\(in the recipe: 600\)"):
        resolve("demo", ["training.steps=0"])
    with pytest.raises(SettingsError, match=r"cleaning.max_words = 0 is not allowed.*\(default: 80\)"):
        resolve("demo", ["cleaning.max_words=0"])


@pytest.mark.parametrize(
    "override", ["corpus.seed=1.5", "cleaning.max_length_ratio=nan", "cleaning.max_length_ratio=inf", "corpus.seed="]
)
def test_values_of_the_wrong_kind_are_refused(override):
    assert override.partition("=")[0] in problems_of(override)[0]


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        resolve().settings.cleaning.max_words = 3  # type: ignore[misc]


def test_settings_survive_json():
    settings = resolve(None, ['cleaning.rules=["empty"]']).settings
    assert settings_from_json(settings.model_dump(mode="json")) == settings


def test_every_shipped_recipe_resolves():
    assert recipe_names()
    for name in recipe_names():
        resolve(name)


def test_a_misspelt_recipe_suggests_the_nearest():
    with pytest.raises(DragomanError, match="did you mean 'transformer-base'"):
        resolve("transformer-bsae")


def test_a_broken_recipe_names_the_line(tmp_path):
    (tmp_path / "bad.toml").write_text("[cleaning\n")
    with pytest.raises(DragomanError, match=r"bad.toml is not valid TOML.*line 1"):
        resolve(str(tmp_path / "bad.toml"))


def test_every_setting_is_documented():
    assert [key for key, field in known_fields() if not field.description] == []


@given(st.lists(st.text(max_size=30), max_size=4))
def test_any_overrides_give_settings_or_a_list_of_problems(overrides):
    with contextlib.suppress(SettingsError):
        resolve(None, overrides)


@pytest.mark.parametrize(
    ("value", "prices"), [("2.1", (2.1,)), ("[2.1]", (2.1,)), ("[2.1, 0.9]", (2.1, 0.9)), ("[]", ())]
)
def test_a_single_price_needs_no_brackets(value, prices):
    assert resolve("tiny", [f"money.price_per_hour={value}"]).settings.money.price_per_hour == prices
