"""``python -m rltraining_trainer.evaluation.process FD PARENT``: plays what it is ordered to over the socket ``FD``.

It ends with its parent, the learner: by the kernel's signal on Linux, and everywhere when its socket is closed.
Until it has given way to others it imports nothing that takes long.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

NICE = 10
"""What the command `nice` adds: beside a learner that never waits for data this leaves a tenth of a core, where the lowest
priority would leave a hundredth, and the result of an evaluation would come hours late."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> int:
    """Serves orders until the learner is gone."""
    channel, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    _end_with(parent)
    _give_way()
    # The learner ends this process when it has written what it leaves. A signal to the whole group is for the learner.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    _serve(channel)
    return 0


def _serve(channel: socket.socket) -> None:
    import logging

    import torch
    from rltraining_api.contract import ENV_CODE_DIR, ENV_MANIFEST_DIR

    from rltraining_trainer.evaluation.answer import answer
    from rltraining_trainer.evaluation.messages import Order

    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s evaluation: %(message)s",
        force=True,
    )
    sys.path += filter(None, map(os.environ.get, (ENV_CODE_DIR, ENV_MANIFEST_DIR)))
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    orders = _read(channel)
    while True:
        reply = answer(Order.model_validate_json(orders.get()))
        channel.sendall(reply.model_dump_json().encode() + b"\n")


def _read(channel: socket.socket) -> queue.SimpleQueue[bytes]:
    """Reads lines in a thread, which ends the process, whatever it plays, when the learner has closed its end."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        with channel.makefile("rb") as file:
            for line in file:
                lines.put(line)
        os._exit(0)

    threading.Thread(target=read, name="orders", daemon=True).start()
    return lines


def _end_with(parent: int) -> None:
    """Has the kernel kill this process when the learner dies, even inside of user code that holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _give_way() -> None:
    """Takes a lower priority for the CPU than the learner, and the first place where memory runs out."""
    with suppress(OSError):
        os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    sys.exit(main())
