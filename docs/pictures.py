"""Pictures of the software in docs/images/, made by running it: ``make pictures`` (with the curves), or some of them:

python docs/pictures.py [run evaluate report chaos get describe]

The pictures of kubectl need a cluster. They are therefore drawn from recorded text, docs/recordings/kubectl-NAME.txt,
which contains commands after ``$`` and their output. The text was recorded in a cluster of ``make cluster-up`` with the
operator (docs/install.md) and two jobs, one of which names an image that does not exist:

rltrain submit cartpole-impala --name no-image --set image=REGISTRY/rltraining-trainer:0.1.1
rltrain submit cartpole-impala --set stop.meanReturn=null --set stop.environmentSteps=6e6 --set sampler.replicas=2

The first ``get`` ran while ``cartpole`` trained, the other commands after its end. Only spaces at the ends of lines are
removed.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from termios import TIOCSWINSZ

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
WIDTH, HEIGHT = 100, 40
TERMINALS = {
    "run": "rltrain run examples/cartpole-impala.yaml --workdir runs/first",
    "evaluate": "rltrain evaluate runs/first/policy --episodes 100",
}
"""Commands by the name of their picture, in the order in which they need each other."""
REPORT = "rltrain report runs/first --output report.html"
CHAOS = (
    "rltrain chaos zoo/lunarlander-ppo --for 2m --kill sampler=7s --kill learner=20s --set checkpoint.everySeconds=5 "
    "--workdir runs/chaos"
)
RECORDED = ("get", "describe")
"""Pictures of terminals that are drawn from recordings."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH_OF_PAGE, HEIGHT_OF_PAGE = 1100, 1500
"""The part of a page that is shown, in pixels."""
CONTROL = re.compile(r"\x1b\[(?P<number>\d*)(?P<code>[AK])|\x1b\[\?\d+[hl]|\r|(?P<newline>\n)")
"""What moves or erases, of all that a live view writes; colours are text to us."""
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Rich's pictures fetch a font from elsewhere: a reader's own will do."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [*TERMINALS, "report", "chaos", *RECORDED]
    parser.add_argument("picture", nargs="*", choices=[*every, []], help="all if none is named")
    wanted = parser.parse_args().picture or every
    for name in RECORDED:
        if name in wanted:
            path = HERE / "images" / f"kubectl-{name}.svg"
            recorded = HERE / "recordings" / f"kubectl-{name}.txt"
            path.write_text(draw(name, [*session(recorded.read_text()), Text()], "kubectl"))
            print(path.relative_to(HERE.parent), flush=True)
    if "chaos" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            output(CHAOS, Path(folder))
            page = Path(folder) / "runs" / "chaos" / "report.html"
            photograph(page, HERE / "images" / "chaos.png", height=990)
    if not {*TERMINALS, "report"} & {*wanted}:
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(HERE.parent / "examples")
        for name, command in TERMINALS.items():
            shown = screen(output(command, Path(folder)))
            if name in wanted:
                path = HERE / "images" / f"terminal-{name}.svg"
                path.write_text(picture(name, command, shown))
                print(path.relative_to(HERE.parent), flush=True)
        if "report" in wanted:
            output(REPORT, Path(folder))
            photograph(Path(folder) / "report.html", HERE / "images" / "report.png")


def output(command: str, folder: Path) -> str:
    """All that a command writes to a terminal. It must succeed."""
    programs = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "COLUMNS": str(WIDTH),
        "LINES": str(HEIGHT),
    }
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = subprocess.Popen(  # noqa: S603 - our own program and arguments
        shlex.split(command), cwd=folder, env=environment, stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    written = bytearray()
    while True:
        try:
            written += (read := os.read(ours, 65536))
        except OSError:  # all writers have closed it
            break
        if not read:
            break
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"{command} ended with {process.returncode}:\n{written.decode()}")
    return written.decode()


def screen(written: str) -> str:
    """The lines that stay on a terminal, with their colours, after everything was drawn and drawn over. A live view erases
    whole lines before it writes them again, so a line contains the text since the last time that it was erased."""
    lines, row, at = [""], 0, 0
    for control in CONTROL.finditer(written):
        lines[row] += written[at : control.start()]
        at = control.end()
        if control["newline"]:
            row += 1
            if row == len(lines):
                lines.append("")
        elif control["code"] == "A":
            row = max(0, row - int(control["number"] or 1))
        elif control["code"] == "K":
            lines[row] = ""
    lines[row] += written[at:]
    return "\n".join(lines).rstrip()


def picture(name: str, command: str, shown: str) -> str:
    """An SVG of a terminal with the command and what it has shown."""
    return draw(name, [prompt(command), Text.from_ansi(shown)], "rltrain")


def prompt(command: str) -> Text:
    """A command after its prompt."""
    return Text.assemble(("$ ", "dim"), (command, "bold"))


def session(recorded: str) -> list[Text]:
    """The lines of a recording: commands after ``$``, and their output."""
    return [prompt(line[2:]) if line.startswith("$ ") else Text(line) for line in recorded.splitlines()]


def draw(name: str, lines: Sequence[Text], title: str) -> str:
    """An SVG of a terminal with these lines."""
    console = Console(
        record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    for line in lines:
        console.print(line)
    return FONT.sub("", console.export_svg(title=title, unique_id=f"{title}-{name}")) + "\n"


def photograph(page: Path, path: Path, height: int = HEIGHT_OF_PAGE) -> None:
    """The upper part of a page, as a browser shows it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(
            f"{path.relative_to(HERE.parent)} stays as it is: there is no {BROWSERS[0]} here to show a page"
        )
        return
    options = [f"--screenshot={path}", f"--window-size={WIDTH_OF_PAGE},{height}", "--hide-scrollbars"]
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # which it refuses to root
    command = [
        browser,
        "--headless",
        "--disable-gpu",
        "--virtual-time-budget=3000",
        *sandbox,
        *options,
        page.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)  # noqa: S603 - our own page
    print(path.relative_to(HERE.parent), flush=True)


if __name__ == "__main__":
    main()
