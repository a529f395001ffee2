"""Screenshots of all pages of the site, wide and on a phone, light and dark: ``python docs/screenshots.py FOLDER``.

It also prints each page that scrolls sideways and each image that is not loaded. Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pictures import BROWSERS, HERE

VIEWS = [(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")]
FLAGS = ["--headless", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND"]
FORGET = "localStorage.clear()"  # or the theme keeps the colours that it showed first
MEASURE = """new Promise(done => setTimeout(done, 300)).then(() => ({
  width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight,
  missing: [...document.images].filter(image => !image.naturalWidth).map(image => image.src)}))"""
"""Runs in a page after its own scripts. Returns the size of the page, and the images that are not loaded."""


class Browser:
    """A browser with one page, controlled with the Chrome DevTools Protocol: it reads file 3 and writes file 4."""

    def __init__(self, program: str, profile: str) -> None:
        own = [program, f"--user-data-dir={profile}", *["--no-sandbox"] * (os.geteuid() == 0)]
        command = ["/bin/sh", "-c", 'exec "$@" --remote-debugging-pipe 3<&0 4>&1', "sh", *own, *FLAGS]
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL)  # noqa: S603
        self.session: dict[str, Any] = {}
        target = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", **target, flatten=True)
        self.call("Page.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=FORGET)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        message = {"id": 1, "method": method, "params": params, **self.session}
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        return self.wait("id", 1)["result"]

    def wait(self, key: str, value: object) -> dict[str, Any]:
        """The next message of the browser with this value. Messages end with a zero byte."""
        while True:
            message = json.loads(b"".join(iter(lambda: self.process.stdout.read(1) or b"\0", b"\0")))
            if message.get(key) == value:
                return message

    def photograph(self, page: Path, width: int, scheme: str, path: Path) -> list[str]:
        """Writes a screenshot of the page (a browser takes 16,000 pixels at most), and returns what is wrong with the page."""
        window = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **window)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=page.as_uri())
        self.wait("method", "Page.loadEventFired")
        script = {"expression": MEASURE, "awaitPromise": True, "returnByValue": True}
        found = self.call("Runtime.evaluate", **script)["result"]["value"]
        clip = {"x": 0, "y": 0, "width": width, "height": min(found["height"], 16000), "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))
        wide = [f"the page is {found['width']} pixels wide"] * (found["width"] > width)
        return wide + [f"not loaded: {image}" for image in found["missing"]]


def main() -> None:
    if not (program := next(filter(None, map(shutil.which, BROWSERS)), "")):
        return print(f"No screenshots are made: there is no {BROWSERS[0]} here to show a page")
    (folder := Path(sys.argv[1])).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as site, tempfile.TemporaryDirectory() as profile:
        build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", site]
        subprocess.run(build, cwd=HERE.parent, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)  # noqa: S603
        browser = Browser(program, profile)
        for page in sorted(Path(site).rglob("index.html")):
            place = page.parent.relative_to(site).parts or ("home",)
            for width, scheme in VIEWS * ("source" not in place):  # those pages are texts of files
                name = f"{'-'.join(place)}-{width}-{scheme}"
                for problem in browser.photograph(page, width, scheme, folder / f"{name}.png"):
                    print(f"{name}: {problem}", flush=True)
        browser.process.communicate()  # a browser without commands ends


if __name__ == "__main__":
    main()
