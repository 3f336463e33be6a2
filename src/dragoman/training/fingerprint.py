"""Fingerprints: the data set, settings and code of each worker, which must be equal on all workers of a run.

Workers with different data or settings would train to the end, or wait for each other for ever. `dragoman launch`
checks its hosts before it starts; torchrun, mpirun and srun check nothing, and a machine that returns to an elastic
world may have changed meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dragoman.code_version import dragoman_version
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.evaluation_set import EvaluationSet
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import Member, WorkersLostError
from dragoman.errors import DragomanError
from dragoman.settings import PREPARATION_SECTIONS, Settings
from dragoman.training.start_model import StartWeights

OWN_SETTINGS = frozenset(
    {
        "training.micro_batch_tokens",
        "checkpoint.keep_last",
        "decoding.batch_tokens",
        "money.price_per_hour",
        "money.currency",
    }
)
"""Settings that each machine may have as its memory, disk and price require."""
REMEDY = "Start all workers with the same data set, settings and version of Dragoman."


@dataclass(frozen=True)
class Fingerprint:
    """What must be equal on all workers."""

    data: str
    """Identity of the data set."""
    dragoman: str
    settings: Mapping[str, Any]
    """Values by `section.name`, without those of `prepare`: the data set shows what they have done."""
    start: str = ""
    """Checksum of the weights that the run begins with; empty if they are random."""
    evaluation_sets: Mapping[str, str] = field(default_factory=dict)
    """Identities of the sets of `--also-evaluate`, by name."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        data: DataSet,
        start: StartWeights | None = None,
        other_sets: Sequence[EvaluationSet] = (),
    ) -> "Fingerprint":
        values = {
            f"{section}.{name}": value
            for section, part in settings.model_dump(mode="json").items()
            for name, value in part.items()
            if section not in PREPARATION_SECTIONS and f"{section}.{name}" not in OWN_SETTINGS
        }
        identities = {each.name: each.identity for each in other_sets}
        return cls(
            data.manifest.identity, dragoman_version(), values, "" if start is None else start.identity, identities
        )

    def differences(self, other: "Fingerprint") -> list[str]:
        """Each difference from another worker's, as a phrase."""
        found = [] if self.data == other.data else [f"data set {self.data[:12]}, not {other.data[:12]}"]
        if self.dragoman != other.dragoman:
            return [*found, f"Dragoman {self.dragoman}, not {other.dragoman}"]  # It may have other settings, too.
        if self.start != other.start:
            found.append(
                f"weights {self.start[:12] or 'at random'} to start with, not {other.start[:12] or 'random ones'}"
            )
        if self.evaluation_sets != other.evaluation_sets:
            own, others = (_list_sets(each.evaluation_sets) for each in (self, other))
            found.append(f"--also-evaluate {own}, not {others}")
        keys = [key for key, value in self.settings.items() if value != other.settings[key]]
        return [*found, *(f"{key} = {self.settings[key]}, not {other.settings[key]}" for key in keys)]


def _list_sets(identities: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({identity[:12]})" for name, identity in identities.items()) or "of no set"


def require_equal(cluster: Cluster, own: Fingerprint) -> None:
    """At the start of a static world: raise on every worker if they differ."""
    mismatches = _mismatches(_gather(cluster, own), reference=0)
    if mismatches:
        sentences = [_sentence(cluster.members, rank, 0, found) for rank, found in mismatches.items()]
        raise DragomanError("\n  ".join([*sentences, REMEDY]))


def refuse_mismatched(cluster: Cluster, own: Fingerprint, step: int) -> None:
    """In a new elastic world: refuse workers that differ from those of the run, which continue without them.

    The run is where most steps are done; among workers with as many steps, where most workers are.
    """
    fingerprints = _gather(cluster, own)
    steps = cluster.all_gather_json(step)
    reference = max(range(len(steps)), key=lambda rank: (steps[rank], fingerprints.count(fingerprints[rank]), -rank))
    mismatches = _mismatches(fingerprints, reference)
    if cluster.rank in mismatches:
        sentence = _sentence(cluster.members, cluster.rank, reference, mismatches[cluster.rank])
        raise DragomanError(f"{sentence} {REMEDY}")
    if mismatches:
        refused = [(cluster.members[rank], "refused: " + "; ".join(found)) for rank, found in mismatches.items()]
        raise WorkersLostError(refused, f"does not match {cluster.members[reference]}")


def _gather(cluster: Cluster, own: Fingerprint) -> list[Fingerprint]:
    return [Fingerprint(**each) for each in cluster.all_gather_json(asdict(own))]


def _mismatches(fingerprints: Sequence[Fingerprint], reference: int) -> dict[int, list[str]]:
    """The differences of each rank that does not match the reference."""
    found = {rank: each.differences(fingerprints[reference]) for rank, each in enumerate(fingerprints)}
    return {rank: differences for rank, differences in found.items() if differences}


def _sentence(members: Sequence[Member], rank: int, reference: int, differences: Sequence[str]) -> str:
    worker = str(members[rank])
    return f"{worker[0].upper()}{worker[1:]} does not match {members[reference]}: {'; '.join(differences)}."
