"""site_test.py REPOSITORY FOLDER: scripts/docs.sh makes the site in FOLDER, and all of its links lead somewhere; as one of
several versions too."""

import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """What a page can be asked for (ids) and asks for (links)."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def wrong_links(site):
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc or path.name == "404.html":
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link} is not there"
            elif url.fragment and urllib.parse.unquote(url.fragment) not in pages[target].ids | {"__consent"}:
                yield f"{path.relative_to(site)}: {link} has no such anchor"


def test_planted(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "b.html").write_text('<p id="there">')
    (folder / "a.html").write_text('<a href="b.html#there"></a><a href="b.html#gone"></a><img src="c.svg">')
    found = sorted(wrong_links(folder))
    assert found == ["a.html: b.html#gone has no such anchor", "a.html: c.svg is not there"], found


def test_order(root, site):
    """Numbers are no texts: 0.10 is after 0.9; a name is never the latest where there are numbers."""
    for version, latest in (("dev", "dev"), ("0.9", "0.9"), ("0.10", "0.10"), ("0.9", "0.10"), ("dev", "0.10")):
        (site / version).mkdir(parents=True, exist_ok=True)
        (site / version / "index.html").touch()
        subprocess.run([root / "scripts/site/versions.py", site, version], check=True)
        listed = json.loads((site / "versions.json").read_text())
        assert (site / "latest").resolve() == (site / latest).resolve(), (version, latest)
        assert [entry["version"] for entry in listed if "latest" in entry["aliases"]] == [latest], listed
    assert [entry["version"] for entry in listed] == ["0.10", "0.9", "dev"], listed


def make(*words):
    made = subprocess.run([root / "scripts/docs.sh", *words], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    found = list(wrong_links(site))
    assert not found, "\n".join(found)


root, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
site = folder / "site"
test_planted(folder / "planted")
shutil.rmtree(folder / "order", ignore_errors=True)
test_order(root, folder / "order")
make(folder)
header = (folder / "pages/api/parallel/comm/communicator.h.md").read_text()
assert "\n## Communicator\n\nA fixed, ordered set of ranks" in header and "Work all_reduce(" in header, header
assert "start_all_reduce" not in header, "what is private is shown"
assert not list(site.glob("api/core/cpu/*")), "an internal header has a page"
page = (site / "docs/your-model.html").read_text()
assert 'href="../api/nn/samples.h.html"' in page, "names of headers are no links"
assert 'href="../overview.html#use-it"' in page, "links to README.md lead to the first page"
first, readme = (root / "docs/index.md").read_text(), (root / "README.md").read_text()
for figure in re.findall(r"\d[\d,.]*\d", re.sub(r"(?s)```.*?```", "", first)):
    assert figure in readme, f"docs/index.md has {figure}, and README.md does not"
assert "<code>--zero 0|1|2|3</code>" in (site / "docs/cli.html").read_text(), "bars in code of a table"
assert "version:" not in (folder / "mkdocs.yml").read_text(), "a selector without versions"
count = len(list(site.rglob("*.html")))
make("--version", "0.1", folder)
assert sorted(path.name for path in site.iterdir()) == ["0.1", "index.html", "latest", "versions.json"], "of the site without versions"
(site / "0.1/mark").touch()
make("--version", "0.2", folder)
page = (site / "0.2/docs/tutorial.html").read_text()
number = re.search(r"project\(triax VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())[1]
assert f"triax {number}" in page and '"provider": "mike"' in page and 'href="../.."' in page, "version, selector or banner"
assert (site / "0.1/mark").is_file() and (site / "latest").resolve().name == "0.2", "an earlier version"
for wrong in ("latest", "../x", ""):
    refused = subprocess.run([root / "scripts/docs.sh", "--version", wrong, folder], capture_output=True, text=True)
    assert refused.returncode == 1 and f"'{wrong}' is no version" in refused.stderr, refused.stderr
print(f"{count} pages")
