"""site_test.py REPOSITORY FOLDER: scripts/docs.sh makes the site in FOLDER, and all of its links lead somewhere."""

import html.parser
import pathlib
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


root, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
test_planted(folder / "planted")
made = subprocess.run([root / "scripts/docs.sh", folder], capture_output=True, text=True)
assert made.returncode == 0, made.stdout + made.stderr
site = folder / "site"
found = list(wrong_links(site))
assert not found, "\n".join(found)
header = (folder / "pages/api/parallel/comm/communicator.h.md").read_text()
assert "\n## Communicator\n\nA fixed, ordered set of ranks" in header and "Work all_reduce(" in header, header
assert "start_all_reduce" not in header, "what is private is shown"
assert not list(site.glob("api/core/cpu/*")), "an internal header has a page"
page = (site / "docs/your-model.html").read_text()
assert 'href="../api/nn/samples.h.html"' in page, "names of headers are no links"
assert "<code>--zero 0|1|2|3</code>" in (site / "docs/cli.html").read_text(), "bars in code of a table"
print(f"{len(list(site.rglob('*.html')))} pages")
