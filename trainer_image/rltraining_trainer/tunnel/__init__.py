"""The tunnel of a pod, through which members of an encrypted job reach each other over TLS.

`process` encrypts, `supervisor` starts it, and `preload` leads torch's connections to it. This package
does not import torch.
"""
