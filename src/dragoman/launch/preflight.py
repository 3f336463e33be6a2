"""Checks that hosts agree before a run starts. Each problem names its host and a remedy."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dragoman.errors import DragomanError
from dragoman.launch.network_interfaces import Address
from dragoman.number_format import size, span
from dragoman.settings import Settings

MAX_CLOCK_OFFSET_S = 2.0
"""With larger differences between clocks, the times in logs of several hosts are hard to compare."""
CHECKPOINT_BYTES = 16
"""For each parameter: its value, two of the optimizer, and its moving average where one is kept."""


@dataclass(frozen=True)
class HostReport:
    """What a host found out about itself."""

    torch: str
    gpus: int
    settings: str
    """Hash of the settings as this host reads them; empty if it cannot."""
    data: str
    """Identity of the data set; empty if it cannot be used."""
    free_bytes: int
    needed_bytes: int
    parameters: int
    """Size of the model; 0 if unknown."""
    vocabulary: int
    """Of the data set, padded; 0 if unknown."""
    checkpoint: str
    """Name of the newest intact checkpoint; empty if there is none."""
    problems: Sequence[str]


@dataclass(frozen=True)
class HostProblem:
    """A problem of a host, as a sentence without its subject, with a remedy."""

    host: str
    sentence: str


class HostsError(DragomanError):
    """All problems of all hosts at once."""

    def __init__(self, problems: Sequence[HostProblem]) -> None:
        self.problems = tuple(problems)
        width = max(len(problem.host) for problem in problems)
        lines = [f"{problem.host:<{width}}  {problem.sentence}" for problem in problems]
        super().__init__("\n  ".join(["The hosts are not ready, and nothing was started:", *lines]))


def lost_problems(lost: Mapping[str, Exception]) -> list[HostProblem]:
    return [HostProblem(host, f"was lost: {reason}.") for host, reason in lost.items()]


def compare_versions(here: str, versions: Mapping[str, str]) -> list[HostProblem]:
    """The hosts whose version of Dragoman differs from the launcher's."""
    return [
        HostProblem(host, f"has Dragoman {version}, this machine has {here}: install the same version on both.")
        for host, version in versions.items()
        if version != here
    ]


def compare_hosts(reports: Mapping[str, HostReport], workers: Mapping[str, int], settings: str) -> list[HostProblem]:
    """All differences in torch, data and settings, and hosts without disk space or a GPU for each worker."""
    problems = [HostProblem(host, text) for host, report in reports.items() for text in report.problems]
    torch = _most_common([report.torch for report in reports.values()])
    data = _most_common([report.data for report in reports.values() if report.data])
    uses_gpus = any(report.gpus for report in reports.values())
    first = next(iter(reports))
    for host, report in reports.items():
        found = []
        if report.torch != torch:
            found.append(f"has torch {report.torch}, others have {torch}: install the same version on all hosts.")
        if report.data and report.data != data:
            found.append(f"has another data set ({report.data[:12]}, others {data[:12]}): use --push to copy it.")
        if report.settings and report.settings != settings:
            found.append("reads other settings from the recipe: use --push to copy the recipe.")
        if uses_gpus and report.gpus < workers[host]:
            found.append(f"has {report.gpus} GPUs for {workers[host]} workers: write {host}:{report.gpus or 1}.")
        if host == first and report.free_bytes < report.needed_bytes:
            found.append(disk_problem(report.free_bytes, report.needed_bytes))
        problems += [HostProblem(host, sentence) for sentence in found]
    return problems


def disk_problem(free_bytes: int, needed_bytes: int) -> str:
    return (
        f"has {size(free_bytes)} of free disk space, and checkpoints take up to {size(needed_bytes)}: free some, or "
        "lower checkpoint.keep_last."
    )


def clock_offsets(clocks_s: Mapping[str, float], sent_at_s: float, received_at_s: float) -> dict[str, float]:
    """Offsets of the hosts' clocks from this machine's, where the duration of the request cannot explain them."""
    middle_s, allowed_s = (sent_at_s + received_at_s) / 2, (received_at_s - sent_at_s) / 2
    offsets_s = {host: clock_s - middle_s for host, clock_s in clocks_s.items()}
    return {host: offset_s if abs(offset_s) > allowed_s else 0.0 for host, offset_s in offsets_s.items()}


def compare_clocks(offsets_s: Mapping[str, float]) -> list[HostProblem]:
    """Clocks that would make logs hard to compare. Training works with any."""
    return [
        HostProblem(
            host, f"has a clock that is {span(abs(offset_s))} {'ahead' if offset_s > 0 else 'behind'}: use NTP."
        )
        for host, offset_s in offsets_s.items()
        if abs(offset_s) > MAX_CLOCK_OFFSET_S
    ]


def choose_addresses(
    addresses: Mapping[str, Sequence[Address]], reached: Mapping[str, Mapping[str, Sequence[str]]]
) -> tuple[dict[str, Address], list[HostProblem]]:
    """For each host the first of its addresses that all other hosts reached, and the hosts that have none."""
    chosen: dict[str, Address] = {}
    problems = []
    for host, own in addresses.items():
        others = [other for other in addresses if other != host]
        common = [item for item in own if all(item[1] in reached[other][host] for other in others)]
        if common:
            chosen[host] = common[0]
            continue
        unable = [other for other in others if not reached[other][host]] or others
        tried = ", ".join(f"{address} on {interface}" for interface, address in own) or "it has none"
        problems.append(
            HostProblem(
                host,
                f"cannot be reached by {' and '.join(unable)} at its addresses ({tried}): "
                "open TCP ports between the hosts, or join them in one network.",
            )
        )
    return chosen, problems


def newest_checkpoint_host(reports: Mapping[str, HostReport]) -> str | None:
    """The host that holds the newest intact checkpoint; the first of them if several do."""
    if not any(report.checkpoint for report in reports.values()):
        return None
    return max(reports, key=lambda host: reports[host].checkpoint)


def checkpoint_bytes(settings: Settings, parameters: int) -> int:
    """Most disk space that checkpoints take: those that are kept, the best ones, and one that is being written."""
    return parameters * CHECKPOINT_BYTES * (settings.checkpoint.keep_last + 2)


def settings_digest(settings: Settings) -> str:
    """Equal for equal settings."""
    return hashlib.sha256(settings.model_dump_json().encode()).hexdigest()


def _most_common(values: Sequence[str]) -> str:
    return Counter(values).most_common(1)[0][0] if values else ""
