"""The estimate of a synthesis, as `doctor` prints it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.commands.synthesize import split_decoding
from dragoman.commands.typer_app import escape, open_console, print_json
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.launch.ssh import SshClient


@dataclass(frozen=True)
class SynthesisOptions:
    """The options of `synthesize` on which its duration depends."""

    score_back_with: Path | None = None
    n_best: int | None = None
    sample: bool = False

    @property
    def given(self) -> str | None:
        """The name of an option that was given."""
        values = (self.score_back_with is not None, self.n_best is not None, self.sample)
        return next((name for name, is_given in zip(OPTION_NAMES, values, strict=True) if is_given), None)


OPTION_NAMES = ("--score-back-with", "--n-best", "--sample")


def estimate(
    arguments: Sequence[str], options: SynthesisOptions, hosts: str, client: "SshClient", *, as_json: bool
) -> None:
    """Measure the machines, and print time and cost of the synthesis of a model and texts, with settings."""
    from dragoman.launch.ssh import parse_hosts
    from dragoman.number_format import count, percent, span
    from dragoman.recipe import resolve
    from dragoman.synthesis.synthesis_estimate import estimate_synthesis
    from dragoman.synthesis.synthesizer import SynthesisRequest, check_sampling
    from dragoman.terminal import table

    words = [word for word in arguments if "=" not in word]
    prices, decoding = split_decoding([word for word in arguments if "=" in word])
    if len(words) < 2:
        raise DragomanError(
            f"{options.given} is for a synthesis: add its model and texts, for example "
            "`dragoman doctor runs/en-de news.en --score-back-with runs/de-en`."
        )
    found = estimate_synthesis(
        SynthesisRequest(
            Path(words[0]), list(map(Path, words[1:])), Path(), decoding=decoding, machines=parse_hosts(hosts),
            client=client, money=resolve(None, prices).settings.money, backward=options.score_back_with,
            n_best=options.n_best or 1, sampling=check_sampling({}) if options.sample else None,
        )
    )  # fmt: skip
    if as_json:
        print_json({**asdict(found), "seconds": found.seconds, "cost": found.cost})
        return
    console = open_console()
    is_scored = options.score_back_with is not None
    columns = ("machine", "lines/s", *(("time of scores",) if is_scored else ()), "engine")
    rows = table(*columns, title="Speed on a sample of the text", right=(1, 2) if is_scored else (1,))
    for host, speed in found.lines_per_s.items():
        scoring = (percent(found.scoring_share[host]),) if is_scored else ()
        rows.add_row(host, f"{speed:,.1f}", *scoring, escape(found.machines[host]))
    console.print(rows)
    cost = "not known: set money.price_per_hour" if found.cost is None else f"{found.cost:,.2f} {found.currency}"
    console.print(
        f"\n{count(found.lines)} lines take about [bold]{span(found.seconds)}[/bold]; cost {cost}.", highlight=False
    )
    for host, problem in found.problems.items():
        console.print(f"[yellow]{escape(host)} cannot be used: {escape(problem)}[/yellow]", highlight=False)
