"""A student, the same student without a teacher, and their teacher, through the commands that a user types.

Prepares Europarl with newstest2013 and newstest2014 as validation and test set, trains a teacher (or takes a given
one), distills it with `--compare`, and prints the table of systems and the ledger. The student is trained longer than
its teacher: it is small, and a step of it is fast. The steps are those that an H200 should manage in about fourteen
minutes; the second command tries the flow on a CPU, in about fifteen minutes: a teacher of fewer steps only repeats
itself, and `synthesize` drops all of that. Everything that exists in --out is kept, so the same command resumes.

    python -m benchmarks.distillation --out FOLDER [--teacher RUN] [--pairs 600000] [--teacher-steps 5000]
    python -m benchmarks.distillation --out FOLDER --corpus multi30k --pairs 3000 --teacher-recipe tiny \\
        --teacher-steps 300 --recipe student-tiny --student-steps 30
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.command_line import dragoman_output, make_parser, run_dragoman
from benchmarks.corpora import CORPORA, EUROPARL, MULTI30K, NEWSTEST, read_split
from benchmarks.reporting import Figure, print_figures

LANGUAGES = ("en", "de")
TEXTS = {
    "europarl": ((EUROPARL, "train"), (NEWSTEST, "newstest2013"), (NEWSTEST, "newstest2014")),
    "multi30k": ((MULTI30K, "train"), (MULTI30K, "valid"), (MULTI30K, "test2016")),
}
"""Training, validation and test set."""
EVALUATIONS = 5
MAX_MEGABYTES, MIN_GAIN, MAX_LOSS = 20, 1.0, 1.5


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for data, teacher and student")
    parser.add_argument("--teacher", type=Path, help="a trained model (default: train one)")
    parser.add_argument("--teacher-recipe", default="modern")
    parser.add_argument("--recipe", default="student")
    parser.add_argument("--corpus", choices=TEXTS, default="europarl")
    parser.add_argument("--corpora", type=Path, default=CORPORA, help="folder of the corpora")
    parser.add_argument("--pairs", type=int, default=600_000, help="training pairs")
    parser.add_argument("--teacher-steps", type=int, default=5000)
    parser.add_argument("--teacher-dropout", type=float, default=0.2, help="more than the recipe's, for few pairs")
    parser.add_argument("--student-steps", type=int, default=7000)
    parser.add_argument("overrides", nargs="*", help="settings of the student, key=value")
    options = parser.parse_args()
    print(f"{options.corpus}, {options.pairs:,} pairs, recipe {options.recipe}")
    print_figures("distillation", measure(options), recipe=options.recipe, pairs=options.pairs)


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    data, teacher = prepare(options), options.teacher or out / "teacher"
    if options.teacher is None:
        settings = [*steps(options.teacher_steps), f"model.dropout={options.teacher_dropout}"]
        run_dragoman("train", options.teacher_recipe, "--data", data, "--out", teacher, *settings)
    result = json.loads(dragoman_output(
        "distill", teacher, "--data", data, "--out", out / "student", "--recipe", options.recipe, "--compare", "--json",
        *steps(options.student_steps), *options.overrides,
    ))  # fmt: skip
    (out / "result.json").write_text(json.dumps(result, indent=1))
    yield from figures(result)


def prepare(options: argparse.Namespace) -> Path:
    """The data set of the teacher."""
    folder = options.out / "text"
    folder.mkdir(exist_ok=True)
    for (corpus, split), limit in zip(TEXTS[options.corpus], (options.pairs, None, None), strict=True):
        for language, lines in zip(LANGUAGES, read_split(corpus, split, options.corpora), strict=True):
            path = folder / f"{split}.{language}"
            if not path.exists():
                path.write_text("".join(f"{line}\n" for line in lines[:limit]))
    train, valid, test = (
        [str(folder / f"{split}.{language}") for language in LANGUAGES] for _, split in TEXTS[options.corpus]
    )
    run_dragoman("prepare", *train, "--valid", ",".join(valid), "--test", ",".join(test), "--out", options.out / "data")
    return options.out / "data"


def steps(count: int) -> list[str]:
    every = max(1, count // EVALUATIONS)
    return [f"training.steps={count}", f"evaluation.every={every}", f"checkpoint.every={every}",
            "evaluation.sentences=500", f"schedule.warmup_steps={min(500, count // 10)}"]  # fmt: skip


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    systems = {system["name"]: system for system in result["systems"]}
    teacher, student = systems["teacher"], systems["student"]
    for name, system in systems.items():
        yield Figure(f"BLEU; chrF, {name}", f"{system['bleu']:.2f}; {system['chrf']:.2f}", "", system["bleu"])
    gain = student["bleu"] - systems["student without a teacher"]["bleu"]
    yield Figure("student against the same student without a teacher", f"{gain:+.2f}", f"+{MIN_GAIN:g}", gain)
    loss = student["bleu"] - teacher["bleu"]
    yield Figure("student against its teacher", f"{loss:+.2f}", f"within {MAX_LOSS:g}", loss)
    megabytes = student["size_bytes"] / 1e6
    yield Figure("student, int8", f"{megabytes:.1f} MB", f"at most {MAX_MEGABYTES} MB", megabytes)
    speedup = student["words_per_s"] / teacher["words_per_s"]
    yield Figure("words/s on one core, int8, against the teacher's export", f"{speedup:.1f} x", "", speedup)
    bound = result["upper_bound"]
    interval = f"{bound['bleu']:.2f} ({bound['low']:.2f} to {bound['high']:.2f})"
    yield Figure("ledger: data and teacher", f"{interval}; {bound['win_back']}", "", bound["bleu"])
    for row in result["ledger"]:
        interval = f"{row['bleu']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})"
        yield Figure(f"ledger: {row['cause']}", f"{interval}; {row['win_back']}", "", row["bleu"])
    for part in result["parts"]:
        yield Figure(f"time: {part['name']}", f"{part['seconds'] or 0:.0f} s", "", part["seconds"])


if __name__ == "__main__":
    main()
