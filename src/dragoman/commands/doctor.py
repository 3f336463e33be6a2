"""`dragoman doctor`: benchmark machines and links, and estimate a run."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman.commands.typer_app import (
    AsJson,
    RemotePython,
    SshConfig,
    complete_recipe,
    escape,
    open_console,
    print_json,
    split_arguments,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dragoman.doctor.estimate import Estimate
    from dragoman.doctor.measure_and_estimate import Assessment
    from dragoman.doctor.measurements import Measurements, StepBenchmark

DEFAULT_RECIPE = "transformer-base"
CURRENT = "these machines"
"""Name of the estimate without a `--what-if`."""
MILLISECONDS_BELOW_S = 0.1
ROUGH = " (rough: --quick)"
"""Added to the titles of what `--quick` measures."""
RecipeOrModel = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE | MODEL TEXT...] [key=value]...",
        help=f"Recipe (default: {DEFAULT_RECIPE}), or model and texts of a synthesis; settings.",
        autocompletion=complete_recipe,
    ),
]

WhatIf = Annotated[
    list[str] | None,
    typer.Option("--what-if", help="Estimate for other conditions too: link=1gbit,hosts=4,exchange=bf16"),
]
ScoredWith = Annotated[
    Path | None,
    typer.Option("--score-back-with", metavar="MODEL", help="Of a synthesis: count the time of scoring with it."),
]
NBest = Annotated[int | None, typer.Option("--n-best", min=1, max=100, help="Of a synthesis: translations per line.")]
Sampled = Annotated[
    bool, typer.Option("--sample", help="Of a synthesis: draw translations instead of searching the best one.")
]


def doctor(
    arguments: RecipeOrModel = None,
    hosts: Annotated[
        str, typer.Option("--hosts", help="Machines to measure, as for launch (default: this one).", show_default=False)
    ] = "localhost",
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help="Benchmark with this data set's sentence lengths (default: news-like)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A rough estimate in a few seconds: few steps, and not compiled.")
    ] = False,
    what_if: WhatIf = None,
    score_back_with: ScoredWith = None,
    n_best: NBest = None,
    sample: Sampled = False,
    ssh_config: SshConfig = None,
    python: RemotePython = sys.executable,
    as_json: AsJson = False,
) -> None:
    """Benchmark machines and the links between them, and estimate time, memory, cost and limits of a run.

    With a model and texts, estimate time and cost of `dragoman synthesize`: all machines translate for some seconds,
    and score with the model of --score-back-with. Give it the options of `synthesize` that change its speed.

    Trains for a few seconds as the run will. Takes under a minute; on a GPU about a minute more if the model was not
    compiled there before. With --quick a few seconds, for a rough estimate. The exit code is 1 if the plan is not
    sensible: if most of each step would be communication, or one machine alone would be faster.

    **Examples**

        dragoman doctor tiny

        dragoman doctor --hosts a,b transformer-base --data data/wmt16

        dragoman doctor --hosts a,b transformer-base --what-if link=1gbit --what-if hosts=4,exchange=bf16

        dragoman doctor --hosts a,b runs/en-de news.en.xz 'money.price_per_hour=[2.1]'

        dragoman doctor runs/en-de news.en.xz --score-back-with runs/de-en
    """
    from dragoman.corpus.data_mixture import open_data
    from dragoman.doctor.measure_and_estimate import assess, benchmark_request
    from dragoman.launch.ssh import SshClient, parse_hosts
    from dragoman.recipe import resolve

    if score_back_with or n_best or sample or sum("=" not in word for word in arguments or []) > 1:
        from dragoman.commands.synthesis_estimate_table import SynthesisOptions, estimate

        options = SynthesisOptions(score_back_with, n_best, sample)
        estimate(arguments or [], options, hosts, SshClient(ssh_config, python), as_json=as_json)
        return
    named, overrides = split_arguments(arguments or [])
    recipe = named or DEFAULT_RECIPE
    settings = resolve(recipe, overrides).settings
    console = open_console()
    if console.is_terminal and not as_json:
        console.print("[dim]Training for a few seconds; a GPU compiles the model first.[/dim]\n", highlight=False)
    request = benchmark_request(open_data(data) if data else None, recipe, overrides, quick=quick)
    found = assess(parse_hosts(hosts), request, settings, SshClient(ssh_config, python), what_if or [])
    if as_json:
        print_json(_as_json(found))
    else:
        _show(found, recipe, settings.training.steps, console)
    if not found.current.sensible:
        raise typer.Exit(1)


def _show(found: "Assessment", recipe: str, steps: int, console: "Console") -> None:
    measured = found.measurements
    console.print(_machine_table(measured))
    console.print()
    console.print(_speed_table(measured, quick=found.quick))
    console.print()
    console.print(_memory_table(measured))
    if measured.links:
        console.print()
        console.print(_link_table(measured))
    console.print()
    estimates = {CURRENT: found.current, **found.what_if}
    console.print(_step_table(estimates, quick=found.quick))
    console.print()
    console.print(_run_table(estimates, recipe, steps))
    for doubt in found.doubts:
        console.print(f"\n[yellow]{escape(doubt)}[/yellow]", highlight=False)
    for problem in found.problems:
        console.print(f"\n[yellow]{problem.host} {escape(problem.sentence)}[/yellow]", highlight=False)
    _show_limits(estimates, console)


def _machine_table(measured: "Measurements") -> "Table":
    """Hardware and software, which must fit into 80 columns with a GPU's full name."""
    from dragoman.number_format import size
    from dragoman.terminal import table

    rows = table("machine", "device", "memory", "free disk", "torch", "driver", title="Machines", right=(2, 3))
    for host, benchmark in measured.benchmarks.items():
        rows.add_row(
            host,
            f"{benchmark.gpus} x {benchmark.device}" if benchmark.gpus > 1 else benchmark.device,
            size(benchmark.memory_bytes),
            size(benchmark.free_disk_bytes),
            benchmark.torch,
            benchmark.driver or "-",
        )
    return rows


