"""The verbs of the program `headgate`."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from headgate.base.errors import InvariantBroken, Problem, SpecError, nearest


class Verbs(TyperGroup):
    """A group that imports each verb at its first use.

    Its error for an unknown verb names the nearest known one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._verbs = VERBS.get(self.name or "", {})

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(self._verbs)

    def get_command(self, ctx: Any, name: str) -> Any:
        del ctx
        if name not in self.commands and name in self._verbs:
            self.commands[name] = _loaded(name, self._verbs[name])
        return self.commands.get(name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the verbs without importing them."""
        del ctx
        rows = [(name, _short_help(place)) for name, place in self._verbs.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not ctx.resilient_parsing and name not in self._verbs:
            text = f"there is no verb '{name}'"
            hint = nearest(name, self._verbs)
            raise SpecError([Problem(path=name, problem=text, hint=hint)], code="usage")
        return super().resolve_command(ctx, args)


_PACKAGE = "headgate.cli"
VERBS = {
    "headgate": {
        "up": "cluster.lifecycle:up",
        "down": "cluster.lifecycle:down",
        "run": "jobs.run:run",
        "submit": "jobs.submit:submit",
        "jobs": "jobs.jobs:jobs",
        "get": "jobs.jobs:get",
        "why": "jobs.why:why",
        "logs": "jobs.logs:logs",
        "cancel": "jobs.jobs:cancel",
        "migrate": "jobs.migrate:migrate",
        "drain": "cluster.drain:drain",
        "resume": "cluster.drain:resume",
        "label": "cluster.label:label",
        "scale": "cluster.scale:scale",
        "nodes": "cluster.show:nodes",
        "queues": "cluster.queues:queues",
        "top": "jobs.top:top",
        "topology": "cluster.topology:topology",
        "plan": "jobs.plan:plan",
        "policies": "simulate.policies:policies",
        "simulate": "simulate.simulate:simulate",
        "demo": "simulate.demo:demo",
        "data": "verbs:_data",
        "pack": "simulate.pack:pack",
        "reproduce": "verbs:_reproduce",
    },
    "data": {"put": "data.data:put", "ls": "data.data:ls", "rm": "data.data:rm"},
    "reproduce": {
        "flow": "reproduce.flow:flow",
        "histories": "reproduce.histories:histories",
        "closed-partition": "reproduce.closed_partition:closed_partition",
        "packing": "reproduce.packing:packing",
        "spillover": "reproduce.spillover:spillover",
        "label-queues": "reproduce.label_queues:label_queues",
    },
}
"""By group and name, the module and the function of each verb."""

_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
_SETTINGS: dict[str, dict[str, Any]] = {"run": {"allow_interspersed_args": False}}  # its command
_CLASSES = {"submit": "SubmitCommand"}  # in the module of the verb


def _group(name: str, text: str) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=Verbs,
        context_settings=_HELP,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=name == "headgate",
        help=text,
    )


app = _group("headgate", "A scheduler for shared GPU clusters: fair shares, near the data.")
_data = _group("data", "Put, list and remove datasets.")
_reproduce = _group("reproduce", "Reproduce published experiments.")


def _loaded(name: str, place: str) -> Any:
    """Return the command of a verb, whose module is imported now."""
    module, _, attribute = place.partition(":")
    loaded = import_module(f"{_PACKAGE}.{module}")
    found, parser = getattr(loaded, attribute), getattr(loaded, _CLASSES.get(name, ""), None)
    if isinstance(found, typer.Typer):
        return get_command(found)
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(name, cls=parser, context_settings=_SETTINGS.get(name))(found)
    return get_command(alone)


def _short_help(place: str) -> str:
    """Return the first sentence on a verb: of its docstring, which is read from the source."""
    module, _, attribute = place.partition(":")
    if module == "verbs":
        return str(globals()[attribute].info.help)
    source = Path(__file__).parent / f"{module.replace('.', '/')}.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == attribute:
            text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
            return f"{text.partition('. ')[0].removesuffix('.')}."
    raise InvariantBroken(f"{_PACKAGE}.{place} is not a function")


def _version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

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
