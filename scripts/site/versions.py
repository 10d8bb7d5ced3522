#!/usr/bin/env python3
"""versions.py SITE VERSION: what binds the versions of the documentation, each a folder of SITE, as the tool `mike` has it.

Writes versions.json, which the selector of mkdocs-material reads from the folder above its own; `latest`, a link to the
version with the greatest number (if none is a number, to VERSION); and a first page, which leads to `latest`."""

import json
import os
import pathlib
import re
import sys

FIRST = """<!doctype html><meta charset="utf-8"><title>triax</title><meta http-equiv="refresh" content="0; url=latest/index.html">
<a href="latest/index.html">The documentation of triax</a>
"""


def numbers(version):
    """To sort by: names come before all numbers."""
    return [int(part) for part in version.split(".")] if re.fullmatch(r"\d+(\.\d+)*", version) else []


def main(site, version):
    there = sorted((page.parent.name for page in site.glob("*/index.html") if not page.parent.is_symlink()), key=numbers)
    latest = there[-1] if numbers(there[-1]) else version
    versions = [{"version": name, "title": name, "aliases": ["latest"] * (name == latest)} for name in reversed(there)]
    (site / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")
    (site / "latest").unlink(missing_ok=True)
    os.symlink(latest, site / "latest")
    (site / "index.html").write_text(FIRST)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
