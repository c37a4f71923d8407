"""Rules of docs/architecture.md that no linter checks."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from reput.format import file_names

SOURCE = Path(__file__).parents[1] / "src" / "reput"
MODULES = sorted(SOURCE.rglob("*.py"))
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


# Rows of the house that consist of rooms: each of their folders is one.
ROWS = ("core", "engine", "wings")


def room_of(path: Path) -> str:
    """Return the room of a module: a folder or module of reput/, or a folder of a row."""
    row, *below = path.relative_to(SOURCE).parts
    return below[0] if row in ROWS and len(below) > 1 else row.removesuffix(".py")


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


# Modules whose reports suggest commands with options.
SUGGEST_COMMANDS = {
    "engine/check/operation.py", "engine/check/repair_operation.py",
    "engine/lookup/operation.py", "wings/inspect/inspect_text.py", "wings/inspect/trace_text.py",
}  # fmt: skip
# Further modules of commands of wings.
PARTS_OF_COMMANDS = {
    "wings/console/serving.py", "wings/inspect/listing.py",
}  # fmt: skip


def is_command(path: Path) -> bool:
    """Return whether a module parses options, prints output, and returns exit codes."""
    return (
        room_of(path) == "cli"
        or path.stem.endswith("command")
        or name_of(path) in PARTS_OF_COMMANDS
    )


def test_only_commands_use_the_frame_of_commands() -> None:
    found = [
        name_of(path) for path in MODULES if "cli" in imports_of(path) and not is_command(path)
    ]
    assert found == ["__main__.py"]


def test_only_commands_and_their_reports_name_options() -> None:
    found = [
        f"{name_of(path)}:{line}: {option}"
        for path in MODULES
        if not is_command(path) and name_of(path) not in SUGGEST_COMMANDS
        for line, text in texts(path)
        for option in OPTION.findall(text)
        # options of Java and protoc
        if not option.startswith(("--add-", "--include", "--descriptor"))
    ]
    assert found == []


# Names of files that are also other words: modules may use these outside of paths.
WORDS = {
    "abort", "checkpoint", "commitlog", "config", "consumequeue", "index", "lock", "metadata", "tiered", "topics",
}  # fmt: skip


def parts_of_paths(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and the value of each string literal that the module joins to a path."""
    for node in nodes_of(path):
        joined: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            joined = [node.left, node.right]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.path.join", "Path"):
            joined = node.args
        for one in joined:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.lineno, one.value


def test_names_of_a_store_s_files_stand_in_one_module() -> None:
    names = {
        text for name, text in vars(file_names).items() if name.isupper() and isinstance(text, str)
    }
    names.discard("data")  # Iceberg also has a folder of this name
    assert len(names) > 25
    assert names > WORDS
    found = [
        (name_of(path), line, text)
        for path in MODULES
        if path.name != "file_names.py"
        for part, banned in ((texts(path), names - WORDS), (parts_of_paths(path), names))
        for line, text in part
        if " " not in text and banned & set(text.split("/"))
    ]
    assert found == []


# Only the packages of ASK_THEMSELVES, and the module that inspects a checkpoint's bytes, may import these functions.
# All other code asks StoreFacts, or StoreSurvey.
ASKED_OF_FACTS = {
    "reput.core.log.sources.log_folders", "reput.core.log.sources.ledger_folders", "reput.core.store.parts.parts_of",
    "reput.core.queues.kinds.is_database", "reput.core.queues.kinds.was_database",
    "reput.format.checkpoint.decode_checkpoint",
}  # fmt: skip
ASK_THEMSELVES = {"index", "log", "queues", "store"}


def test_only_facts_say_what_a_store_is() -> None:
    found = [
        f"{name_of(path)}: {node.module}.{alias.name}"
        for path in MODULES
        if room_of(path) not in ASK_THEMSELVES
        and name_of(path) != "engine/check/checking/checkpoint.py"
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{node.module}.{alias.name}" in ASKED_OF_FACTS
    ]
    assert found == []


