"""The program `headgate`: its verbs, and the one place where every error is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headgate.base.errors import HeadgateError, Problem, SpecError, nearest
from headgate.cli import data, errors, jobs, lifecycle, logs, reproduce, show
from headgate.cli.demo import demo
from headgate.cli.plan import plan
from headgate.cli.policies import policies
from headgate.cli.settings import Format, settle
from headgate.cli.simulate import simulate
from headgate.cli.why import why


class Verbs(TyperGroup):
    """A group that answers an unknown verb with the nearest known one."""

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
    help="Fair shares of a GPU cluster, near the data, with a reason for every wait.",
)
_data = typer.Typer(
    cls=Verbs, context_settings=_SETTINGS, rich_markup_mode=None, help="Put, list, remove datasets."
)
_reproduce = typer.Typer(
    cls=Verbs, context_settings=_SETTINGS, rich_markup_mode=None, help="Run published experiments."
)


def _version(asked: bool) -> None:
    if asked:
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
    *(lifecycle.up, lifecycle.down, jobs.submit, jobs.jobs, jobs.get, why, logs.logs),
    *(jobs.cancel, show.nodes, show.queues, plan, policies, simulate, demo),
)
for _verb in _VERBS:
    app.command()(_verb)
for _name, _data_verb in (("put", data.put), ("ls", data.ls), ("rm", data.rm)):
    _data.command(_name)(_data_verb)
app.add_typer(_data, name="data")
_reproduce.command()(reproduce.flow)
app.add_typer(_reproduce, name="reproduce")


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error ends as words or JSON."""
    try:
        code = app(args=list(arguments), prog_name="headgate", standalone_mode=False)
        if code == errors.INTERRUPTED:
            raise errors.interrupted()
    except HeadgateError as error:
        return _report(error, arguments)
    except typer.TyperException as error:
        return _report(errors.misused(error), arguments)
    except (KeyboardInterrupt, typer.Abort):
        return _report(errors.interrupted(), arguments)
    except Exception as error:  # noqa: BLE001  # never a traceback to a user
        return _report(errors.unexpected(error), arguments)
    return code if isinstance(code, int) else errors.OK


def _report(error: HeadgateError, arguments: Sequence[str]) -> int:
    asked = errors.asked_format(arguments)
    if asked is None:
        try:
            asked = settle(None, None).format
        except HeadgateError:
            asked = Format.TABLE  # what is wrong with the settings is told as words
    return errors.report(error, as_json=asked == Format.JSON)


def main() -> None:
    """Run the program's command line."""
    sys.exit(run(sys.argv[1:]))
