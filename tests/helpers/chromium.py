"""A headless Chromium for tests, driven through its DevTools protocol over a pair of pipes: no port, no library.

https://chromedevtools.github.io/devtools-protocol/ describes the messages; each is JSON and ends with a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Self

_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
_INSTALL: Final = "apt-get install --no-install-recommends chromium"
_PATIENCE_S: Final = 120.0
_LOUD: Final = ("warning", "error", "assert")

# --no-sandbox: root in a container has no other choice, and we only open our own files
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def lacking() -> str:
    """Return why there is no browser here and which command would help; nothing if there is one."""
    return "" if _program() else f"no Chromium found; as root: {_INSTALL}"


def _program() -> str | None:
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


def _pipe() -> tuple[int, int]:
    """Make a pipe whose ends are not 3 or 4, which are to be taken."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


# Items that stick out to the right, unless they are inside something that scrolls or hides
STICKING_OUT = """
[...document.querySelectorAll('body *')].filter(item => {
  const box = item.getBoundingClientRect();
  if (box.width === 0 || box.right <= document.documentElement.clientWidth + 1) return false;
  for (let up = item.parentElement; up; up = up.parentElement)
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return false;
  return !item.closest('svg') || item.matches('svg'); // of a picture only itself
}).map(item => item.outerHTML.slice(0, 120))
"""
# All words that are shown, with the contrast between them and what is behind them
FAINT = """
(() => {
  const parts = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (item) => {
    for (let up = item; up; up = up.parentElement) {
      const colour = parts(getComputedStyle(up).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return light(colour);
    }
    return 1;
  };
  return [...document.querySelectorAll('body *')].filter((item) => {
    const words = [...item.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!words || !item.getBoundingClientRect().width || item.closest('.unseen')) return false;
    const pair = [light(parts(getComputedStyle(item).color)), ground(item)].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05) < (item.matches('[aria-hidden]') ? 3 : 4.5); // marks are no words
  }).map((item) => item.outerHTML.slice(0, 120));
})()
"""


