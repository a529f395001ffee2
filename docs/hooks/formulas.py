"""Formulas between $$ and $$ become MathML when the site is built: browsers show it without a script."""

from __future__ import annotations

import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

FORMULA = re.compile(r"^\$\$(.+?)\$\$$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return FORMULA.sub(lambda match: f'<div class="formula">{_mathml(match[1])}</div>', markdown)


def _mathml(latex: str) -> str:
    mathml: str = convert(latex.strip(), display="block").replace("\n", " ")
    if unknown := re.findall(r"\\\w+", mathml):
        raise PluginError(
            f"latex2mathml does not know {unknown[0]}, in the formula {latex.strip()}: use another command"
        )
    return mathml