# Texts in code that finds queue folders, or names files by offsets, and the only modules that may contain them.
WALKS = {
    "name.isdigit": ("core/queues/kinds.py", "format/file_names.py"), ":020d": ("format/file_names.py",),
}  # fmt: skip
# Modules that may contain these texts, because they read other folders and files with numbers as names.
OTHER_NUMBERS = {
    "engine/check/repairing/places.py": "repairs", "wings/lakes/tables/parquet.py": "commits of a table",
}  # fmt: skip


def test_one_module_walks_the_folders_of_queues_and_one_names_files_by_offsets() -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in MODULES
        if name_of(path) not in OTHER_NUMBERS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for sign, homes in WALKS.items()
        if sign in line and name_of(path) not in homes
    ]
    assert found == []


BANNED = re.compile(
    r"os\.(open|fdopen|rename|replace|renames|remove|unlink|removedirs|rmdir|link|symlink|mkdir|makedirs|"
    r"truncate|ftruncate|write|pwrite|fsync|fdatasync|sync|chmod|chown|utime|mkfifo|sendfile|copy_file_range)"
    r"|shutil\.(?!which$)\w+|mmap\.mmap|fcntl\.\w+|tempfile\.\w+"
)
BANNED_METHODS = {
    "write_text", "write_bytes", "mkdir", "rmdir", "unlink", "touch", "chmod", "symlink_to", "hardlink_to",
}  # fmt: skip
# Numba needs a folder for compiled code, and kernels do not import io/.
FILES_OF_THEIR_OWN = {"io", "testing", "kernels/compile_cache.py"}
# The command line redirects its stdout to /dev/null when its reader is gone.
EXCEPTIONS = {("cli/main.py", "os.open")}


def uses_of_files(path: Path) -> Iterator[tuple[int, str]]:
    """Yield lines that open, map, create, sync, rename or delete files directly."""
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            is_disk = ast.unparse(node.value).lower().endswith(("disk", "super()"))
            if BANNED.fullmatch(name) or (node.attr in BANNED_METHODS and not is_disk):
                yield node.lineno, name
            if node.attr == "rename" and not is_disk:
                yield node.lineno, name
        elif isinstance(node, ast.Call):
            texts = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
            is_open = isinstance(node.func, ast.Name) and node.func.id == "open"
            is_path_open = isinstance(node.func, ast.Attribute) and node.func.attr == "open"
            if is_open or (
                is_path_open
                and texts
                and str(texts[0]) in ("r", "rb", "w", "wb", "a", "ab", "r+b", "x")
            ):
                yield node.lineno, ast.unparse(node.func)
        elif isinstance(node, ast.keyword) and node.arg == "mmap_mode":
            yield node.lineno, "mmap_mode"
        elif isinstance(node, ast.ImportFrom) and node.module in (
            "shutil",
            "tempfile",
            "fcntl",
            "mmap",
        ):
            yield node.lineno, f"from {node.module} import"


def test_only_files_opens_maps_syncs_renames_and_deletes() -> None:
    found = [
        f"{name_of(path)}:{line}: {name}"
        for path in MODULES
        if not {room_of(path), name_of(path)} & FILES_OF_THEIR_OWN
        for line, name in uses_of_files(path)
        if (name_of(path), name) not in EXCEPTIONS
    ]
    assert found == []


def rooms() -> set[str]:
    return {room_of(path) for path in MODULES if path.parent != SOURCE}


def test_tests_mirror_the_rooms() -> None:
    others = {
        "crash", "docs", "examples", "fuzzing", "golden", "growth", "operations", "oracle", "remote",
        "truth",
    }  # fmt: skip
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/__init__.py")}
    assert folders - others <= {path.name for path in SOURCE.rglob("*") if path.is_dir()}


