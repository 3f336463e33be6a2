"""The estimate of a synthesis, as `doctor` prints it."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.commands.synthesize import split_decoding
from dragoman.commands.typer_app import escape, open_console, print_json

if TYPE_CHECKING:
    from dragoman.launch.ssh import SshClient


def estimate(
    model: str, texts: Sequence[str], overrides: Sequence[str], hosts: str, client: "SshClient", *, as_json: bool
) -> None:
    """Measure the machines, and print time and cost of the synthesis."""
    from dragoman.launch.ssh import parse_hosts
    from dragoman.number_format import count, span
    from dragoman.recipe import resolve
    from dragoman.synthesis.synthesis_estimate import estimate_synthesis
    from dragoman.synthesis.synthesizer import SynthesisRequest
    from dragoman.terminal import table

    prices, decoding = split_decoding(overrides)
    found = estimate_synthesis(
        SynthesisRequest(
            Path(model), list(map(Path, texts)), Path(), decoding=decoding, machines=parse_hosts(hosts), client=client,
            money=resolve(None, prices).settings.money,
        )
    )  # fmt: skip
    if as_json:
        print_json({**asdict(found), "seconds": found.seconds, "cost": found.cost})
        return
    console = open_console()
    rows = table("machine", "lines/s", "engine", title="Speed on a sample of the text", right=(1,))
    for host, speed in found.lines_per_s.items():
        rows.add_row(host, f"{speed:,.1f}", escape(found.machines[host]))
    console.print(rows)
    cost = "not known: set money.price_per_hour" if found.cost is None else f"{found.cost:,.2f} {found.currency}"
    console.print(
        f"\n{count(found.lines)} lines take about [bold]{span(found.seconds)}[/bold]; cost {cost}.", highlight=False
    )
    for host, problem in found.problems.items():
        console.print(f"[yellow]{escape(host)} cannot be used: {escape(problem)}[/yellow]", highlight=False)
