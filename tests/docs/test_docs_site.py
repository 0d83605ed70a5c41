"""The documentation site: it builds without a warning and without the network, and every public name has its place."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import gbpl

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Used by their module's name, so that all their public names belong on a page.
MODULES = (
    "certificates.bounds", "datasets", "fitting.members", "fitting.stack", "nuisance.off_policy", "plots",
    "posterior.eta", "posterior.methods", "value.overlap",
)  # fmt: skip


def named() -> dict[str, Any]:
    """What the API pages name, and what each name is."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md")))
    return {name: resolved(name) for name in re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)}


def resolved(name: str) -> Any:
    module, attributes = name.split("."), []
    while module:
        try:
            here = importlib.import_module(".".join(module))
        except ModuleNotFoundError:
            attributes.insert(0, module.pop())
            continue
        for part in attributes:
            here = getattr(here, part)
        return here
    raise ModuleNotFoundError(name)


def documented() -> list[Any]:
    """Objects on the API pages; a module stands for its public names."""
    things = list(named().values())
    modules = [thing for thing in things if inspect.ismodule(thing)]
    return things + [getattr(module, name) for module in modules for name in module.__all__]


def has(things: list[Any], wanted: Any) -> bool:
    return any(thing is wanted for thing in things)


def test_every_public_name_is_on_an_api_page() -> None:
    things = documented()  # modules of the list above are checked name by name below
    missing = [name for name in gbpl.__all__ if name not in MODULES and not has(things, getattr(gbpl, name))]
    assert not missing, f"add `::: gbpl.<module>.<name>` to a page in docs/api for: {', '.join(missing)}"


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_a_module_is_on_an_api_page(module: str) -> None:
    here, things = importlib.import_module(f"gbpl.{module}"), documented()
    public = [(name, getattr(here, name)) for name in here.__all__]
    missing = [name for name, thing in public if callable(thing) and not has(things, thing)]
    assert not missing, f"add `::: gbpl.{module}.<name>` to a page in docs/api for: {', '.join(missing)}"


def leaves(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from leaves(value) if isinstance(value, list) else [value]


def test_pages_and_navigation_agree() -> None:
    pages = list(leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert len(pages) == len(set(pages))
    assert set(pages) == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


# The built site.


class Links(HTMLParser):
    """Ids of a page, what its links point to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loads += [given[name] for name in ("src", "data", "poster") if name in given]
        self.loads += [given["href"]] if tag == "link" and "href" in given else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Links]:
    """Pages of the site by their file, parsed; the folder is that of the shortest path."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return {page: Links(page.read_text(encoding="utf-8")) for page in sorted(folder.rglob("*.html"))}


def test_nothing_is_loaded_from_elsewhere(site: dict[Path, Links]) -> None:
    elsewhere = {url for page in site.values() for url in page.loads if urlsplit(url).netloc}
    assert not elsewhere
    top = next(page.parent for page in site if page.name == "404.html")
    for style in top.rglob("*.css"):
        loads = re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^)\"']+)", style.read_text(encoding="utf-8"))
        assert not loads, f"{style.name} loads {loads}"


def test_every_link_within_the_site_leads_somewhere(site: dict[Path, Links]) -> None:
    broken = []
    for page, parsed in site.items():
        for url in parsed.links:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            there = target in site or target.exists()
            if not there or (parts.fragment and unquote(parts.fragment) not in site[target].ids):
                broken.append(f"{page.name}: {url}")
    assert not broken, "\n".join(broken)


def test_docstrings_are_shown_as_they_are_meant(site: dict[Path, Links]) -> None:
    pages = [page for page in site if page.parent.name == "api"]
    assert len(pages) >= 10
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<blockquote>" not in text, f"{page.name}: a doctest that is not fenced"
        assert "<p>```" not in text, f"{page.name}: a fence that is not closed"
        entries = re.findall(r"<p>[^<]*\n\w+(?:, \w+)* : ", text)
        assert not entries, f"{page.name}: entries run together: {entries}"


def test_search_finds_the_estimator_and_the_changelog(site: dict[Path, Links]) -> None:
    top = next(page.parent for page in site if page.name == "404.html")
    index = (top / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "gbpl.estimators.gbplnet.GBPLNet" in index
    changes = (top / "changelog.html").read_text(encoding="utf-8")
    assert "Unreleased" in changes
    assert 'href="paper.html"' in changes