def imports_of(path: Path) -> Iterator[str]:
    """Yield the rooms that a module imports, also inside functions."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reput."):
            yield _room_of_name(node.module or "")
        elif isinstance(node, ast.Import):
            yield from (_room_of_name(n.name) for n in node.names if n.name.startswith("reput."))


def _room_of_name(module: str) -> str:
    _, row, *below = module.split(".")
    return below[0] if row in ROWS and below else row


def test_no_fixture_is_shared_by_the_tests_of_a_folder() -> None:
    # A process runs the files of many folders by turns, and would set up such a fixture again for each turn.
    files = Path(__file__).parent.rglob("*.py")
    found = [str(path) for path in files if re.search('scope="[p]ackage"', path.read_text())]
    assert found == []


def test_no_two_rooms_import_each_other() -> None:
    below: dict[str, set[str]] = {}
    for path in MODULES:
        below.setdefault(room_of(path), set()).update(imports_of(path))
    pairs = {
        (room, other)
        for room, others in below.items()
        for other in others
        if room < other and room in below.get(other, ())
    }
    assert pairs == {("lookup", "spark")}  # late: a look-up runs on Spark where a user asks for it


def for_types(path: Path) -> set[ast.AST]:
    """Return nodes that no interpreter reaches: below `if TYPE_CHECKING`."""
    found: set[ast.AST] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.update(inner for one in node.body for inner in ast.walk(one))
    return found


@cache
def faces() -> dict[str, dict[str, str]]:
    """Return for each package with a face, and each wing's `api`, the names that it offers, and their modules."""
    found: dict[str, dict[str, str]] = {}
    for path in (*SOURCE.rglob("__init__.py"), *SOURCE.glob("wings/*/api.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        package = ".".join(parts).removesuffix(".__init__")
        if "face(__name__)" in path.read_text(encoding="utf-8"):
            found[package] = {
                alias.name: node.module or ""
                for node in for_types(path)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
    return found


def test_a_face_offers_what_exists() -> None:
    assert {"reput.base", "reput.core", "reput.io", "reput.engine.lookup"} <= faces().keys()
    for package, names in faces().items():
        module = import_module(package)
        assert set(names) <= set(dir(module))
        for name, home in names.items():
            assert getattr(module, name) is getattr(import_module(home), name)


# Names that rooms take from inside a package with a face. These numbers only shrink.
INSIDE = {
    "reput.engine.rebuild": 1,
    "reput.engine.stores": 1,
}


def test_rooms_use_the_faces_of_others() -> None:
    taken: dict[str, set[str]] = {package.removesuffix(".api"): set() for package in faces()}
    for path in MODULES:
        importer = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and importer not in (
                "reput.reports",
                "reput.__init__",
            ):
                for package, names in taken.items():
                    inner = (node.module or "").removesuffix(".api") + "."
                    is_inner = inner.startswith(f"{package}.") and inner != f"{package}."
                    if is_inner and not importer.startswith(f"{package}."):
                        names.update(f"{inner}{alias.name}" for alias in node.names)
    grown = {name: len(names) for name, names in taken.items() if len(names) > INSIDE.get(name, 0)}
    assert grown == {}, "take names from the __init__ of a package, or offer them there"


def imported_modules() -> dict[str, set[str]]:
    """Return for each module the modules that it imports, also in functions, but not those for type checkers only."""
    names = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path
        for path in MODULES
        if path.name != "__init__.py"
    }
    offers = faces()
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        skipped = for_types(path)
        imported: set[str] = set()
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node not in skipped:
                module = node.module or ""
                imported |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
                imported |= {offers.get(module, {}).get(alias.name, "") for alias in node.names}
        found[name] = imported & names.keys() - {name}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    left = imported_modules()
    assert len(left) > 400
    while free := {name for name, imported in left.items() if not imported & left.keys()}:
        left = {name: imported for name, imported in left.items() if name not in free}
    assert left == {}


def test_a_class_name_occurs_once() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name_of(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_page_on_architecture_names_every_room() -> None:
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = page[page.index("    reports  ") :].partition("\n\n")[0]
    columns = (re.split(" {2,}", line.strip())[0] for line in drawn.splitlines())
    named = set(re.findall("[a-z]+", " ".join(columns)))
    modules = {path.stem for path in SOURCE.glob("*.py")}
    assert rooms() | modules - {"__init__", "__main__"} <= named


def test_nothing_imports_the_public_test_tools() -> None:
    found = [
        name_of(path)
        for path in MODULES
        if room_of(path) != "testing" and "testing" in imports_of(path)
    ]
    assert found == []
