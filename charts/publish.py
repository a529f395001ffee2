"""Writes the chart with the addresses that only its publisher has: the registry of the images and the repository's URL.

`python -m charts.publish --registry registry.example.com/team --source URL dist/chart`
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import yaml

from charts.readme import CHART, Origin, render


def publish(registry: str, source: str, folder: Path, chart: Path = CHART) -> Path:
    """Writes the published chart below `folder`, in place of an earlier one, and returns its own folder.

    The images are named by `registry` and the chart's version. Pages and files are linked at the tag of the version.
    """
    copy = folder / chart.name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(chart, copy)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    pages, files = (f"{source}/{view}/v{about['version']}" for view in ("blob", "raw"))

    # Jobs and the operator pull the published images by default.
    values = (copy / "values.yaml").read_text()
    set_registry = values.replace('\n  registry: ""\n', f"\n  registry: {registry}\n")
    (copy / "values.yaml").write_text(set_registry)

    # Helm and Artifact Hub show these addresses.
    defaults = yaml.safe_load(set_registry)
    images = {name: defaults[name]["repository"] for name in ("image", "trainerImage")}
    about |= {"home": source, "sources": [source], "icon": f"{files}/charts/{chart.name}/icon.svg"}
    about["annotations"] |= {
        "artifacthub.io/images": json.dumps(
            [{"name": name, "image": f"{registry}/{name}:{about['appVersion']}"} for name in images.values()]
        ),
        "artifacthub.io/links": json.dumps(
            [
                {"name": "documentation", "url": f"{pages}/docs/install.md"},
                {"name": "support", "url": f"{source}/issues"},
            ]
        ),
    }
    (copy / "Chart.yaml").write_text(yaml.safe_dump(about, sort_keys=False))

    # The README's commands use the published chart.
    reference = f"oci://{registry}/charts/{chart.name} --version {about['version']}"
    origin = Origin(chart=reference, images="", files=f"{files}/", pages=pages)
    (copy / "README.md").write_text(render(copy, origin))
    return copy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--registry", required=True, help="host and path of the images and the chart")
    parser.add_argument("--source", required=True, help="URL of the repository")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    print(publish(options.registry.rstrip("/"), options.source.rstrip("/"), options.folder))
