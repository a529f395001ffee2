"""``rltraining-trainer learner|sampler|replay``: one program, three roles."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence

import torch
from rltraining_api.contract import ExitCode, LearnerReport

from rltraining_trainer.errors import BadConfiguration, TrainerError, one_line
from rltraining_trainer.process import end_soon, prepare_process
from rltraining_trainer.roles.context import Context, read_context
from rltraining_trainer.roles.entry_point import run_algorithm
from rltraining_trainer.roles.resolve import resolve_defaults
from rltraining_trainer.roles.termination import write_termination_message
from rltraining_trainer.transport import Stopped, Unguarded, on_stop_signal
from rltraining_trainer.tunnel.preload import LIBRARY, is_preloaded
from rltraining_trainer.tunnel.supervisor import TunnelProcess

TERMINATED = 128 + signal.SIGTERM
"""Exit code of a process that ended on request, as shells and kubelets report it."""
SAMPLER_GRACE = 0.8
"""Seconds for a sampler to end in order after a signal. Then the process exits immediately."""

_LOG = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one role to its end. Returns the exit code (see ``rltraining_api.contract.ExitCode``)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments not in (["learner"], ["sampler"], ["replay"]):
        print(
            "usage: rltraining-trainer learner|sampler|replay\n\n"
            "Started by the operator, which passes the other settings in the environment."
        )
        return 0 if arguments in (["-h"], ["--help"]) else 2
    prepare_process("%(name)s")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    keep_memory()
    report: LearnerReport | None = None
    tunnel: TunnelProcess | None = None
    try:
        context = read_context()
        role = arguments[0]
        _stop_on_signal(context, force=role != "learner")
        if context.tls_port is not None:
            tunnel = _start_tunnel(context.tls_port, context.token)
        context = resolve_defaults(context)
        if role == "learner":
            _prepare_processors(context.job.spec.learner.threads)
        code, report = run_algorithm(context)
        reason, text = "Completed", (report and report.stop_reason) or ""
    except Stopped:
        code = TERMINATED
        reason, text = "Terminated", "the process was asked to end"
    except TrainerError as error:
        code = error.exit_code
        _LOG.error("%s", error)
        reason, text = error.reason, str(error)
    except Unguarded as error:  # the image lacks the gate, so a restart cannot help
        code = ExitCode.BAD_CONFIGURATION
        _LOG.error("%s", error)
        reason, text = "RpcUnguarded", str(error)
    except Exception as error:
        code = ExitCode.ERROR
        _LOG.exception("this is a bug, or something that a restart may fix")
        reason, text = "Error", f"{one_line(error)}\n{traceback.format_exc()}"
    write_termination_message(reason, text, report)
    if tunnel is not None:
        tunnel.close()
    end_soon(int(code))
    return int(code)


def _stop_on_signal(context: Context, *, force: bool) -> None:
    """Makes SIGTERM and SIGINT set ``context.stopping``. With ``force`` the process exits after SAMPLER_GRACE."""

    def stop() -> None:
        context.stopping.set()
        if force:
            time.sleep(SAMPLER_GRACE)
            os._exit(TERMINATED)

    on_stop_signal(stop)


def _start_tunnel(port: int, token: str) -> TunnelProcess:
    if not is_preloaded():
        raise BadConfiguration(
            f"spec.encryption needs {LIBRARY}, which this process has not loaded: start rltraining-trainer, and if the file is "
            "missing, install gcc where the image is built and install the trainer again"
        )
    return TunnelProcess(port, token)


def _prepare_processors(threads: int | None) -> None:
    """Sets the number of torch's threads, and logs the learner's processors."""
    if threads is not None:
        torch.set_num_threads(threads)
    if torch.cuda.is_available():
        _LOG.info("a GPU is visible: %s", torch.cuda.get_device_name())
    else:
        _LOG.info("no GPU is visible. Threads that compute: %d", torch.get_num_threads())


def keep_memory() -> None:
    """Makes glibc keep freed memory instead of returning it to the system.

    Each step allocates tensors of the same sizes, and faulting their pages in again took up to half of a step (tests/bench).
    """
    mmap_threshold, trim_threshold, top_pad = -3, -1, -2
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # without glibc there is nothing to tune
        return
    mallopt(mmap_threshold, 32 << 20)
    mallopt(trim_threshold, 512 << 20)
    mallopt(top_pad, 64 << 20)


if __name__ == "__main__":
    sys.exit(main())
