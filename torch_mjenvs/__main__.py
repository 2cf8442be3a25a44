"""The command line: `python -m torch_mjenvs COMMAND`, or `torch_mjenvs COMMAND`."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Sequence

from torch import OutOfMemoryError

from .checks import MissingExtra, install

# Modules are imported when their command is given: training needs libraries that listing does not.
COMMANDS = {
    "list": ("commands.tasks", "the tasks, and the scores of their trained policies"),
    "play": ("commands.play", "watch a trained policy, in a window or in a film"),
    "score": ("commands.score", "returns of a trained policy, here and in Gymnasium's own task"),
    "export": ("commands.export", "write a trained policy as ONNX, TorchScript or NumPy arrays"),
    "train": ("training.train", "train a policy by PPO or SAC"),
    "bench": ("commands.bench", "steps a second on this machine"),
    "cache": ("commands.cache", "show or clear the cache of compiled kernels"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Errors that the user can mend end the process with one line, by SystemExit."""
    rows = "\n".join(f"  {name:8}{about}" for name, (_, about) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="torch_mjenvs",
        usage="torch_mjenvs COMMAND [--help] ...\n       torch_mjenvs --version",
        description=f"Train MuJoCo robots, thousands at a time, and watch them.\n\ncommands:\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="torch_mjenvs COMMAND --help says what a command takes.",
    )
    parser.add_argument("command", choices=COMMANDS, help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    if [*arguments] == ["--version"]:
        print(f"torch_mjenvs {importlib.metadata.version('torch_mjenvs')}")
        return
    given = parser.parse_args(arguments)
    module, _ = COMMANDS[given.command]
    sys.path.append(os.getcwd())  # where users' own tasks are; `python -m` looks there, the installed command does not
    try:
        found = importlib.import_module(f"{__package__}.{module}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("filelock", "matplotlib", "tqdm"):
            raise
        raise SystemExit(f"{given.command} needs {missing}: {install('train')}") from error
    try:
        found.main(given.rest)
        if sys.stdout:
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # of `torch_mjenvs list | head`, say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at its end
        raise SystemExit(141) from None
    except MissingExtra as error:
        raise SystemExit(str(error)) from error
    except (MemoryError, OutOfMemoryError) as error:  # of the machine, or of its GPU
        raise SystemExit(str(error) or "there is not enough memory") from error


if __name__ == "__main__":
    main()
