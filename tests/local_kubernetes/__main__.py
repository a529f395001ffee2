"""``python -m tests.local_kubernetes prepare|up|images|down|status|kubeconfig``"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.local_kubernetes import bring_up, debian, images, programs, take_down
from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.places import Places
from tests.local_kubernetes.requirements import requirements


def main() -> int:
    arguments = _arguments()
    places = Places(run=arguments.dir) if arguments.dir else Places()
    try:
        return int(arguments.verb(places, arguments) or 0)
    except ClusterError as error:
        print(f"local_kubernetes: {error}", file=sys.stderr)
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.local_kubernetes",
        description="A Kubernetes for tests, compiled from Go modules",
    )
    parser.add_argument(
        "--dir", type=Path, help="directory of the cluster's state (default: $RLTRAINING_TEST_DIR)"
    )
    verbs = parser.add_subparsers(required=True, metavar="verb")
    prepare = verbs.add_parser("prepare", help="compile the programs and build the images that tests need")
    prepare.set_defaults(verb=_prepare)
    up = verbs.add_parser("up", help="start what does not run yet")
    up.add_argument(
        "--mode", choices=bring_up.MODES, default="node", help="api: without pods; node: with pods"
    )
    up.add_argument("--fake-nodes", type=int, default=0, metavar="N", help="nodes simulated by kwok")
    up.set_defaults(verb=_up)
    add = verbs.add_parser("images", help="build the images, add them to the node, and print Helm's options")
    add.set_defaults(verb=_images)
    down = verbs.add_parser("down", help="remove everything but the caches")
    down.add_argument("--purge", action="store_true", help="remove the caches too: programs and images")
    down.set_defaults(verb=_down)
    verbs.add_parser("status", help="list the programs and their state").set_defaults(verb=_status)
    kubeconfig = verbs.add_parser("kubeconfig", help="print the path of the kubeconfig file")
    kubeconfig.set_defaults(verb=_kubeconfig)
    return parser.parse_args()


def _prepare(places: Places, arguments: argparse.Namespace) -> None:
    """Compiles the programs while the images are built. Prints what this machine cannot run, and why."""
    del arguments
    reasons = requirements(places)
    for mode, what in (("api", "tests that need an API server"), ("node", "tests that need pods")):
        if reasons[mode]:
            print(f"local_kubernetes: SKIPPED: {what}: {reasons[mode]}")
    if reasons["api"]:
        return
    with ThreadPoolExecutor() as pool:
        work = [pool.submit(programs.build, places)]
        if not reasons["node"]:
            debian.install()
            work.append(pool.submit(images.build_images, places))
        for each in work:
            each.result()


def _up(places: Places, arguments: argparse.Namespace) -> None:
    bring_up.up(places, bring_up.Shape(arguments.mode, arguments.fake_nodes))
    print(f"export KUBECONFIG={places.kubeconfig}")


def _images(places: Places, arguments: argparse.Namespace) -> None:
    """Adds the images to the node, which pulls nothing, and prints the options with which the chart uses them."""
    del arguments
    shape = bring_up.shape(places)
    if shape is None or not shape.has_node:
        raise ClusterError(f"no cluster with a node in {places.run}: start one with `make cluster-up`")
    names = images.add_to_node(places)
    for value, name in (("image", names["operator"]), ("trainerImage", names["trainer"])):
        registry, _, rest = name.partition("/")
        print(
            f"--set {value}.registry={registry},{value}.tag={rest.partition(':')[2]},{value}.pullPolicy=Never"
        )


def _down(places: Places, arguments: argparse.Namespace) -> None:
    take_down.down(places, purge=arguments.purge)


def _status(places: Places, arguments: argparse.Namespace) -> int:
    """Returns 0 when every program is ready, 3 when some are not, 4 without a cluster, as init scripts do."""
    del arguments
    shape = bring_up.shape(places)
    if shape is None:
        print(f"no cluster in {places.run}")
        return 4
    parts = bring_up.parts(places, shape).values()
    for part in parts:
        process = part.process.running()
        state = "ready" if part.is_ready() else "not ready" if process else "down"
        print(f"{part.name:24} {state:10} {process.pid if process else '':>8}  {part.process.log}")
    return 0 if all(part.is_ready() for part in parts) else 3


def _kubeconfig(places: Places, arguments: argparse.Namespace) -> int:
    del arguments
    print(places.kubeconfig)
    return 0 if places.kubeconfig.exists() else 4


if __name__ == "__main__":
    sys.exit(main())
