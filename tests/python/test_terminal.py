"""What a person sees who starts the gateway at a terminal."""

import os
import pty
import re
import select
import signal
import time

import httpx
import pytest
from conftest import BINARY

SERVES = re.compile(rb"listening on (http://127\.0\.0\.1:\d+)")


def until(terminal, pattern):
    """What the terminal shows up to the pattern."""
    shown, end = b"", time.monotonic() + 30
    while not (found := re.search(pattern, shown)):
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 1)[0]:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # The other side is gone.
                piece = b""
            assert piece, shown
            shown += piece
    return shown, found


@pytest.mark.parametrize(
    ("variables", "is_coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_it_starts_at_a_terminal_and_tells_of_requests(tmp_path, variables, is_coloured):
    child, terminal = pty.fork()
    if child == 0:
        environment = {"PATH": os.environ["PATH"], **variables}
        words = [BINARY, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
        os.execve(BINARY, [str(word) for word in words], environment)
    try:
        shown, found = until(terminal, SERVES)
        assert b"tracing" not in shown and b"panicked" not in shown
        address = found.group(1).decode()
        assert httpx.post(f"{address}/v1/messages", json={}).status_code == 401
        # One line of text, with or without colours.
        line, _ = until(terminal, rb"INFO[^\n]*POST[^\n]*\n")
        assert (b"\x1b[" in line) == is_coloured, line
        assert b'{"ts"' not in line
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)