def _speed_table(measured: "Measurements", *, quick: bool) -> "Table":
    from dragoman.number_format import count
    from dragoman.terminal import table

    title = f"Speed of a worker{ROUGH if quick else ''}"
    rows = table("machine", "tokens/s", "update", "nominal link speed", title=title, right=(1, 2, 3))
    for host, benchmark in measured.benchmarks.items():
        speed, update = count(benchmark.step_tokens_per_s), _duration(benchmark.update_s)
        rows.add_row(host, speed, update, _nominal_link_speed(benchmark))
    return rows


def _memory_table(measured: "Measurements") -> "Table":
    from dragoman.number_format import count, size
    from dragoman.terminal import table

    columns = ("machine", "training needs", "of", "micro-batch", "largest micro-batch that fits")
    rows = table(*columns, title="Memory of a worker", right=(1, 2, 3, 4))
    for host, benchmark in measured.benchmarks.items():
        rows.add_row(
            host,
            size(benchmark.memory_peak_bytes),
            size(benchmark.memory_bytes),
            f"{count(benchmark.micro_tokens)} tokens",
            f"about {_two_digits(benchmark.largest_micro_batch_tokens)} tokens",
        )
    return rows


def _two_digits(number: int) -> str:
    """A number that is known roughly."""
    from dragoman.number_format import count

    unit = 10 ** max(0, len(str(number)) - 2)
    return count(number // unit * unit)


def _duration(seconds: float) -> str:
    """Steps of a GPU take milliseconds."""
    return f"{1000 * seconds:.1f} ms" if seconds < MILLISECONDS_BELOW_S else f"{seconds:.2f} s"


def _duration_range(low_s: float, high_s: float) -> str:
    if high_s < MILLISECONDS_BELOW_S:
        return f"{1000 * low_s:.1f}-{1000 * high_s:.1f} ms"
    return f"{low_s:.2f}-{high_s:.2f} s"


def _nominal_link_speed(benchmark: "StepBenchmark") -> str:
    """Of the machine's fastest interface; many virtual ones report none."""
    from dragoman.number_format import count

    fastest = max(benchmark.nominal_bits_per_s.values(), default=0.0)
    return f"{count(fastest / 1e6)} Mbit/s" if fastest else "unknown"


def _link_table(measured: "Measurements") -> "Table":
    from dragoman.number_format import count
    from dragoman.terminal import table

    rows = table("from", "to", "bandwidth", "round trip", title="Links", right=(2, 3))
    for (sender, receiver), link in measured.links.items():
        rows.add_row(sender, receiver, f"{count(link.bits_per_s / 1e6)} Mbit/s", f"{1000 * link.round_trip_s:.2f} ms")
    return rows


def _step_table(estimates: "Mapping[str, Estimate]", *, quick: bool) -> "Table":
    from dragoman.terminal import table

    columns = ("", "exchange", "step", "likely range", "compute", "update", "communication")
    rows = table(*columns, title=f"Time of a step{ROUGH if quick else ''}", right=(2, 3, 4, 5, 6))
    for name, estimate in estimates.items():
        parts = estimate.prediction
        likely = _duration_range(estimate.step_low_s, estimate.step_high_s)
        parts_s = map(_duration, (parts.compute_s, parts.update_s, parts.exchange_s))
        rows.add_row(_spaced(name), estimate.method, _duration(parts.step_s), likely, *parts_s)
    return rows


def _run_table(estimates: "Mapping[str, Estimate]", recipe: str, steps: int) -> "Table":
    from dragoman.number_format import count, span
    from dragoman.terminal import table

    title = f"{recipe}, {count(steps)} steps, without evaluation"
    rows = table("", "tokens/s", "time", "likely range", "cost", title=title, right=(1, 2, 3, 4))
    for name, estimate in estimates.items():
        rows.add_row(
            _spaced(name),
            count(estimate.tokens_per_s),
            span(estimate.total_s),
            f"{span(estimate.total_low_s)} to {span(estimate.total_high_s)}",
            "-" if estimate.cost is None else f"{estimate.cost:,.2f} {estimate.currency}",
        )
    return rows


def _spaced(name: str) -> str:
    """A `--what-if` that a narrow terminal can wrap between its parts."""
    return escape(name).replace(",", ", ")


def _show_limits(estimates: "Mapping[str, Estimate]", console: "Console") -> None:
    """Limits and remedies of each estimate. A sentence that holds for several is shown once."""
    shown: set[str] = set()
    for name, estimate in estimates.items():
        limits = [sentence for sentence in estimate.limits if sentence not in shown]
        shown.update(limits)
        if limits or estimate.remedies:
            console.print(f"\n[bold]Limits: {_spaced(name)}[/bold]", highlight=False)
        for sentence in limits:
            console.print(escape(sentence), highlight=False)
        for number, remedy in enumerate(estimate.remedies):
            console.print(f"{'faster' if number == 0 else '':<6}  {escape(remedy)}", highlight=False)


def _as_json(found: "Assessment") -> dict[str, Any]:
    measured = found.measurements
    return {
        "hosts": {
            host: {**asdict(benchmark), "clock_offset_s": measured.clock_offsets_s[host]}
            for host, benchmark in measured.benchmarks.items()
        },
        "links": [{"from": a, "to": b, **asdict(link)} for (a, b), link in measured.links.items()],
        "problems": [asdict(problem) for problem in found.problems],
        "quick": found.quick,
        "doubts": found.doubts,
        "estimate": _estimate_json(found.current),
        "what_if": {question: _estimate_json(estimate) for question, estimate in found.what_if.items()},
    }


def _estimate_json(estimate: "Estimate") -> dict[str, Any]:
    return {**asdict(estimate), "step_s": estimate.prediction.step_s}
