"""A headless Chromium that tests steer: the DevTools protocol over two pipes, with the standard library alone."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Chromium reads commands from file descriptor 3 and writes answers to 4. The two are moved out of the way first.
LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 90  # seconds until an answer; on a busy machine the start alone can take half a minute


class Browser:
    """One page of a browser: `open` a file, `run` JavaScript, use the mouse, and see what went wrong."""

    def __init__(self, profile: Path):
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(theirs_in), str(theirs_out), *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs_in, theirs_out),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number, self._rest, self._session = 0, b"", ""
        self.errors: list[str] = []  # what the page complained about
        self.requests: list[str] = []  # the addresses that the page asked for
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"Chromium has not answered in {PATIENCE} seconds")
            more = os.read(self._in, 1 << 20)
            if not more:
                raise RuntimeError("Chromium has closed its pipe")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._take(message.get("method", ""), message.get("params", {}))
        return message

    def _take(self, event: str, told: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(told["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(told["args"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])

    def open(self, file: Path, query: str = "") -> None:
        """Load a file, with what stands behind a question mark in its address, and wait until it is there."""
        self._loaded = False
        self.call("Page.navigate", url=file.resolve().as_uri() + query)
        while not self._loaded:
            self._read()

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def look(self, *, width: int = 1300, height: int = 1000, dark: bool = False, scripts: bool = True) -> None:
        """The window's size, light or dark colours, and whether scripts run."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def mouse(self, kind: str, x: float, y: float, clicks: int = 0) -> None:
        """Move, press or release the mouse ("mouseMoved", "mousePressed", "mouseReleased") at a place of the window."""
        pressed = {"button": "left", "buttons": 1, "clickCount": clicks} if clicks else {}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, pointerType="mouse", **pressed)

    def picture(self, file: Path) -> None:
        """Write what the window shows as a PNG file."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
