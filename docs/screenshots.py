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
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from pictures import BROWSERS, HERE

VIEWS = [(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")]
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
FLAGS = ["--headless", "--disable-gpu", "--hide-scrollbars", "--force-prefers-reduced-motion", OFFLINE]
MEASURE = """new Promise(done => document.readyState == "complete" ? done() : addEventListener("load", done))
.then(() => new Promise(done => setTimeout(done, 400))).then(() => ({
  width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight,
  missing: [...document.images].filter(image => !image.naturalWidth).map(image => image.src)}))"""

PAINTED = (
    "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 200))))"
)


class Browser:
    """A browser (with the Chrome DevTools Protocol), with empty storage: there the theme keeps the last colours."""

    def __init__(self, program: str, profile: str) -> None:
        own = [program, f"--user-data-dir={profile}", *["--no-sandbox"] * (os.geteuid() == 0)]
        command = ["/bin/sh", "-c", 'exec "$@" --remote-debugging-pipe 3<&0 4>&1', "sh", *own, *FLAGS]
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL)  # noqa: S603
        self.session: dict = {}
        target = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", **target, flatten=True)
        self.call("Page.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source="Storage.prototype.getItem = () => null")

    def call(self, method: str, **params: object) -> dict:
        message = {"id": 1, "method": method, "params": params, **self.session}
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        answer: dict = {}
        while "id" not in answer:  # or it is an event
            answer = json.loads(b"".join(iter(lambda: self.process.stdout.read(1) or b"\0", b"\0")))
        return answer["result"]

    def photograph(self, url: str, width: int, scheme: str, path: Path) -> list[str]:
        """Writes a screenshot of a page (a browser takes 16,000 pixels at most). Returns the problems of the page."""
        window = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **window)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        script = {"expression": MEASURE, "awaitPromise": True, "returnByValue": True}
        found = self.call("Runtime.evaluate", **script)["result"]["value"]
        # Show the whole page in the window. A busy browser leaves parts empty that are outside of the window.
        window["height"] = min(found["height"], 16000)
        self.call("Emulation.setDeviceMetricsOverride", **window)
        self.call("Runtime.evaluate", expression=PAINTED, awaitPromise=True)
        shot = self.call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(shot["data"]))
        return ["too wide"] * (found["width"] > width) + [f"not loaded: {src}" for src in found["missing"]]


def main() -> None:
    if not (program := next(filter(None, map(shutil.which, BROWSERS)), "")):
        return print(f"No screenshots are made: there is no {BROWSERS[0]} here to show a page")
    (folder := Path(sys.argv[1])).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as site, tempfile.TemporaryDirectory() as profile:
        build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", site]
        subprocess.run(build, cwd=HERE.parent, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)  # noqa: S603
        SimpleHTTPRequestHandler.log_message = lambda *_: None
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=site))
        Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(program, profile)
        for page in sorted(Path(site).rglob("index.html")):
            place = page.parent.relative_to(site).parts
            url = "/".join((f"http://127.0.0.1:{server.server_port}", *place, ""))
            for width, scheme in VIEWS * ("source" not in place):  # those pages are texts of files
                name = f"{'-'.join(place) or 'home'}-{width}-{scheme}"
                for problem in browser.photograph(url, width, scheme, folder / f"{name}.png"):
                    print(f"{name}: {problem}", flush=True)
        browser.process.communicate()  # a browser without commands ends


if __name__ == "__main__":
    main()
