"""Implements the program `rltraining-operator`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from rltraining_operator.errors import ClusterError
from rltraining_operator.kube.app import StartError, run_operator
from rltraining_operator.kube.config import Config, ConfigError, load_config
from rltraining_operator.kube.logs import set_up_logging

log = logging.getLogger("rltraining_operator")


def main() -> None:
    """Runs until SIGTERM or SIGINT. Exit code 0: stopped by a signal. 1: cannot work. 2: wrong
    usage."""
    try:
        config = _config(_parse())
    except ConfigError as error:
        sys.exit(f"rltraining-operator: {error}")
    set_up_logging(config.log)
    try:
        asyncio.run(run_operator(config))
    except (StartError, ClusterError) as error:
        log.error("%s", error)  # noqa: TRY400 - a sentence; tracebacks are for bugs
        sys.exit(1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rltraining-operator",
        description="Runs the RLTrainingJobs of the cluster that the pod's service account or the kubeconfig names.",
    )
    parser.add_argument(
        "--config", type=Path, help="YAML file, as the Helm chart writes it; other options override it"
    )
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="serve the jobs of this namespace only; may be repeated",
    )
    parser.add_argument("--trainer-image", help="image of jobs that name none")
    parser.add_argument("--http-port", type=int, help="port of /healthz, /readyz and /metrics")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", choices=["text", "json"])
    parser.add_argument("--no-leader-election", action="store_true", help="this is the only replica")
    return parser.parse_args()


def _config(options: argparse.Namespace) -> Config:
    config = load_config(options.config)
    update: dict[str, object] = {}
    if options.namespace:
        update["namespaces"] = tuple(options.namespace)
    if options.trainer_image:
        update["trainer_image"] = options.trainer_image
    if options.http_port:
        update["http_port"] = options.http_port
    log_update = {"level": options.log_level, "format": options.log_format}
    update["log"] = config.log.model_copy(update={k: v for k, v in log_update.items() if v})
    if options.no_leader_election:
        update["leader_election"] = config.leader_election.model_copy(update={"enabled": False})
    return config.model_copy(update=update)


if __name__ == "__main__":
    main()
