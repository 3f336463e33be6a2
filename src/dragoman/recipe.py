"""Recipes: sets of settings, read from TOML files and changed by `key=value`.

A recipe is a TOML file with the sections below; the shipped ones are in `src/dragoman/recipes/`. Settings that it does
not name keep their default. `dragoman config RECIPE` shows every value and where it comes from.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from dragoman.errors import DragomanError, SettingsError
from dragoman.settings import Section, Settings

RECIPES = Path(__file__).parent / "recipes"
COMMAND_LINE, ARGUMENT = "command line", "argument"
"""Origins of a setting that was given as `key=value`, or to a function of the Python API."""


@dataclass(frozen=True)
class Setting:
    """One resolved setting, as `dragoman config` shows it."""

    key: str
    value: Any
    origin: str
    about: str
    allowed: str


@dataclass(frozen=True)
class Resolved:
    """Settings with the origin of each value."""

    settings: Settings
    origins: Mapping[str, str]

    @property
    def given(self) -> tuple[str, ...]:
        """Settings that the user has set, and not the recipe."""
        return tuple(key for key, origin in self.origins.items() if origin in (COMMAND_LINE, ARGUMENT))

    def listing(self) -> list[Setting]:
        rows = []
        for key, field in known_fields():
            section, name = key.split(".")
            value = getattr(getattr(self.settings, section), name)
            origin = self.origins.get(key, "default")
            rows.append(Setting(key, value, origin, field.description or "", allowed_values(field)))
        return rows


def known_fields() -> Iterator[tuple[str, FieldInfo]]:
    """Every setting as `section.name`, with its declaration."""
    for section, holder in Settings.model_fields.items():
        kind = holder.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, Section)
        for name, field in kind.model_fields.items():
            yield f"{section}.{name}", field


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def resolve(recipe: str | None = None, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Resolved:
    """Defaults, then the recipe, then overrides: `key=value`, or keys with values. Reports all problems at once."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    if recipe is not None:
        for section, content in _read_recipe(recipe).items():
            if not isinstance(content, dict):
                problems.append(_unknown(section, content))
                continue
            for name, value in content.items():
                values[f"{section}.{name}"] = value
                origins[f"{section}.{name}"] = f"recipe {Path(recipe).stem}"
    in_recipe = {key: values[key] for key in origins}
    if isinstance(overrides, Mapping):
        values |= overrides
        origins |= dict.fromkeys(overrides, ARGUMENT)
        overrides = ()
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            problems.append(f"'{override}' is not a setting: write it as key=value, for example cleaning.max_words=100")
            continue
        values[key.strip()] = _parse_value(text.strip())
        origins[key.strip()] = COMMAND_LINE

    settings, found = _validate(values, in_recipe)
    if settings is None or problems:
        raise SettingsError([*problems, *found])
    return Resolved(settings, origins)


def settings_from_json(content: Mapping[str, Any]) -> Settings:
    """Settings recorded by a run or a data set."""
    flat = {f"{section}.{name}": value for section, part in content.items() for name, value in part.items()}
    settings, problems = _validate(flat, {})
    if settings is None:
        raise SettingsError(problems)
    return settings


