"""helm and kubectl parse the commands of the pages. `--help` keeps them from doing anything."""

from __future__ import annotations

import subprocess
from pathlib import Path

from docs_pages import commands


def test_helm_and_kubectl_take_the_commands_of_the_pages(built: Path) -> None:
    found = {
        tuple(words): command
        for command in commands()
        for words in command.simple()
        if words[0] in ("helm", "kubectl") and words[1] != "rltrain"
    }
    assert found
    refused = []
    for (program, *arguments), command in found.items():
        line = [built / program, *arguments, "--help"]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            refused.append(f"{command}: {done.stderr.splitlines()[0]}")
    assert not refused, "\n".join(refused)
