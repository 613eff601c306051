"""The verbs of the program `headgate`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headgate.base.errors import Problem, SpecError, nearest
from headgate.cli import data, jobs, lifecycle, logs, reproduce, reproduce_histories, show
from headgate.cli.demo import demo
from headgate.cli.plan import plan
from headgate.cli.policies import policies
from headgate.cli.simulate import simulate
from headgate.cli.submit import submit
from headgate.cli.why import why


class Verbs(TyperGroup):
    """A group whose error for an unknown verb names the nearest known one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            text = f"there is no verb '{name}'"
            hint = nearest(name, self.list_commands(ctx))
            raise SpecError([Problem(path=name, problem=text, hint=hint)], code="usage")
        return super().resolve_command(ctx, args)


_SETTINGS = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    cls=Verbs,
    context_settings=_SETTINGS,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A scheduler for shared GPU clusters: fair shares, near the data.",
)
_data = typer.Typer(
    cls=Verbs,
    context_settings=_SETTINGS,
    rich_markup_mode=None,
    help="Put, list and remove datasets.",
)
_reproduce = typer.Typer(
    cls=Verbs,
    context_settings=_SETTINGS,
    rich_markup_mode=None,
    help="Reproduce published experiments.",
)


def _version(requested: bool) -> None:
    if requested:
        print(f"headgate {version('headgate')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        print(context.get_help())


@_data.callback(invoke_without_command=True)
@_reproduce.callback(invoke_without_command=True)
def _start_group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


_VERBS: tuple[Callable[..., None], ...] = (
    *(lifecycle.up, lifecycle.down, submit, jobs.jobs, jobs.get, why, logs.logs),
    *(jobs.cancel, show.nodes, show.queues, plan, policies, simulate, demo),
)
for _verb in _VERBS:
    app.command()(_verb)
for _name, _data_verb in (("put", data.put), ("ls", data.ls), ("rm", data.rm)):
    _data.command(_name)(_data_verb)
app.add_typer(_data, name="data")
_reproduce.command()(reproduce.flow)
_reproduce.command()(reproduce_histories.histories)
app.add_typer(_reproduce, name="reproduce")
