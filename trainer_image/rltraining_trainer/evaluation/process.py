"""``python -m rltraining_trainer.evaluation.process FD PARENT``: plays policies for a learner.

Reads orders from the socket ``FD``. The process ends with its parent, the learner with process id
``PARENT``: by a signal of the kernel on Linux, and on any system when the socket closes. Slow
imports happen only after the process has lowered its priority.
"""

from __future__ import annotations

import os
import queue
import socket
import threading

from rltraining_trainer.process import attach_to_learner, prepare_process


def main() -> None:
    """Serves orders until the learner ends."""
    channel = attach_to_learner()

    import torch

    from rltraining_trainer.evaluation.answer import answer
    from rltraining_trainer.evaluation.messages import Order

    prepare_process("evaluation")
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    orders = _read(channel)
    while True:
        reply = answer(Order.model_validate_json(orders.get()))
        channel.sendall(reply.model_dump_json().encode() + b"\n")


def _read(channel: socket.socket) -> queue.SimpleQueue[bytes]:
    """Reads lines in a thread, which ends the process when the learner closes the socket."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        with channel.makefile("rb") as file:
            for line in file:
                lines.put(line)
        os._exit(0)

    threading.Thread(target=read, name="orders", daemon=True).start()
    return lines


if __name__ == "__main__":
    main()
