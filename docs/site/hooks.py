"""Pages of the site that are generated, and links that leave docs/; called by mkdocs (mkdocs.yml)."""

import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

CHECKOUT = Path(__file__).parents[2]
# Pages made of files beside docs/.
COPIED = {
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/security.md": "SECURITY.md",
}
_PAGE_OF = {source: page for page, source in COPIED.items()}
_FORMAT_PAGE = "reference/format.md"
_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {page: (CHECKOUT / source).read_text("utf-8") for page, source in COPIED.items()}
    pages["reference/api.md"] = api_page("reput", "Python API")
    pages["reference/reports.md"] = api_page("reput.reports", "Reports and answers")
    pages["reference/spark.md"] = api_page("reput.spark", "Spark API")
    modules = ("builders", "strategies", "forgetful_disk")
    pages["reference/testing.md"] = modules_page("For tests", "reput.testing", modules)
    pages[_FORMAT_PAGE] = modules_page("Format modules", "reput.format", format_modules())
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the site's pages; of a link to a file that is not on the site only the text stays."""
    here = page.file.src_uri
    source = COPIED.get(here, f"docs/{here}")
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_relinked(markdown[end : fence.start()], source, here), fence[0]]
        end = fence.end()
    return "".join([*parts, _relinked(markdown[end:], source, here)])


def _relinked(text: str, source: str, page: str) -> str:
    def link(match: re.Match[str]) -> str:
        picture, label, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path.startswith("docs/") and path != "docs/site":
            found = path.removeprefix("docs/")
        elif path in _PAGE_OF:
            found = _PAGE_OF[path]
        elif path.startswith("src/reput/format/") and path.endswith(".py"):
            module = Path(path).stem
            found, anchor = _FORMAT_PAGE, f"#reput.format.{module}"
        elif path == "src/reput/format":
            found = _FORMAT_PAGE
        else:
            return label
        if found == "":
            return label
        to = posixpath.relpath(found, posixpath.dirname(page) or ".")
        return f"{picture}[{label}]({to}{anchor or ''})"

    return _LINK.sub(link, text)


def api_page(package: str, title: str) -> str:
    """Everything that a package exports."""
    module = import_module(package)
    lines = [f"# {title}\n", f"What `{package}` exports.\n"]
    for name in sorted(module.__all__, key=str.lower):
        exported = getattr(module, name)
        path = f"{exported.__module__}.{exported.__qualname__}"
        if exported.__module__.startswith("reput.format."):  # which has a page with all of it
            lines.append(f"## {name}\n\nSee [{path}](format.md#{path}).\n")
        else:
            lines.append(f"::: {path}\n")
    return "\n".join(lines)


def modules_page(title: str, package: str, names: tuple[str, ...]) -> str:
    """The public names of modules."""
    lines = [f"# {title}\n"]
    for name in names:
        lines += [f"::: {package}.{name}\n    options:\n      show_root_full_path: true\n"]
    return "\n".join(lines)


def format_modules() -> tuple[str, ...]:
    """Names of the modules in reput.format."""
    folder = CHECKOUT / "src" / "reput" / "format"
    return tuple(sorted(path.stem for path in folder.glob("[a-z]*.py")))
