"""What must agree between hosts before a run starts: differences are named host by host, each with its remedy."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dragoman.errors import DragomanError
from dragoman.launch.network_interfaces import Address
from dragoman.number_format import size, span
from dragoman.settings import Settings

CLOCK_S = 2.0
"""Clocks may differ by so much before the times in logs of several hosts are hard to compare."""
CHECKPOINT_BYTES = 16
"""Of each parameter: its value, two of the optimizer's, and its running average where one is kept."""


@dataclass(frozen=True)
class Report:
    """What a host found out about itself."""

    torch: str
    gpus: int
    settings: str
    """Hash of the settings as this host reads them; empty where it cannot."""
    data: str
    """What identifies the data set; empty where it cannot be used."""
    free_bytes: int
    needed_bytes: int
    parameters: int
    """Of the model; 0 where it cannot be told."""
    checkpoint: str
    """Name of the newest whole checkpoint; empty where there is none."""
    problems: Sequence[str]


@dataclass(frozen=True)
class Problem:
    """What is wrong with a host, and how to mend it."""

    host: str
    sentence: str


class HostsError(DragomanError):
    """All problems of all hosts at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        width = max(len(problem.host) for problem in problems)
        lines = [f"{problem.host:<{width}}  {problem.sentence}" for problem in problems]
        super().__init__("\n  ".join(["The hosts are not ready, and nothing was started:", *lines]))


def compare_versions(here: str, versions: Mapping[str, str]) -> list[Problem]:
    """Every host runs the same Dragoman as the launcher."""
    return [
        Problem(host, f"has Dragoman {version}, and this machine {here}: install the same on both.")
        for host, version in versions.items()
        if version != here
    ]


def compare(reports: Mapping[str, Report], workers: Mapping[str, int], settings: str) -> list[Problem]:
    """Every host has the same torch, data and settings, enough room, and a GPU for each of its workers."""
    problems = [Problem(host, text) for host, report in reports.items() for text in report.problems]
    torch = _most_common([report.torch for report in reports.values()])
    data = _most_common([report.data for report in reports.values() if report.data])
    on_gpus = any(report.gpus for report in reports.values())
    first = next(iter(reports))
    for host, report in reports.items():
        if report.torch != torch:
            problems.append(Problem(host, f"has torch {report.torch}, and others {torch}: install the same on all."))
        if report.data and report.data != data:
            problems.append(
                Problem(host, f"has another data set ({report.data[:12]}, others {data[:12]}): use --push to copy it.")
            )
        if report.settings and report.settings != settings:
            problems.append(Problem(host, "reads other settings from the recipe: use --push to copy the recipe."))
        if on_gpus and report.gpus < workers[host]:
            problems.append(
                Problem(host, f"has {report.gpus} GPUs for {workers[host]} workers: write {host}:{report.gpus or 1}.")
            )
        if host == first and report.free_bytes < report.needed_bytes:
            problems.append(
                Problem(
                    host,
                    f"has {size(report.free_bytes)} free for the run, whose checkpoints take up to "
                    f"{size(report.needed_bytes)}: make room, or lower checkpoint.keep_last.",
                )
            )
    return problems


def clock_offsets(clocks_s: Mapping[str, float], asked_at_s: float, answered_at_s: float) -> dict[str, float]:
    """By how much the hosts' clocks differ from this one's. They were read between the question and the answer, so
    that less than half of the time in between is no difference."""
    middle_s, allowed_s = (asked_at_s + answered_at_s) / 2, (answered_at_s - asked_at_s) / 2
    offsets_s = {host: clock_s - middle_s for host, clock_s in clocks_s.items()}
    return {host: offset_s if abs(offset_s) > allowed_s else 0.0 for host, offset_s in offsets_s.items()}


def compare_clocks(offsets_s: Mapping[str, float]) -> list[Problem]:
    """Clocks that would make logs hard to compare. Training does not mind them."""
    return [
        Problem(host, f"has a clock that is {span(abs(offset_s))} {'ahead' if offset_s > 0 else 'behind'}: use NTP.")
        for host, offset_s in offsets_s.items()
        if abs(offset_s) > CLOCK_S
    ]


def meet(
    addresses: Mapping[str, Sequence[Address]], reached: Mapping[str, Mapping[str, Sequence[str]]]
) -> tuple[dict[str, Address], list[Problem]]:
    """For each host the first of its addresses that all others reached, and who is out of reach of whom."""
    chosen: dict[str, Address] = {}
    problems = []
    for host, own in addresses.items():
        others = [other for other in addresses if other != host]
        common = [item for item in own if all(item[1] in reached[other][host] for other in others)]
        if common:
            chosen[host] = common[0]
            continue
        blind = [other for other in others if not reached[other][host]] or others
        tried = ", ".join(f"{address} on {interface}" for interface, address in own) or "it has none"
        problems.append(
            Problem(
                host,
                f"cannot be reached by {' and '.join(blind)} at its addresses ({tried}): "
                "let the hosts reach each other's TCP ports, or join them in one network.",
            )
        )
    return chosen, problems


def newest(reports: Mapping[str, Report]) -> str | None:
    """The host that holds the newest whole checkpoint; the first of them where several do."""
    if not any(report.checkpoint for report in reports.values()):
        return None
    return max(reports, key=lambda host: reports[host].checkpoint)


def checkpoint_bytes(settings: Settings, parameters: int) -> int:
    """The most that a run's checkpoints take up: those that are kept, the best ones, and one that is being written."""
    return parameters * CHECKPOINT_BYTES * (settings.checkpoint.keep_last + 2)


def settings_digest(settings: Settings) -> str:
    """Equal for equal settings."""
    return hashlib.sha256(settings.model_dump_json().encode()).hexdigest()


def _most_common(values: Sequence[str]) -> str:
    return Counter(values).most_common(1)[0][0] if values else ""
