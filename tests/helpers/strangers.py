"""Another user of the machine, who tries to run code of their own in a federation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

EVIL = """
import os, pathlib
from flwr.serverapp import ServerApp
pathlib.Path({mark!r}).write_text(str(os.getuid()))
app = ServerApp()
"""


def as_nobody(*command: str, reads_all: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as the user nobody.

    Args:
        command: the command and its arguments.
        reads_all: whether the user may read all files, as a program needs whose Python is in the home of root.
        variables: the environment.
    """
    capability = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"] if reads_all else []
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "FLWR_TELEMETRY_ENABLED": "0"}
    return subprocess.run(
        ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *capability, *command],
        env={**environment, **variables},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Stranger:
    """Is told the port and the certificate of a federation, and submits an app of its own to it."""

    def __init__(self, place: Path):
        self.home, self.mark = place / "stranger", place / "stranger" / "mark"
        app = self.home / "app"
        app.mkdir(parents=True)
        (app / "evil.py").write_text(EVIL.format(mark=str(self.mark)))
        (app / "pyproject.toml").write_text(
            '[project]\nname = "evil"\nversion = "1.0.0"\ndescription = ""\nlicense = "MIT"\ndependencies = []\n'
            '[tool.flwr.app]\npublisher = "evil"\n[tool.flwr.app.components]\n'
            'serverapp = "evil:app"\nclientapp = "evil:app"\n'
        )
        self.submitted: list[subprocess.CompletedProcess[str]] = []

    def submit(self, out: Path) -> None:
        shutil.copy(out / "server" / "server.crt", self.home)
        config = (out / "flower" / "config.toml").read_text()
        config = config.replace(str(out / "server"), str(self.home))  # its own copy of the certificate
        (self.home / "config.toml").write_text(config)
        subprocess.run(["chown", "-R", "nobody:nogroup", str(self.home)], check=True)
        self.submitted.append(self.calls("flwr", "run", str(self.home / "app"), "here"))

    def calls(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of Flower with this stranger's own configuration."""
        return as_nobody(*command, reads_all=True, FLWR_HOME=str(self.home), HOME=str(self.home))
