"""Outputs of the commands, read as nested values and compared: digests of files and tensors, numbers of events, text.

Nothing of Dragoman is imported: the outputs are those of two versions.
"""

import hashlib
import json
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

NOT_COMPARED = {"README.md", "job.json"}
"""Files that differ from run to run: the card has the training time, the job has times of files."""
OWN_FORMATS = {"manifest.json", "model.json", "weights.safetensors"}
"""Files whose keys are this project's own, and may be renamed. Other files are compared as bytes."""
NOT_COMPARED_IN_EVENTS = {"event", "rank", "worker"}
KINDS_OF_EVENTS = {"steps": "learning_rate", "evaluations": "perplexity", "averages": "nll"}
"""Events that are compared, and a field by which each is recognised; the first that fits decides."""


def read_folder(folder: Path) -> dict[str, Any]:
    """Digest of each file; of this project's own formats the content."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in NOT_COMPARED:
            continue
        if path.name not in OWN_FORMATS:
            found[str(path.relative_to(folder))] = digest(path.read_bytes())
        elif path.suffix == ".safetensors":
            found[str(path.relative_to(folder))] = read_tensors(path)
        else:
            found[str(path.relative_to(folder))] = read_json(path)
    return found


def read_tensors(path: Path) -> dict[str, Any]:
    """Type, shape and digest of each tensor of a safetensors file."""
    content = path.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    tensors = json.loads(content[8:start])
    about = tensors.pop("__metadata__", {})
    found = {
        name: f"{tensor['dtype']} {tensor['shape']} " + digest(content[start + first : start + last])
        for name, tensor in tensors.items()
        for first, last in [tensor["data_offsets"]]
    }
    return {"metadata": about, "tensors": found}


def read_run(run: Path) -> dict[str, Any]:
    """Numbers of every step and evaluation of each worker, and all saved tensors."""
    logs = {log.name: read_events(log) for log in sorted(run.glob("events*.jsonl"))}
    if not any(log["steps"] for log in logs.values()):
        raise ValueError(f"{run} has no events of steps: see KINDS_OF_EVENTS")
    tensors = {str(path.relative_to(run)): read_tensors(path) for path in sorted(run.rglob("*.safetensors"))}
    return {"events": logs, "checkpoints": tensors}


def read_events(log: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS_OF_EVENTS}
    for line in log.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # The run is still writing it.
        event = json.loads(line)
        kind = next((kind for kind, mark in KINDS_OF_EVENTS.items() if mark in event), None)
        if kind is not None:
            event = {key: value for key, value in event.items() if key not in NOT_COMPARED_IN_EVENTS}
            found[kind].append(without_times(event))
    for step in found["steps"][:1]:
        step.pop("sent_bytes", None)  # Counts the messages at the start too, whose encoding is no result.
    return found


def without_times(content: Any) -> Any:
    """JSON content without the seconds that something took, whose keys end in `_s`."""
    if isinstance(content, dict):
        return {key: without_times(value) for key, value in content.items() if not key.endswith("_s")}
    return [without_times(item) for item in content] if isinstance(content, list) else content


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")


def read_cards(exports: Path) -> dict[str, list[str]]:
    return {
        card.parent.name: [line for line in read_lines(card) if not line.startswith("| time ")]
        for card in sorted(exports.glob("*/README.md"))
    }


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Comparison:
    """Values compared, and the paths of those that differ; keys with another name, and keys that were added."""

    compared: int = 0
    different: list[str] = field(default_factory=list)
    renamed: Counter[tuple[str, str]] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Comparison") -> None:
        self.compared += other.compared
        self.different += other.different
        self.renamed += other.renamed
        self.added += other.added


def compare(old: Any, new: Any, path: str = "") -> Comparison:
    if isinstance(old, dict) and isinstance(new, dict):
        return compare_keys(old, new, path)
    found = Comparison()
    if isinstance(old, list) and isinstance(new, list):
        for number, (left, right) in enumerate(zip(old, new, strict=False)):
            found.add(compare(left, right, f"{path}[{number}]"))
        if len(old) != len(new):
            found.different.append(f"{path}: {len(old)} items, now {len(new)}")
        return found
    found.compared = 1
    if type(old) is not type(new) or old != new:
        found.different.append(f"{path}: {shorten(old)}, now {shorten(new)}")
    return found


def compare_keys(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Comparison:
    """Compare by key; a key that is gone counts as renamed where a new one has the same content."""
    found = Comparison()
    added = [key for key in new if key not in old]
    for key, value in old.items():
        if key in new:
            found.add(compare(value, new[key], f"{path}/{key}"))
            continue
        same = [name for name in added if not compare(value, new[name]).different]
        if same:
            name = max(same, key=lambda name: SequenceMatcher(None, key, name).ratio())
            added.remove(name)
            found.add(compare(value, new[name]))
            found.renamed[renamed_part(key, name)] += 1
        else:
            found.compared += 1
            found.different.append(f"{path}/{key} is gone")
    found.added.update(added)
    return found


def renamed_part(old: str, new: str) -> tuple[str, str]:
    """The part in which two names differ: of `decoder.0.widen.bias` and `decoder.0.up.bias`, `widen` and `up`."""
    left, right = re.split(r"[./]", old), re.split(r"[./]", new)
    if len(left) == len(right):
        changed = [(one, other) for one, other in zip(left, right, strict=True) if one != other]
        if len(changed) == 1:
            return changed[0]
    return old, new


def shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