class Chromium:
    """A running browser; use it in a ``with`` block and ask it for pages."""

    def __enter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(prefix="bftrain-chromium-", ignore_cleanup_errors=True)
        read_end, self._to = _pipe()
        self._from, write_end = _pipe()
        # The browser reads commands from descriptor 3 and writes to 4, so a shell puts the pipes there
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{read_end} 4>&{write_end}',
                "bash",
                _program() or "chromium",
                *_OPTIONS,
                f"--user-data-dir={self._profile.name}",
            ],
            pass_fds=(read_end, write_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        self._pending = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(timeout=10)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._to)
            os.close(self._from)
            self._profile.cleanup()

    def open(self, address: str, *, width: int, height: int = 900, dark: bool = False, scripts: bool = True) -> Page:
        """Open ``address`` in a window of ``width`` x ``height`` pixels and wait until it is loaded.

        ``dark`` is what the reader's system prefers; a page may follow it. ``scripts``: whether the page's own run.
        """
        return Page(self, address, width, height, dark=dark, scripts=scripts)

    def call(self, method: str, session: str | None = None, **params: object) -> dict[str, Any]:
        """Send one command and wait for its answer; what happens meanwhile is kept in ``events``."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait_for(self, event: str, session: str) -> None:
        """Wait until ``event`` happened in ``session``."""
        deadline = time.monotonic() + _PATIENCE_S
        while not any(seen.get("method") == event for seen in self.of(session)):
            self.events.append(self._receive(deadline))

    def forget(self, event: str, session: str) -> None:
        """Forget that ``event`` happened in ``session``, to wait for it again."""
        mine = self.of(session)
        self.events = [seen for seen in self.events if seen not in mine or seen.get("method") != event]

    def of(self, session: str) -> list[dict[str, Any]]:
        """What happened in ``session`` so far."""
        return [event for event in self.events if event.get("sessionId") == session]

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"Chromium said nothing for {_PATIENCE_S:g} s")
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise EOFError("Chromium ended")
            self._pending += chunk
        message, _, self._pending = self._pending.partition(b"\0")
        received: dict[str, Any] = json.loads(message)
        return received


class Page:
    """An open page."""

    def __init__(self, browser: Chromium, address: str, width: int, height: int, *, dark: bool, scripts: bool) -> None:
        self._browser = browser
        self._scripts = scripts
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Performance"):  # which count from now on
            self._call(f"{domain}.enable")
        self._call("Network.enable")
        self.resize(width, height)
        self.prefer("dark" if dark else "light")
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._call("Page.navigate", url=address)
        browser.wait_for("Page.loadEventFired", self._session)
        self.frames()

    def _call(self, method: str, **params: object) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - a page gives what it likes
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Every warning and error on the console, every uncaught exception, every request that failed."""
        found = []
        for event in self._browser.of(self._session):
            params = event["params"]
            match event["method"]:
                case "Runtime.consoleAPICalled" if params["type"] in _LOUD:
                    words = (str(item.get("value", item.get("description"))) for item in params["args"])
                    found.append(f"console {params['type']}: {' '.join(words)}")
                case "Runtime.exceptionThrown":
                    found.append(f"exception: {params['exceptionDetails']}")
                case "Log.entryAdded" if params["entry"]["level"] in _LOUD:
                    found.append(f"log {params['entry']['level']}: {params['entry']['text']}")
                case "Network.loadingFailed":
                    found.append(f"not loaded: {params['errorText']}")
        return found

    def requests(self) -> list[str]:
        return [
            event["params"]["request"]["url"]
            for event in self._browser.of(self._session)
            if event["method"] == "Network.requestWillBeSent"
        ]

    def wait_until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.evaluate(f"!!({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not true after {_PATIENCE_S:g} s: {condition}")
            self.frames()

    def frames(self) -> None:
        """Wait until all that was asked for before the next frame has been drawn."""
        if not self._scripts:  # then nothing can be waited for, but nothing is on its way either
            self.evaluate("document.body.offsetHeight")
            return
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        """Let the mouse do ``move``, ``press`` or ``release`` at a place of the window."""
        names = {"move": "mouseMoved", "press": "mousePressed", "release": "mouseReleased"}
        button = {} if kind == "move" else {"button": "left", "clickCount": 1}
        self._call("Input.dispatchMouseEvent", type=names[kind], x=x, y=y, **{**button, **more})

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one place of the window, move it to another, and let go."""
        self.mouse("move", *begin)
        self.mouse("press", *begin)
        for step in range(1, 6):
            x, y = (a + (b - a) * step / 5 for a, b in zip(begin, end, strict=True))
            self.mouse("move", x, y, buttons=1)
        self.mouse("release", *end)

    def key(self, key: str, text: str = "") -> None:
        """Press and release a key by its name, such as ``Tab``; ``text`` is what it types."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowUp": 38, "ArrowDown": 40}
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self._call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes.get(key, 0), **typed)

    def write(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def to_front(self) -> None:
        """Show this page before others of the same browser: those behind it draw no frames."""
        self._call("Page.bringToFront")

    def prefer(self, scheme: str, media: str = "") -> None:
        """Let the reader's system prefer ``light`` or ``dark`` from now on; ``media`` may be ``print``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", media=media, features=features)

    def resize(self, width: int, height: int = 900) -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def busy_s(self) -> float:
        """Return the seconds of a core that the page's main thread took so far, other programs not counted."""
        metrics = {one["name"]: one["value"] for one in self._call("Performance.getMetrics")["metrics"]}
        return float(metrics["ThreadTime"])

    def reload(self) -> None:
        """Load the page again, and wait until it is."""
        self._browser.forget("Page.loadEventFired", self._session)
        self._call("Page.reload")
        self._browser.wait_for("Page.loadEventFired", self._session)
        self.frames()

    def html(self) -> str:
        """Return the document as it stands after scripts ran."""
        return str(self.evaluate("document.documentElement.outerHTML"))

    def screenshot(self, path: Path) -> Path:
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path
