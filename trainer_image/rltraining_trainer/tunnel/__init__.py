"""The tunnel of a pod, through which members of an encrypted job reach each other over TLS.

`process` encrypts, `supervisor` starts it, and `preload` redirects torch's connections to the tunnel. This package
does not import torch.
"""
