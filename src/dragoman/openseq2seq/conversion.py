"""Conversion of an OpenSeq2Seq configuration for translation: every setting gets a counterpart or a reason."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from dragoman.errors import DragomanError, SettingsError
from dragoman.openseq2seq.counterparts import BEAM_SEARCH, BUILT_IN, CHOICES, REASONS, SAME_VALUE
from dragoman.openseq2seq.python_literals import Symbol, read_assignments
from dragoman.recipe import allowed_values, known_fields, settings_from_json

SECTIONS = ("base_params", "train_params", "eval_params", "infer_params", "interactive_infer_params")
MAX_LEAVES = 10_000
PAIR_TOKENS = 30
"""Mean tokens of a side of a sentence pair in WMT16 English-German, for batches that are given in pairs."""
MODEL = "Text2Text"
_FILES = ("data_layer_params.source_file", "data_layer_params.target_file")
_MODEL_CLASSES = ("base_params.encoder", "base_params.decoder", "train_params.encoder", "train_params.decoder")
_ORDER = ("data_layer_params.shuffle", "data_layer_params.repeat")


@dataclass(frozen=True)
class Leaf:
    """One setting of an OpenSeq2Seq configuration."""

    section: str
    key: str
    value: Any

    @property
    def path(self) -> str:
        return f"{self.section}.{self.key}" if self.key else self.section


@dataclass(frozen=True)
class Converted:
    """What became of a setting: our settings with their values, and a note; or the reason why there is none."""

    leaf: Leaf
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    has_counterpart: bool = True


@dataclass(frozen=True)
class Conversion:
    """All settings of a configuration, and the commands that replace its modes."""

    source: Path
    converted: tuple[Converted, ...]
    commands: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def mapped(self) -> list[Converted]:
        return [one for one in self.converted if one.has_counterpart]

    @property
    def without_counterpart(self) -> list[Converted]:
        return [one for one in self.converted if not one.has_counterpart]

    def settings(self) -> dict[str, Any]:
        """Our settings, in their usual order."""
        found = {key: value for one in self.converted for key, value in one.settings.items()}
        return {key: found[key] for key, _ in known_fields() if key in found}

    def problems(self) -> tuple[str, ...]:
        """What must be changed before the recipe can be used."""
        sections: dict[str, dict[str, Any]] = {}
        for key, value in self.settings().items():
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = value
        try:
            settings_from_json(sections)
        except SettingsError as error:
            return error.problems
        classes = [one.leaf.value for one in self.without_counterpart if one.leaf.path in _MODEL_CLASSES]
        names = " and ".join(map(_name, classes))
        return (
            (f"The model of this recipe is a Transformer, not {names}: choose its size under [model].",)
            if names
            else ()
        )


def convert(path: Path) -> Conversion:
    """Convert a configuration without running it."""
    assignments = read_assignments(path)
    variables = assignments.variables
    if not any(isinstance(variables.get(section), dict) for section in SECTIONS):
        raise DragomanError(
            f"{path} has no base_params: use a configuration of OpenSeq2Seq, such as transformer-base.py."
        )
    model = variables.get("base_model")
    if isinstance(model, Symbol) and MODEL not in model.name:
        raise DragomanError(f"{path} is for {model.name}: Dragoman trains translation models ({MODEL}).")
    leaves = _find_leaves(path, variables)
    converter = _Converter(leaves)
    converted = tuple(converter.convert(leaf) for leaf in leaves)
    return Conversion(path, converted, _commands(path, converter), tuple(assignments.skipped))


def _find_leaves(path: Path, variables: Mapping[str, Any]) -> list[Leaf]:
    def walk(section: str, key: str, value: Any) -> Iterator[Leaf]:
        if not isinstance(value, dict) or not value:
            yield Leaf(section, key, value)
            return
        for name, inner in value.items():
            text = name.text if isinstance(name, Symbol) else str(name)
            yield from walk(section, f"{key}.{text}" if key else text, inner)

    names = [name for name in ("base_model", *SECTIONS) if name in variables]
    try:
        leaves = list(islice((leaf for name in names for leaf in walk(name, "", variables[name])), MAX_LEAVES + 1))
    except RecursionError:
        raise DragomanError(f"{path} is nested too deeply to be a configuration.") from None
    if len(leaves) > MAX_LEAVES:
        raise DragomanError(f"{path} has more than {MAX_LEAVES:,} settings: it is no configuration.")
    return leaves


class _Converter:
    """Rules for one setting, given all of them."""

    def __init__(self, leaves: list[Leaf]) -> None:
        self._of_section = {
            section: {leaf.key: leaf.value for leaf in leaves if leaf.section == section} for section in SECTIONS
        }
        self._training = {**self._of_section["base_params"], **self._of_section["train_params"]}
        self._fields = dict(known_fields())
        self._taken: dict[str, tuple[Any, str]] = {}

    def value(self, section: str, key: str) -> Any:
        """The value of a key in a mode: `base_params` apply where the mode's own do not."""
        return {**self._of_section["base_params"], **self._of_section[section]}.get(key)

    @property
    def uses_horovod(self) -> bool:
        return self._training.get("use_horovod") is True

    @property
    def workers(self) -> int:
        """Workers of one machine. With Horovod, `mpirun` sets their number instead."""
        count, ids = self._training.get("num_gpus"), self._training.get("gpu_ids")
        number = count if isinstance(count, int) else len(ids) if isinstance(ids, list | tuple) else 1
        return 1 if self.uses_horovod else max(1, number)

    def convert(self, leaf: Leaf) -> Converted:
        if leaf.section == "base_model":
            return Converted(leaf, note="`dragoman train` trains translation models")
        if "**" in leaf.key:
            return _none(leaf, "its entries are computed by code that was not run")
        if leaf.section == "eval_params":
            return self._convert_evaluation(leaf)
        if leaf.section in ("infer_params", "interactive_infer_params"):
            return self._convert_inference(leaf)
        return self._convert_training(leaf)

    def _convert_training(self, leaf: Leaf) -> Converted:
        key = leaf.key
        if leaf.section == "base_params" and key in self._of_section["train_params"]:
            return _none(leaf, f"train_params.{key} replaces it")
        if leaf.section == "base_params" and self._only_in_modes(key):
            return _none(leaf, "eval_params and infer_params replace it")
        if isinstance(leaf.value, dict):
            return Converted(leaf, note="empty")
        if key in BEAM_SEARCH:
            return self._take(leaf, BEAM_SEARCH[key], leaf.value)
        if (absent := self._absent_choice(key)) is not None:
            return _none(leaf, f"belongs to {absent}, which has no counterpart")
        if key in CHOICES:
            return self._choose(leaf)
        if key in ("batch_size_per_gpu", "iter_size"):
            return self._convert_batch(leaf)
        if key in ("use_horovod", "num_gpus", "gpu_ids", "logdir", *_FILES):
            return self._convert_option(leaf)
        if key == "lr_policy_params.coefficient":
            return self._take(leaf, "schedule.learning_rate", self._learning_rate(), "a factor of it")
        if key == "lr_policy_params.learning_rate":
            return self._take(leaf, SAME_VALUE[key], self._learning_rate())
        if key in SAME_VALUE:
            return self._take(leaf, SAME_VALUE[key], leaf.value)
        return _built_in_or_none(leaf)

    def _convert_evaluation(self, leaf: Leaf) -> Converted:
        if leaf.key in _FILES:
            return Converted(leaf, note="`dragoman prepare --valid SOURCE,TARGET`")
        return self._convert_mode(leaf, "evaluation", "validation sets keep every line", "validation sets are read")

    def _convert_inference(self, leaf: Leaf) -> Converted:
        if leaf.key == _FILES[0]:
            return Converted(leaf, note="`dragoman translate RUN FILE`")
        if leaf.key == _FILES[1]:
            return Converted(leaf, note="`dragoman score RUN --src FILE --ref FILE`")
        if leaf.key in BEAM_SEARCH:
            return self._take(leaf, BEAM_SEARCH[leaf.key], leaf.value)
        return self._convert_mode(leaf, "inference", "lines of any length are translated", "lines are translated")

    def _convert_mode(self, leaf: Leaf, mode: str, any_length: str, reading: str) -> Converted:
        """A setting of one mode: the same as in training, or something that only OpenSeq2Seq could vary by mode."""
        if leaf.key == "data_layer_params.max_length":
            return _none(leaf, any_length)
        if leaf.key in _ORDER:
            return _convert_order(leaf, f"{reading} once, in order")
        if leaf.key == "batch_size_per_gpu":
            return _none(leaf, "nearest: decoding.batch_tokens")
        if isinstance(leaf.value, dict):
            return Converted(leaf, note="empty")
        if (absent := self._absent_choice(leaf.key, leaf.section)) is not None:
            return _none(leaf, f"belongs to {absent}, which has no counterpart")
        if leaf.key in CHOICES and _name(leaf.value) in CHOICES[leaf.key]:
            return Converted(leaf, note="built in")
        if leaf.key in SAME_VALUE and self._training.get(leaf.key) == leaf.value:
            return Converted(leaf, note=f"{SAME_VALUE[leaf.key]}, as in training")
        converted = _built_in_or_none(leaf)
        if leaf.key in SAME_VALUE or (not converted.has_counterpart and converted.note == _NO_SETTING):
            return _none(leaf, f"Dragoman has no setting for {mode} alone")
        return converted

    def _only_in_modes(self, key: str) -> bool:
        """Whether a decoding setting of `base_params` is replaced when translating."""
        return key in BEAM_SEARCH and key in self._of_section["infer_params"]

    def _absent_choice(self, key: str, section: str = "train_params") -> str | None:
        """The name of the class that a parameter belongs to, if that class has no counterpart."""
        owner, separator, _ = key.partition("_params.")
        if not separator or owner not in CHOICES:
            return None
        chosen = self.value(section, owner)
        return None if chosen is None or _name(chosen) in CHOICES[owner] else _name(chosen)

    def _choose(self, leaf: Leaf) -> Converted:
        settings = CHOICES[leaf.key].get(_name(leaf.value))
        if settings is None:
            return _none(leaf, REASONS.get(leaf.key, _NO_SETTING))
        stated = {SAME_VALUE.get(key) for key in self._training}
        settings = {key: value for key, value in settings.items() if key not in stated}
        for key, value in settings.items():
            self._taken[key] = (value, leaf.path)
        return Converted(leaf, settings, "" if settings else "built in")

    def _convert_batch(self, leaf: Leaf) -> Converted:
        size, count = (self._training.get(key, 1) for key in ("batch_size_per_gpu", "iter_size"))
        if not isinstance(size, int) or not isinstance(count, int):
            return _none(leaf, "set batch.tokens")
        in_tokens = _name(self.value("train_params", "data_layer")) == "TransformerDataLayer" and (
            self.value("train_params", "data_layer_params.batch_in_tokens") is not False
        )
        factors = f"{size:,} {'tokens' if in_tokens else 'pairs'}" + (f" x {count} accumulated" if count > 1 else "")
        tokens = size * count * self.workers * (1 if in_tokens else PAIR_TOKENS)
        note = f"{factors} x {self.workers} worker{'s' * (self.workers > 1)}"
        note += "" if in_tokens else f" x {PAIR_TOKENS} tokens"
        if self.uses_horovod:
            note += "; multiply it by Horovod's number of workers: the batch is that of all workers together"
        return self._take(leaf, "batch.tokens", tokens, note)

    def _convert_option(self, leaf: Leaf) -> Converted:
        if leaf.key == "use_horovod":
            used = "`dragoman launch --hosts a,b -- train ...`" if self.uses_horovod else "`dragoman train`"
            return Converted(leaf, note=used)
        if leaf.key in ("num_gpus", "gpu_ids"):
            return Converted(leaf, note="one worker per GPU" if self.uses_horovod else f"`--workers {self.workers}`")
        if leaf.key == "logdir":
            return Converted(leaf, note="`--out`")
        return Converted(leaf, note="`dragoman prepare`, from the text before tokenization")

    def _learning_rate(self) -> Any:
        rate, factor = (self._training.get(f"lr_policy_params.{key}", 1.0) for key in ("learning_rate", "coefficient"))
        known = isinstance(rate, int | float) and isinstance(factor, int | float)
        return rate * factor if known else rate

    def _take(self, leaf: Leaf, key: str, value: Any, note: str = "") -> Converted:
        """Set one of our settings, unless its value is not allowed, or another setting gave it another value."""
        if isinstance(value, Symbol):
            return _none(leaf, f"set {key}: its value is computed by code that was not run")
        declaration = self._fields[key]
        valid = _validate(declaration, value)
        if valid is None:
            return _none(leaf, f"{key} must be {allowed_values(declaration)}")
        earlier, place = self._taken.setdefault(key, (valid, leaf.path))
        if earlier != valid:
            return _none(leaf, f"{key} is {earlier}, from {place}: Dragoman has one value for both")
        return Converted(leaf, {key: valid}, note)


