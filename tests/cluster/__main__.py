"""``python -m tests.cluster prepare|up|down|status|kubeconfig|images``"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster import api, bring_up, debian, existing, images, programs, registry
from tests.cluster.errors import ClusterError
from tests.cluster.places import Places
from tests.cluster.requirements import requirements


def main() -> int:
    arguments = _arguments()
    places = Places(run=arguments.dir) if arguments.dir else Places()
    try:
        return int(arguments.verb(places, arguments) or 0)
    except ClusterError as error:
        print(f"tests.cluster: {error}", file=sys.stderr)
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster", description="a real Kubernetes for tests"
    )
    parser.add_argument(
        "--dir", type=Path, help="the cluster's state (default: $RLTRAINING_TEST_DIR, or the usual)"
    )
    verbs = parser.add_subparsers(required=True, metavar="verb")
    up = verbs.add_parser("up", help="bring up what is not up yet")
    up.add_argument("--mode", choices=bring_up.MODES, default="node", help="api: no pods run; node: they do")
    up.add_argument("--fake-nodes", type=int, default=0, metavar="N", help="nodes that play their pods")
    up.set_defaults(verb=_up)
    down = verbs.add_parser("down", help="remove everything but the caches")
    down.add_argument("--purge", action="store_true", help="and the caches: programs, images")
    down.set_defaults(verb=_down)
    verbs.add_parser("status", help="what is up").set_defaults(verb=_status)
    verbs.add_parser("kubeconfig", help="print the path of the kubeconfig file").set_defaults(
        verb=_kubeconfig
    )
    verbs.add_parser("images", help="build and push the images of this source tree").set_defaults(
        verb=_images
    )
    verbs.add_parser(
        "prepare", help="compile and build all that tests need, and say what cannot be"
    ).set_defaults(verb=_prepare)
    return parser.parse_args()


def _up(places: Places, arguments: argparse.Namespace) -> None:
    cluster = api.up(arguments.mode, fake_nodes=arguments.fake_nodes, places=places)
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _down(places: Places, arguments: argparse.Namespace) -> None:
    api.down(places, purge=arguments.purge)


def _status(places: Places, arguments: argparse.Namespace) -> int:
    """0 when all of a cluster is up, 3 when some is not, 4 when there is none (as of init scripts)."""
    del arguments
    found = existing.kubeconfig(places)
    if found is not None:
        print(f"the existing cluster of {found}")
        return 0
    shape = bring_up.shape(places)
    parts = list(bring_up.parts(places, shape).values()) if shape else []
    for part in [*parts, registry.part(places)]:
        process = part.process.running()
        state = "ready" if part.is_ready() else "not ready" if process else "down"
        print(f"{part.name:24} {state:10} {process.pid if process else '':>8}  {part.process.log}")
    if shape is None:
        print(f"no cluster in {places.run}")
        return 4
    return 0 if all(part.is_ready() for part in parts) else 3


def _images(places: Places, arguments: argparse.Namespace) -> None:
    del arguments
    for name in images.build_images(places).values():
        print(name)


def _prepare(places: Places, arguments: argparse.Namespace) -> None:
    """What is dear to make, side by side; and what this machine cannot, with the reason."""
    del arguments
    if existing.kubeconfig(places) is not None:
        print("tests.cluster: the cluster of KUBECONFIG is used; nothing to prepare but the images")
    reasons = requirements(places)
    if reasons["api"]:
        print(f"tests.cluster: NOT RUN: all that needs an API server, for {reasons['api']}")
        return
    if reasons["node"]:
        print(f"tests.cluster: NOT RUN: all that needs real pods, for {reasons['node']}")
    else:
        debian.install()
    with ThreadPoolExecutor() as both:
        work = [both.submit(programs.build, places)]
        if not reasons["node"]:
            work.append(both.submit(images.build_images, places))
        for made in work:
            made.result()


def _kubeconfig(places: Places, arguments: argparse.Namespace) -> int:
    del arguments
    path = existing.kubeconfig(places) or places.kubeconfig
    print(path)
    return 0 if path.exists() else 4


if __name__ == "__main__":
    sys.exit(main())
