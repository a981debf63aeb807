"""A headless Chromium, driven by chromedriver over the WebDriver protocol."""

import base64
import shutil
import socket
import subprocess
from collections.abc import Sequence
from typing import Any, Self

import pytest

from tests.support import until

httpx: Any = pytest.importorskip("httpx2")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
INSTALLED = CHROMIUM is not None and DRIVER is not None
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key that the protocol gives to elements


class Chromium:
    """A browser window; a context manager."""

    def __init__(self, *arguments: str, mobile: bool = False) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            [str(DRIVER), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        options: dict[str, Any] = {
            "binary": CHROMIUM,
            "args": ["--headless=new", "--no-sandbox", "--window-size=1280,860", *arguments],
        }
        if mobile:
            metrics = {"width": 390, "height": 844, "pixelRatio": 2, "touch": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
        self._session = ""
        until(self._is_ready)
        answer = self._call("POST", "/session", capabilities={"alwaysMatch": wanted})
        self._session = f"/session/{answer['sessionId']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._call("DELETE", "")
        self._driver.terminate()
        self._driver.wait()

    def open(self, address: str) -> None:
        self._call("POST", "/url", url=address)

    def run(self, script: str, *args: Any) -> Any:
        """Run JavaScript; a promise is waited for."""
        return self._call("POST", "/execute/sync", script=script, args=args)

    def click(self, css: str) -> None:
        self._call("POST", f"/element/{self._find(css)}/click")

    def type(self, css: str, words: str) -> None:
        """Type; for a file input, the files' names, one a line."""
        self._call("POST", f"/element/{self._find(css)}/value", text=words)

    def wait_for(self, script: str, seconds: float = 60) -> Any:
        """Wait until a JavaScript expression is true, and return it."""
        return until(lambda: self.run(f"return {script}"), seconds)

    def new_tab(self) -> str:
        handle: str = self._call("POST", "/window/new", type="tab")["handle"]
        self.switch(handle)
        return handle

    def switch(self, handle: str) -> None:
        self._call("POST", "/window", handle=handle)

    @property
    def tab(self) -> str:
        handle: str = self._call("GET", "/window")
        return handle

    def devtools(self, command: str, **params: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", cmd=command, params=params)

    def complaints(self) -> list[str]:
        """What the console has said since it was asked before."""
        return [entry["message"] for entry in self._call("POST", "/se/log", type="browser")]

    def drop(self, css: str, files: Sequence[tuple[str, bytes]]) -> None:
        """Drop files on an element as a person would."""
        self.run(
            """
            const [target, files] = arguments, data = new DataTransfer();
            for (const [name, text] of files) data.items.add(new File(
              [Uint8Array.from(atob(text), (char) => char.charCodeAt(0))], name));
            document.querySelector(target).dispatchEvent(new DragEvent("drop",
              { dataTransfer: data, bubbles: true, cancelable: true }));
            """,
            css,
            [[name, base64.b64encode(data).decode()] for name, data in files],
        )

    def drag(self, css: str, *places: tuple[float, float]) -> None:
        """Press the mouse at a place of an element, in shares of it, move it to others, let go."""
        edge = "const r = document.querySelector(arguments[0]).getBoundingClientRect();"
        left, top, wide, high = self.run(f"{edge} return [r.x, r.y, r.width, r.height]", css)
        kinds = ["mousePressed", *["mouseMoved"] * (len(places) - 1), "mouseReleased"]
        for kind, (x, y) in zip(kinds, [*places, places[-1]], strict=True):
            at = {"x": left + x * wide, "y": top + y * high, "button": "left", "clickCount": 1}
            held = int(kind != "mouseReleased")
            self.devtools("Input.dispatchMouseEvent", type=kind, buttons=held, **at)

    def _find(self, css: str) -> str:
        found = self._call("POST", "/element", using="css selector", value=css)
        return str(found[ELEMENT])

    def _is_ready(self) -> bool:
        try:
            return bool(self._call("GET", "/status")["ready"])
        except httpx.TransportError:
            return False

    def _call(self, method: str, address: str, **what: Any) -> Any:
        content = what if method == "POST" else None
        value = self._http.request(method, self._session + address, json=content).json()["value"]
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{value['error']}: {value['message']}")
        return value
