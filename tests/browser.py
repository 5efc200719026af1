"""A headless Chromium that a test drives: it opens a page, runs script in it, and waits."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = shutil.which("chromium")
SECONDS = 60


class Browser:
    """One page. Chromium takes commands from descriptor 3 and answers at 4 (--remote-debugging-pipe)."""

    def __init__(self, directory: Path):
        assert CHROMIUM is not None
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        program = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
            f"--user-data-dir={directory}/chromium",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "browser", *program],
            pass_fds=(commands, answers), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._read, self._number, self._session = b"", 0, ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def open(self, address: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=scheme)
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._call("Emulation.setDeviceMetricsOverride", **screen)
        self._call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """Return what the script's expression is, after it if it is a promise."""
        done = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until the condition, an expression of script, holds."""
        again = f"new Promise(go => {{ const look = () => {{ try {{ if ({condition}) return go(true) }} catch (e) {{}}"
        assert self.run(f"{again} setTimeout(look, 20) }}; look(); setTimeout(() => go(false), {SECONDS}000) }})"), (
            condition
        )

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self) -> bytes:
        """Return the whole page as a PNG."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        whole = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        return base64.b64decode(self._call("Page.captureScreenshot", format="png", **whole)["data"])

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        call = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            call["sessionId"] = self._session
        os.write(self._commands, json.dumps(call).encode() + b"\0")
        while True:
            *messages, self._read = self._read.split(b"\0")
            for at, message in enumerate(messages):
                answer = json.loads(message)
                if answer.get("id") == self._number:
                    self._read = b"\0".join([*messages[at + 1 :], self._read])
                    assert "error" not in answer, answer
                    return answer["result"]
            more = os.read(self._answers, 1 << 16)
            assert more, "the browser has ended"
            self._read += more
