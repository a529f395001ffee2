"""python tunnel_members.py server PORT | client PORT URL: two processes, each with a tunnel: the server answers
calls of the client. With the port 0 the client has none.
"""

from __future__ import annotations

import os
import sys
import threading

from rltraining_trainer.tunnel.preload import preload

TOKEN = "secret"


def main() -> None:
    preload()
    from rltraining_trainer.transport import Endpoint, PeerLost
    from rltraining_trainer.tunnel.supervisor import TunnelProcess

    role, port = sys.argv[1], int(sys.argv[2])
    if port:
        TunnelProcess(port, TOKEN)
    if role == "server":
        endpoint = Endpoint("server", TOKEN, {"double": lambda sender, payload: 2 * payload})  # type: ignore[operator]
        endpoint.start()
        print(endpoint.url, flush=True)
        sys.stdin.read()
    else:
        endpoint = Endpoint("client", TOKEN, timeout=20.0)
        endpoint.start()
        try:
            print(endpoint.dial(sys.argv[3]).call("double", 21).result(threading.Event()), flush=True)
        except PeerLost:
            print("lost", flush=True)
    os._exit(0)  # the program tests connections, not the end of a process


if __name__ == "__main__":
    main()
