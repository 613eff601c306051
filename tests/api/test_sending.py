"""What clients send with a job: what it names, what is beside the job file, else nothing."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.api import packing, sending, sharing
from headgate.api.client import Client
from headgate.api.sending import base_of, send_files
from headgate.base.errors import SpecError
from headgate.live.node.marker import MARKER_PREFIX
from headgate.spec import load_job


def files_of(controller: Any, text: str) -> list[str]:
    """Return the files of the package that a job file names."""
    digest = yaml.safe_load(text)["working_dir"]["package"]
    (archive,) = [data for (_, sent), data in controller.packages.items() if sent == digest]
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        return found.getnames()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    for path in ("train.py", "lib/util.py", "lib/__init__.py", "tool", "requirements.txt"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).touch()
    return place


@pytest.mark.parametrize(
    "run",
    [
        "python train.py",
        "python3 -u train.py --epochs 3",
        "sh -c 'cd . && python train.py'",
        "./tool",
        "OMP_NUM_THREADS=1 python lib/util.py",
        "cat <requirements.txt;true",
        "python -m lib.util",
        "python -m lib",
        "launch --script=train.py",
        "train:main",
    ],
)
@pytest.mark.parametrize("stage", ["{run: %r}", "{tasks: {count: 2, run: %r}}"])
def test_directory_is_sent_where_a_run_names_a_file_in_it(
    client: Client, controller: Any, base: Path, run: str, stage: str
) -> None:
    text, warnings = send_files(client, stage % run, base=base)
    assert warnings == ()
    assert "train.py" in files_of(controller, text)


@pytest.mark.parametrize(
    "text",
    [
        "{run: nvidia-smi}",
        "{run: python /shared/train.py}",
        "{run: python ../project/train.py}",
        "{run: python other.py}",
        "{run: 'headgate.workloads.sort:sort_part'}",
        "{run: python train.py, working_dir: none}",
        "{run: python train.py, working_dir: false}",
        "{run: 'unmatched \" train'}",
    ],
)
def test_nothing_is_sent_where_no_run_names_a_file_there_or_none_is_wanted(
    client: Client, controller: Any, base: Path, text: str
) -> None:
    assert send_files(client, text, base=base) == (text, ())
    assert controller.packages == {}


def test_named_directory_starts_at_the_job_file(
    client: Client, controller: Any, base: Path
) -> None:
    text, _ = send_files(client, "{run: 'true', working_dir: lib}", base=base)
    assert files_of(controller, text) == ["__init__.py", "util.py"]


def test_default_directory_is_sent_whatever_the_job_runs(
    client: Client, controller: Any, base: Path
) -> None:
    text, _ = send_files(client, {"run": "true"}, base=base.parent, default=base / "lib")
    assert files_of(controller, text) == ["__init__.py", "util.py"]


@pytest.mark.parametrize("script", ["{base}/train.py", "train.py", "project/../project/train.py"])
def test_directory_beside_the_script_of_a_ray_program_is_sent(
    client: Client, controller: Any, base: Path, script: str
) -> None:
    start = base.parent if script.startswith("project") else base
    ray = {"script": script.format(base=base), "args": ["--fast"]}
    text, warnings = send_files(client, {"name": "x", "ray": ray}, base=start)
    assert warnings == ()
    assert "lib/util.py" in files_of(controller, text)
    assert yaml.safe_load(text)["ray"] == {"script": "train.py", "args": ["--fast"]}


def test_script_of_a_ray_program_whose_directory_is_not_sent_keeps_its_path(
    client: Client, controller: Any, base: Path
) -> None:
    with (base / "data.bin").open("wb") as file:
        file.truncate(10 << 30)
    text, (warning,) = send_files(client, {"ray": {"script": "train.py"}}, base=base)
    assert yaml.safe_load(text) == {"ray": {"script": str(base / "train.py")}}
    assert "has 10 GiB" in warning.problem
    keys = {"ray": {"script": "train.py"}, "working_dir": "none"}
    text, _ = send_files(client, keys, base=base)
    assert yaml.safe_load(text)["ray"] == {"script": str(base / "train.py")}
    elsewhere = {"ray": {"script": "/nodes/only.py"}}
    assert yaml.safe_load(send_files(client, elsewhere, base=base)[0]) == elsewhere
    keys = {"ray": {"script": "util.py"}, "working_dir": "lib"}
    text, _ = send_files(client, keys, base=base)
    assert yaml.safe_load(text)["ray"] == {"script": "util.py"}  # in the working directory
    assert len(controller.packages) == 1
    with pytest.raises(SpecError, match=r"ray\.script: there is no file"):
        send_files(client, {"ray": {"script": "missing.py"}}, base=base)


def test_all_other_keys_are_unchanged(client: Client, base: Path) -> None:
    keys = {
        "run": "./tool 1e9 \x85 \u2028 \U0001f600 'no'", "envs": {"A": "1e9", "B": "no\n"},
        "estimated_runtime": "3h", "priority": 3,
    }  # fmt: skip
    text, _ = send_files(client, keys, base=base)
    found = load_job(text)
    assert (found.run, found.envs, found.priority) == (keys["run"], keys["envs"], 3)


def test_same_files_are_uploaded_once(
    client: Client, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = send_files(client, "{run: ./tool}", base=base)
    monkeypatch.setattr(client, "put_package", None)
    assert send_files(client, "{run: ./tool}", base=base) == first


def test_dry_run_uploads_nothing(client: Client, controller: Any, base: Path) -> None:
    text, _ = send_files(client, "{run: ./tool}", base=base, dry_run=True)
    assert load_job(text).working_dir
    assert controller.packages == {}


def test_large_directory_is_a_warning_beside_the_file_and_an_error_where_named(
    client: Client, controller: Any, base: Path
) -> None:
    with (base / "data.bin").open("wb") as file:
        file.truncate(10 << 30)
    text, (warning,) = send_files(client, "{run: ./tool}", base=base)
    assert text == "{run: ./tool}"
    assert (
        warning.problem
        == (
            f"no files are sent: {base} has 10 GiB, at most 500 MiB are sent; largest: data.bin "
            "(10 GiB), requirements.txt (0 B), tool (0 B)"
        )
        or "has 10 GiB" in warning.problem
    )
    with pytest.raises(SpecError, match="has 10 GiB") as caught:
        send_files(client, "{run: ./tool, working_dir: .}", base=base)
    assert caught.value.code == "too_large"
    assert controller.packages == {}


def test_home_directory_is_sent_only_where_named(
    client: Client, controller: Any, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(base))
    _, (warning,) = send_files(client, "{run: ./tool}", base=base)
    assert "is a home directory" in warning.problem
    _, (warning,) = send_files(client, "{run: project/tool}", base=base.parent)
    assert "is a home directory or a broader one" in warning.problem
    assert controller.packages == {}
    send_files(client, "{run: ./tool, working_dir: '~'}", base=base)
    assert len(controller.packages) == 1


def test_directory_that_changes_while_it_is_sent_is_sent_again(
    client: Client, controller: Any, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, changes = client.put_package, ["first", "second"]

    def put_late(digest: str, pieces: Any) -> None:
        if changes:
            (base / "train.py").write_text(changes.pop())
        put(digest, pieces)

    monkeypatch.setattr(client, "put_package", put_late)
    text, _ = send_files(client, "{run: ./tool, working_dir: .}", base=base)
    assert "train.py" in files_of(controller, text)
    (base / "train.py").write_text("other")  # else the controller has it
    changes += ["a", "ab", "abc"]
    with pytest.raises(SpecError, match="changed while the directory was sent"):
        send_files(client, "{run: ./tool, working_dir: .}", base=base)


def test_requirements_file_is_read_with_those_that_it_names(client: Client, base: Path) -> None:
    (base / "requirements.txt").write_text(
        "# of the project\nnumpy>=2  # arrays\n-r lib/more.txt\nodd @ file:///x#egg\\\n; os_name\n"
    )
    (base / "lib" / "more.txt").write_text("\nrequests\n")
    text, _ = send_files(client, "{run: 'true', pip: requirements.txt}", base=base)
    assert load_job(text).pip == ("numpy>=2", "requests", "odd @ file:///x#egg ; os_name")
    (base / "lib" / "more.txt").write_text("-r more.txt")
    with pytest.raises(SpecError, match="names itself"):
        send_files(client, "{run: 'true', pip: requirements.txt}", base=base)
    with pytest.raises(SpecError, match="there is no such file"):
        send_files(client, "{run: 'true', pip: missing.txt}", base=base)


def test_package_is_of_its_user(client: Client, controller: Any, base: Path) -> None:
    digest = packing.package_of(base).digest()
    assert not client.has_package(digest)
    controller.packages["another-user", digest] = b""
    assert not client.has_package(digest)


def test_upload_of_other_content_is_rejected(client: Client) -> None:
    with pytest.raises(SpecError) as caught:
        client.put_package("0" * 64, [b"x"])
    assert caught.value.code == "changed"


def test_base_is_the_directory_of_the_file_or_the_current_one(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").touch()
    assert base_of(tmp_path / "job.yaml") == tmp_path
    assert base_of(Path("/dev/stdin")) == Path.cwd()
    assert sending.base_of(Path("/dev/null")) == Path.cwd()


# --------------------------------------------------------------------------- shared directories


@pytest.fixture
def nodes_share(controller: Any) -> None:
    controller.unshared = {}


@pytest.mark.usefixtures("nodes_share")
@pytest.mark.parametrize(
    ("keys", "directory"),
    [
        ({"run": "./tool"}, "."),
        ({"run": "train:main"}, "."),
        ({"ray": {"script": "train.py"}}, "."),
        ({"run": "true", "working_dir": "shared"}, "."),
        ({"run": "true", "working_dir": {"shared": "lib"}}, "lib"),
        ({"run": "./tool", "pip": ["numpy"]}, "."),
    ],
)
def test_directory_that_all_nodes_share_is_named_and_not_sent(
    client: Client, controller: Any, base: Path, keys: dict[str, Any], directory: str
) -> None:
    shown: list[str] = []
    text, warnings = send_files(client, keys, base=base, show=shown.append)
    place = (base / directory).resolve()
    found = yaml.safe_load(text)
    assert found["working_dir"] == {"shared": str(place), "inode": place.stat().st_ino}
    assert (warnings, controller.packages) == ((), {})
    assert shown == [f"it runs in {place} itself, which all nodes share"]
    assert list(place.glob(".headgate*")) == [], "the marker is gone"
    assert load_job(text).working_dir


@pytest.mark.usefixtures("nodes_share")
@pytest.mark.parametrize(
    "keys",
    [
        {"run": "./tool", "working_dir": "."},
        {"run": "./tool", "setup": "make"},
        {"run": "./tool", "pip": ["-e ."]},
    ],
)
def test_copy_is_sent_where_it_is_named_and_where_nodes_prepare_something_from_the_files(
    client: Client, controller: Any, base: Path, keys: dict[str, Any]
) -> None:
    shown: list[str] = []
    text, _ = send_files(client, keys, base=base, show=shown.append)
    assert "tool" in files_of(controller, text)
    assert shown == ["it runs in a copy of the directory at submission"]


def test_command_starts_in_its_directory_where_all_nodes_share_it_though_it_names_no_file(
    client: Client, controller: Any, base: Path
) -> None:
    assert "working_dir" not in send_files(client, {"run": "make"}, base=base, here=True)[0]
    controller.unshared = {}
    text, _ = send_files(client, {"run": "make"}, base=base, here=True)
    assert yaml.safe_load(text)["working_dir"]["shared"] == str(base.resolve())
    assert "working_dir" not in send_files(client, {"run": "make"}, base=base)[0]


def test_directory_that_a_node_lacks_is_an_error_where_it_is_to_be_shared_and_else_a_copy(
    client: Client, controller: Any, base: Path
) -> None:
    controller.unshared = {
        **{f"n{n}": "No such file or directory" for n in (10, 2)},
        "n3": "Permission denied",
    }
    with pytest.raises(SpecError) as caught:
        send_files(client, {"run": "./tool", "working_dir": "shared"}, base=base)
    assert str(caught.value) == (
        f"working_dir: {base} is not shared by all nodes: n2, n10: No such file or directory; "
        "n3: Permission denied; 'working_dir: .' sends a copy of it"
    )
    assert (caught.value.code, controller.packages) == ("not_shared", {})
    assert "tool" in files_of(controller, send_files(client, "{run: ./tool}", base=base)[0])


@pytest.mark.usefixtures("nodes_share")
def test_directory_in_which_no_marker_can_be_made_is_sent_and_never_shared(
    client: Client, controller: Any, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> None:  # root may write everywhere
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(sharing, "_marked", refuse)
        with pytest.raises(SpecError, match="no file can be made in it: Permission denied"):
            send_files(client, {"run": "x", "working_dir": "shared"}, base=base)
        text, _ = send_files(client, "{run: ./tool}", base=base)
    assert "tool" in files_of(controller, text)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_marker_is_removed_when_its_client_is_interrupted(base: Path, end: type) -> None:
    markers: list[str] = []

    class Interrupted:
        def shared_directory(self, path: str, name: str, content: str) -> dict[str, Any]:
            marker = Path(path, name)
            markers.append(marker.read_text())
            assert marker.stat().st_mode & 0o777 == 0o600
            assert markers == [content]
            raise end

    with pytest.raises(end):
        sharing.shared_by_nodes(Interrupted(), base)
    assert markers
    assert list(base.glob(".*")) == []


def test_markers_of_other_submissions_are_not_sent(
    client: Client, controller: Any, base: Path
) -> None:
    (base / f"{MARKER_PREFIX}{'0' * 32}").touch()
    text, _ = send_files(client, {"run": "x", "working_dir": "."}, base=base)
    assert not [name for name in files_of(controller, text) if name.startswith(".")]
