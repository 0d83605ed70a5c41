"""The commands, and options that take several values in a row: `--features age income`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from gbpl.cli.check import check
from gbpl.cli.console import FAULT, WRONG, ready_streams, stop
from gbpl.cli.data import datasets
from gbpl.cli.decide import decide
from gbpl.cli.demo import demo
from gbpl.cli.evaluate import compare, evaluate
from gbpl.cli.export import export
from gbpl.cli.fit import fit
from gbpl.cli.report import report
from gbpl.cli.reproduce import reproduce
from gbpl.cli.watch import watch
from gbpl.version import __version__

__all__ = ["main"]

NUMBER = re.compile(r"-\.?\d")  # a value, not an option
SHORT_HELP = {"help_option_names": ["-h", "--help"]}
UsageError: Any = typer.BadParameter.__mro__[1]  # typer brings its own copy of click, or shares it, by version
EXAMPLES = {
    "demo": ["gbpl demo"],
    "fit": [
        "gbpl fit trial.csv --outcome earnings --action offered --propensity 2/3",
        "gbpl fit trial.csv --outcome sales --action mail --cost email=0.1 call=4",
        "gbpl fit trial.csv --outcome sales --action mail --guard 'complaints<=0.01'",
        "gbpl fit returns.parquet --outcomes stocks bonds --features rate spread",
    ],
    "check": ["gbpl check trial.csv --outcome earnings --action offered --propensity 2/3"],
    "decide": ["gbpl decide gbpl-result/policy.gbpl new.csv -o decisions.csv --keep id"],
    "evaluate": ["gbpl evaluate gbpl-result/policy.gbpl next_trial.csv"],
    "compare": ["gbpl compare gbpl-result/policy.gbpl other/policy.gbpl next_trial.csv"],
    "watch": [
        "gbpl watch policy.gbpl log.parquet --outcome-range 0 1 --propensity chance --report watch.html",
        "gbpl watch policy.gbpl log.parquet && ./deploy",
    ],
    "export": [
        "gbpl export gbpl-result/policy.gbpl --to sql --table customers --keep id -o decide.sql",
        "gbpl export gbpl-result/rule.json --to json --flag offer -o flags.json",
    ],
    "report": ["gbpl report gbpl-result/policy.gbpl -o report.html"],
    "datasets": ["gbpl datasets", "gbpl datasets nsw -o nsw.csv"],
    "reproduce": ["gbpl reproduce --quick", "gbpl reproduce weak-overlap uci"],
}


class _Tidy:
    """Help without the types of switches, and with `--help` among the other switches."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)  # type: ignore[misc]
        panel = next((p.rich_help_panel for p in params if p.name == "as_json"), None)
        for p in params:
            if getattr(p, "is_flag", False) and p.metavar is None:
                p.metavar = ""
            if p.name == "help" and panel is not None:
                p.rich_help_panel = panel
        return params


class _ManyValues(_Tidy, TyperCommand):
    """Lets every option that may be repeated take several values at once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        many = {name for p in self.params if getattr(p, "multiple", False) for name in p.opts}
        groups = list(_grouped(args, many))
        for option, values in groups:
            if option and not values and not ctx.resilient_parsing:
                raise UsageError(f"{option} needs a value; give one or several: {option} A B", ctx)
        words = [[option, value] if option else [value] for option, values in groups for value in values]
        try:
            return super().parse_args(ctx, [word for pair in words for word in pair])
        except UsageError as error:
            greedy = [group for group in groups if group[0]]
            if type(error).__name__ == "MissingParameter" and error.param.param_type_name == "argument" and greedy:
                raise UsageError(self._order(ctx, *greedy[-1]), ctx) from error
            raise

    def _order(self, ctx: Any, option: str, values: list[str]) -> str:
        """The message where an option has taken the files that were meant as arguments."""
        files = [str(p.metavar) for p in self.params if p.param_type_name == "argument" and p.required]
        first = f"{files[0]} comes" if len(files) == 1 else f"{' '.join(files)} come"
        count = len(files) if len(values) > len(files) else 0
        right = [*(values[-count:] if count else files), option, *values[: len(values) - count]]
        return (
            f"{first} first, since {option} takes every word up to the next option, here also {values[-1]!r}; write "
            f"{ctx.command_path} {shlex.join(right)}"
        )


def _grouped(args: Sequence[str], many: set[str]) -> Iterator[tuple[str, list[str]]]:
    """Words as they came, except that those after an option of many values are with it."""
    taking: tuple[str, list[str]] | None = None
    for number, word in enumerate(args):
        if word == "--":
            yield from () if taking is None else (taking,)
            yield "", list(args[number:])
            return
        name, sign, value = word.partition("=")
        option = word.startswith("-") and len(word) > 1 and not NUMBER.match(word)
        if taking is not None and not option:
            taking[1].append(word)
            continue
        if taking is not None:
            yield taking
        taking = (name, [value] if sign else []) if name in many else None
        if taking is None:
            yield "", [word]
    if taking is not None:
        yield taking


class _InOrder(_Tidy, TyperGroup):
    """Commands in the order a new user needs them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


def _version(asked: bool) -> None:
    if asked:
        print(f"gbpl {__version__}")
        raise typer.Exit


def _app() -> typer.Typer:
    app = typer.Typer(
        cls=_InOrder, add_completion=True, no_args_is_help=True, pretty_exceptions_enable=False,
        context_settings=SHORT_HELP, help="Learn from a table who should get which action, and how sure that is.",
        epilog="gbpl COMMAND --help has the options and an example. Start with gbpl demo.",
    )  # fmt: skip

    @app.callback()
    def _shared(
        version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    ) -> None: ...

    for command in (demo, fit, check, decide, evaluate, compare, watch, export, report, datasets, reproduce):
        examples = "\n\n".join(f"  {line}" for line in EXAMPLES[command.__name__])
        app.command(cls=_ManyValues, epilog=f"Example:\n\n{examples}", context_settings=SHORT_HELP)(command)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `gbpl`; `argv` are the words after it, those of the process if None."""
    ready_streams()
    words = sys.argv[1:] if argv is None else list(argv)
    command = typer.main.get_command(_app())
    try:
        code = command.main(None if argv is None else words, standalone_mode=False)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # has printed the help
            raise SystemExit(WRONG) from None
        stop(_wrong(error, words), WRONG, "--json" in words)
    except typer.Abort:
        raise SystemExit(FAULT) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _wrong(error: Any, words: Sequence[str]) -> str:
    """What is wrong with the arguments of a command, the value given, and where to look."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    if "; " in message or message.endswith("?"):  # has a remedy
        return message
    param: Any = getattr(error, "param", None)
    for number, word in enumerate(words if type(error).__name__ == "BadParameter" and param is not None else ()):
        name, sign, value = word.partition("=")
        if name in param.opts:
            given = value if sign else " ".join(words[number + 1 : number + 1 + param.nargs])
            message = message if given in message else f"{message.partition(', ')[0]}, got {given!r}"
    about = error.ctx.command_path if error.ctx is not None else "gbpl"
    return f"{message}; {about} --help lists the options"