def _read_recipe(recipe: str) -> dict[str, Any]:
    shipped = RECIPES / f"{recipe}.toml"
    path = shipped if shipped.exists() else Path(recipe)
    try:
        return tomllib.loads(path.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        near = difflib.get_close_matches(recipe, recipe_names(), n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        shipped_names = ", ".join(recipe_names())
        raise DragomanError(
            f"There is no recipe '{recipe}': {hint}use one of {shipped_names}, or the path of a TOML file."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DragomanError(f"{path} is not valid TOML: {error}. Fix that line.") from None


def _parse_value(text: str) -> Any:
    """A TOML value; a bare word is text, so that quotes are not needed in a shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _validate(values: Mapping[str, Any], in_recipe: Mapping[str, Any]) -> tuple[Settings | None, list[str]]:
    fields = dict(known_fields())
    problems = [_unknown(key, value) for key, value in values.items() if key not in fields]
    nested: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if key in fields:
            section, name = key.split(".")
            nested.setdefault(section, {})[name] = value
    try:
        settings = Settings.model_validate(nested)
    except ValidationError as error:
        seen: set[str] = set()
        for problem in error.errors():
            key = ".".join(str(part) for part in problem["loc"][:2])
            if key in seen:
                continue
            seen.add(key)
            if key in fields:
                problems.append(_out_of_range(key, values[key], fields[key], in_recipe.get(key)))
            else:
                problems.append(str(problem.get("ctx", {}).get("error", problem["msg"])))
        return None, problems
    return (None if problems else settings), problems


def _unknown(key: str, value: Any) -> str:
    near = similar_settings(key)
    remedy = f"did you mean {' or '.join(near)}?" if near else "`dragoman config` lists all settings."
    return f"{key} = {show_value(value)} is not a setting: {remedy}"


def similar_settings(text: str) -> list[str]:
    """Settings that a text may mean: those of this name in any section, or else the one that is spelt most alike."""
    keys = [key for key, _ in known_fields()]
    return settings_named(text.rpartition(".")[2]) or difflib.get_close_matches(text, keys, n=1, cutoff=0.5)


def settings_named(name: str) -> list[str]:
    """The settings of this name, in all sections."""
    return [key for key, _ in known_fields() if key.partition(".")[2] == name]


def _out_of_range(key: str, value: Any, field: FieldInfo, in_recipe: Any) -> str:
    """`in_recipe` is the recipe's own value, which is what a user changes; None where it has none."""
    usual = f"default: {show_value(field.default)}"
    if in_recipe not in (None, value):
        usual = f"in the recipe: {show_value(in_recipe)}"
    return f"{key} = {show_value(value)} is not allowed: use {allowed_values(field)} ({usual})."


def show_value(value: Any) -> str:
    """A value in the syntax of a recipe."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(show_value(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def allowed_values(field: FieldInfo) -> str:
    """The allowed values of a setting, in words."""
    return _allowed(field.annotation, field.metadata)


def _allowed(kind: Any, metadata: Sequence[Any]) -> str:
    if get_origin(kind) is Annotated:
        inner, *extra = get_args(kind)
        flat = [item for part in extra for item in (part.metadata if isinstance(part, FieldInfo) else [part])]
        return _allowed(inner, flat)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(show_value(option) for option in get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list, each {_allowed(get_args(kind)[0], [])}"
    if get_origin(kind) in (Union, UnionType):
        return ", or ".join(_allowed(option, []) for option in get_args(kind))
    if kind is bool:
        return "true or false"
    if kind in (int, float):
        return f"{'a whole number' if kind is int else 'a number'}{_bounds(metadata)}"
    return "text"


def _bounds(metadata: Sequence[Any]) -> str:
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    bounds = [
        f"{words[name]} {getattr(constraint, name):,}"
        for name in ("ge", "gt", "le", "lt")
        for constraint in metadata
        if hasattr(constraint, name)
    ]
    return " " + " ".join(bounds) if bounds else ""


def as_markdown() -> str:
    """The reference page of all settings."""
    lines = ["# Settings", "", (__doc__ or "").partition("\n\n")[2].strip(), ""]
    lines += ["Generated by `python -m dragoman.recipe > docs/settings.md`; a test keeps it up to date.", ""]
    section = ""
    for row in Resolved(Settings(), {}).listing():
        if row.key.partition(".")[0] != section:
            section = row.key.partition(".")[0]
            about = (type(getattr(Settings(), section)).__doc__ or "").strip()
            lines += [
                "",
                f"## {section}",
                "",
                about,
                "",
                "| setting | default | allowed | meaning |",
                "|---|---|---|---|",
            ]
        lines.append(f"| `{row.key}` | `{show_value(row.value)}` | {row.allowed} | {row.about} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
