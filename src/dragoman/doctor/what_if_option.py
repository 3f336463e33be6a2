"""Parse `--what-if`, and apply it to the conditions of a step."""

import re
from collections.abc import Callable
from functools import partial

from dragoman.errors import DragomanError
from dragoman.step_model import AUTO, METHODS, StepConditions

UNITS = {"k": 1e3, "m": 1e6, "g": 1e9}
MAX_HOSTS = 1024
_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg])bit(?:/s)?", re.IGNORECASE)
Change = Callable[[StepConditions], StepConditions]


def parse_what_if(text: str) -> list[Change]:
    """The changes in `link=1gbit,hosts=4,exchange=bf16`."""
    return [_parse_change(item.strip()) for item in text.split(",")]


def apply_what_if(conditions: StepConditions, text: str) -> StepConditions:
    for change in parse_what_if(text):
        conditions = change(conditions)
    return conditions


def _parse_change(item: str) -> Change:
    key, _, value = item.partition("=")
    if key == "link" and (match := _BANDWIDTH.fullmatch(value)):
        return partial(StepConditions.with_bandwidth, bits_per_s=float(match[1]) * UNITS[match[2].lower()])
    if key == "hosts" and value.isdecimal() and 0 < int(value) <= MAX_HOSTS:
        return partial(StepConditions.with_machines, machines=int(value))
    if key == "exchange" and value in (AUTO, *METHODS):
        return partial(StepConditions.with_method, name=value)
    raise DragomanError(
        f"--what-if: '{item}' is not understood. Write link=1gbit, hosts=4 or exchange=bf16 "
        f"(one of {', '.join((AUTO, *METHODS))}), separated by commas."
    )
