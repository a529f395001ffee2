"""Regular expressions of the contract, each with a description for messages.

API servers use Go's engine and pydantic Rust's, which differ beyond ASCII in the classes for spaces,
digits and words. The patterns therefore list the permitted characters.
"""

from __future__ import annotations

LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
URI = r"^[a-z][a-z0-9+.-]*://[^\x00-\x20\x7f]+( +[^\x00-\x20\x7f]+)*$"
MODULE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
ENTRY_POINT = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_.]*$"
CLASS_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
ENVIRONMENT_ID = r"^([A-Za-z_][A-Za-z0-9_.]*:)?([A-Za-z0-9_][A-Za-z0-9_-]*/)?[A-Za-z0-9_][A-Za-z0-9_.-]*$"
ATARI_ID = r"^ALE/[A-Za-z0-9]+-v5$"
IMAGE = r"^[!-~]+$"
MANAGED_BY = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9/_.~%!$&'()*+,;=:@-]+$"
TRACKED_NAME = r"^[^/\\#?%:\x00-\x1f\x7f]+$"
REASON = r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$"

MEANINGS = {
    LABEL: "must be lower-case letters, digits and '-', first a letter, last a letter or digit",
    OBJECT_NAME: "must be the name of a Kubernetes object: lower-case letters, digits, '-' and '.'",
    URI: "must be a URI such as s3://bucket/path or file:///path",
    MODULE: "must be the name of a Python module, such as package.module",
    ENTRY_POINT: "must be module:name",
    CLASS_NAME: "must be the name of a class",
    ENVIRONMENT_ID: "must be a gymnasium id such as CartPole-v1, or module:Id",
    IMAGE: "must be an image reference: ASCII characters, no spaces",
    MANAGED_BY: "must be domain/path, as in rltraining.dev/operator",
    TRACKED_NAME: "must not contain a control character or one of / \\ # ? % :",
    REASON: "must be one word in CamelCase",
}
