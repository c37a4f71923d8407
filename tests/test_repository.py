"""The files that make the repository work: workflows, forms, hooks, container, versions."""

import configparser
import re
import subprocess
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml

import reput
from reput.cli import check
from reput.wings.console.command import serve_command
from tests.durations import file_of, long_tests

CHECKOUT = Path(__file__).parents[1]
WORKFLOWS = sorted((CHECKOUT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((CHECKOUT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PINNED = re.compile(r"[\w./-]+/[\w./-]+@[0-9a-f]{40}")
TARGETS = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def is_pinned(action: str) -> bool:
    # The publishing action's page asks for its branch; the commits of all others are known.
    return action == "pypa/gh-action-pypi-publish@release/v1" or bool(PINNED.fullmatch(action))


def test_the_actions_of_the_setup_are_pinned() -> None:
    steps = load(CHECKOUT / ".github" / "actions" / "setup" / "action.yml")["runs"]["steps"]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert len(actions) == 2
    assert all(map(is_pinned, actions))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_says_when_it_runs_and_what_it_may(path: Path) -> None:
    workflow = load(path)
    assert workflow[True], "YAML reads the name `on` as true"
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"] in ("ubuntu-latest", "${{ matrix.runner }}")
        assert job["timeout-minutes"] <= 300
        assert set(job.get("needs", "").split()) <= workflow["jobs"].keys()
    for step in steps_of(path):
        assert "run" in step or step["uses"] == "./.github/actions/setup" or is_pinned(step["uses"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_targets_that_there_are(path: Path) -> None:
    runs = "\n".join(step.get("run", "") for step in steps_of(path))
    targets = set(re.findall(r"\bmake ([a-z-]+)", runs))
    assert targets
    assert targets <= TARGETS


def test_ci_tests_every_python_that_the_project_promises() -> None:
    (workflow,) = (load(path) for path in WORKFLOWS if path.name == "ci.yml")
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    promised = {
        found[1]
        for each in project["classifiers"]
        if (found := re.search(r"Python :: (3\.\d+)$", each))
    }
    assert set(workflow["jobs"]["test"]["strategy"]["matrix"]["python"]) == promised


def test_only_publishing_gets_an_identity() -> None:
    (workflow,) = (load(path) for path in WORKFLOWS if path.name == "release.yml")
    jobs = workflow["jobs"]
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    assert "permissions" not in jobs["build"]
    assert all("secrets." not in path.read_text() for path in WORKFLOWS)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_asks_something(path: Path) -> None:
    form = load(path)
    if path.name == "config.yml":
        return
    kinds = [part["type"] for part in form["body"]]
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert form["name"]
    assert form["description"]
    assert set(kinds) <= {"markdown", "input", "textarea", "dropdown", "checkboxes"}
    assert len(ids) == len(set(ids)) > 0


def test_hooks_download_nothing() -> None:
    hooks = load(CHECKOUT / ".pre-commit-config.yaml")
    for repository in hooks["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert hook["language"] == "system"
            assert hook["entry"].startswith(".venv/bin/")


def test_the_container_is_no_root_and_begins_with_reput() -> None:
    text = (CHECKOUT / "Containerfile").read_text()
    users = re.findall(r"^USER (\S+)", text, re.MULTILINE)
    assert users == ["10001"]
    assert 'ENTRYPOINT ["reput"]' in text
    assert "ship_kernels.py" in text.rpartition("\nFROM ")[0], "no container compiles kernels"
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert all(re.search(r":\d+\.\d+\.\d+-", base) for base in bases), "bases are pinned"
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert all((CHECKOUT / name).exists() for name in source.split())


def test_the_changelog_begins_with_what_is_not_released_and_then_this_version() -> None:
    text = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == reput.__version__


def test_the_unit_runs_a_command_that_there_is_and_can_be_stopped() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(CHECKOUT / "deploy" / "reput-serve.service")
    service = unit["Service"]
    program, command, *arguments = service["ExecStart"].split()
    assert (Path(program).name, command) == ("reput", "serve")
    assert serve_command.make_context("serve", arguments).params["listen"] == "127.0.0.1:9876"
    assert service["KillSignal"] == "SIGTERM"
    assert service["NoNewPrivileges"] == "yes"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_the_unit_of_the_scrub_runs_as_the_server_s_user_with_its_cache() -> None:
    units = {}
    for name in ("serve", "scrub"):
        units[name] = configparser.RawConfigParser(strict=False)
        units[name].optionxform = str  # type: ignore[assignment,method-assign]
        units[name].read(CHECKOUT / "deploy" / f"reput-{name}.service")
    service = units["scrub"]["Service"]
    program, command, *arguments = service["ExecStart"].split()
    assert (Path(program).name, command) == ("reput", "check")
    assert check.command.make_context("check", arguments).params["rate"] == 20_000_000
    # The dynamic user of a unit has the unit's name.
    assert service["User"] == "reput-serve"
    for field in ("CacheDirectory", "Environment", "DynamicUser", "ProtectSystem"):
        assert service[field] == units["serve"]["Service"][field]


def test_the_service_for_clients_outside_lists_a_port_per_store() -> None:
    page = (CHECKOUT / "docs" / "serve.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```sh\n(cat <<END\n.*?)^```$", page, re.M | re.S)
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    service = yaml.safe_load(printed.stdout)
    ports = [port["port"] for port in service["spec"]["ports"]]
    assert ports == list(range(9876, 9876 + 40))
    text = (CHECKOUT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")
    deployment, *_ = yaml.safe_load_all(text)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_the_kubernetes_manifest_serves_read_only_and_its_names_agree() -> None:
    text = (CHECKOUT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")
    deployment, service, policy = yaml.safe_load_all(text)
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    command, *arguments = container["args"]
    params = serve_command.make_context(command, arguments).params
    assert params["advertised"] == service["metadata"]["name"]
    assert not params["accepts_sends"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert params["listen"].endswith(f":{ports['remoting']}")
    assert params["http"].endswith(f":{ports['http']}")
    assert params["http_hosts"] == (service["metadata"]["name"],)
    assert {one["targetPort"]: one["port"] for one in service["spec"]["ports"]} == ports
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert policy["spec"]["podSelector"] == deployment["spec"]["selector"]
    (rule,) = policy["spec"]["ingress"]
    remoting, http = rule["ports"]
    assert remoting["port"] == ports["remoting"]
    assert remoting["endPort"] > remoting["port"]  # each store has a port
    assert http["port"] == "http"
    # The service is headless, so clients reach the ports of all stores although the service does not list them.
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    (mount,), (volume,) = container["volumeMounts"], pod["spec"]["volumes"]
    assert (mount["name"], mount["mountPath"], mount["readOnly"]) == (
        volume["name"],
        *params["stores"],
        True,
    )
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]


def test_every_long_test_is_in_the_tree() -> None:
    names = {name.partition("[")[0] for name in long_tests()}
    functions = {path: _functions(CHECKOUT / path) for path in {file_of(name) for name in names}}
    stale = [name for name in names if name.rpartition("::")[2] not in functions[file_of(name)]]
    assert not stale, "run `make durations`, or delete these lines from tests/long.txt"


def _functions(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return set(re.findall(r"^\s*(?:async )?def (test_\w+)", text, re.MULTILINE))


def test_the_notes_of_a_release_are_short() -> None:
    text = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *released = re.split(r"^## \[(?!Unreleased)", text, flags=re.MULTILINE)
    assert len(released) == 3
    assert [len(one.strip().splitlines()) for one in released if len(one.splitlines()) > 40] == []


def test_kernels_of_the_same_sources_are_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_from_file_location("ship_kernels", CHECKOUT / "packaging" / "ship_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    compiled = []

    def compile_into(folder: Path, python: str, settings: dict[str, str]) -> None:
        compiled.append(folder.name)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("kernel.nbi", "kernel.1.nbc"):
            (folder / name).write_bytes(b"x")

    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "compile_into", compile_into)
    assert module.main([]) == 0
    levels = list(compiled)
    assert levels
    assert module.main([]) == 0
    assert compiled == levels
    next(tmp_path.glob(f"src/reput/kernels/compiled/*/{levels[0]}/*.nbc")).unlink()
    assert module.main([]) == 0
    assert compiled == [*levels, levels[0]]