def _convert_order(leaf: Leaf, sentence: str) -> Converted:
    return Converted(leaf, note=f"built in: {sentence}") if leaf.value is False else _none(leaf, sentence)


_NO_SETTING = "Dragoman has no such setting"


def _none(leaf: Leaf, reason: str) -> Converted:
    return Converted(leaf, note=reason, has_counterpart=False)


def _built_in_or_none(leaf: Leaf) -> Converted:
    if leaf.key in BUILT_IN:
        expected, sentence = BUILT_IN[leaf.key]
        if expected is None or expected is leaf.value:
            return Converted(leaf, note=f"built in: {sentence}")
    return _none(leaf, REASONS.get(leaf.key) or REASONS.get(leaf.key.partition(".")[0]) or _NO_SETTING)


def _name(value: Any) -> str:
    return value.name if isinstance(value, Symbol) else str(value)


def _validate(declaration: FieldInfo, value: Any) -> Any:
    """The value as our setting has it, or None if it is not allowed there."""
    kind: Any = declaration.annotation
    if declaration.metadata:
        kind = Annotated[(kind, *declaration.metadata)]
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return None


def _commands(path: Path, converter: _Converter) -> tuple[str, ...]:
    """The commands that replace the modes, in their order."""
    recipe = shlex.quote(f"{path.stem}.toml")
    files = [converter.value("train_params", key) for key in _FILES]
    valid = [converter.value("eval_params", key) for key in _FILES]
    if _is_wmt16(files[0]):
        source, name = "wmt16-en-de", "wmt16"
    else:
        names = [_text_name(value, default) for value, default in zip(files, ("TRAIN.en", "TRAIN.de"), strict=True)]
        held_out = [_text_name(value, default) for value, default in zip(valid, ("VALID.en", "VALID.de"), strict=True)]
        source, name = f"{shlex.join(names)} --valid {shlex.quote(','.join(held_out))}", "mine"
    logdir = converter.value("train_params", "logdir")
    run = shlex.quote(
        logdir if isinstance(logdir, str) and logdir and not logdir.startswith("-") else f"runs/{path.stem}"
    )
    workers = f" --workers {converter.workers}" if converter.workers > 1 else ""
    train = f"train {recipe} --data data/{name} --out {run}"
    return (
        f"dragoman prepare {source} --recipe {recipe} --out data/{name}",
        f"dragoman launch --hosts a,b -- {train}" if converter.uses_horovod else f"dragoman {train}{workers}",
        f"dragoman score {run} --data data/{name} --split valid",
        f"dragoman translate {run} < FILE",
    )


def _is_wmt16(file: Any) -> bool:
    """Whether a file is one that OpenSeq2Seq's `get_en_de.sh` writes."""
    return isinstance(file, str) and "train.clean.en.shuffled." in file


def _text_name(file: Any, default: str) -> str:
    return file if isinstance(file, str) and file and not file.startswith("-") else default
