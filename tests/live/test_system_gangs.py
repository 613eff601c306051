"""Gangs, tasks of several GPUs and of parts of one, live under the default policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.live.system import Gates, Headgate

from headgate.base.errors import HeadgateError

pytestmark = pytest.mark.live


SYSTEM = {"nodes": 2, "gpus": 2}


def gang(run: str, *, members: int, gpus: int) -> str:
    tasks = {"count": members, "run": run, "resources": {"gpus": gpus}, "retries": 1}
    return json.dumps({"name": "gang", "gang": True, "tasks": tasks})


def test_the_members_of_a_gang_know_each_other_and_hold_all_their_gpus(headgate: Headgate) -> None:
    variables = (
        "$HEADGATE_RANK of $HEADGATE_GANG_SIZE on $CUDA_VISIBLE_DEVICES: $HEADGATE_GANG_HOSTS"
    )
    job = headgate.submit(gang(f"echo {variables} > {{output}}", members=2, gpus=2))
    headgate.ends(job)
    hosts = [task["node"] for task in headgate.client.tasks(job)]
    assert sorted(hosts) == ["n0", "n1"]
    first, second = (headgate.result(job, rank).decode().split(": ") for rank in (0, 1))
    assert (first[0], second[0]) == ("0 of 2 on 0,1", "1 of 2 on 0,1")
    assert first[1] == second[1]
    assert len(set(first[1].strip().split(","))) == 2


def test_environment_of_a_run_has_its_amounts(headgate: Headgate) -> None:
    def environment(**resources: object) -> dict[str, str]:
        run = "env | grep -E '^(HEADGATE_(GPU|CPUS|MEMORY)|CUDA)' > {output}"
        job = headgate.submit(json.dumps({"run": run, "resources": resources}))
        headgate.ends(job)
        lines = headgate.result(job).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    (size_bytes,) = {g["memory_bytes"] for node in headgate.client.nodes() for g in node["gpus"]}
    share = environment(gpus=0.25, cpus=0.5, memory="64MiB")
    assert share.pop("CUDA_VISIBLE_DEVICES") in ("0", "1")
    assert share == {
        "HEADGATE_GPU_SHARE": "0.25",
        "HEADGATE_GPU_MEMORY_BYTES": str(size_bytes // 4),
        "HEADGATE_CPUS": "0.5",
        "HEADGATE_MEMORY_BYTES": str(64 << 20),
    }
    assert environment(gpus=2) == {"CUDA_VISIBLE_DEVICES": "0,1", "HEADGATE_GPU_SHARE": "1"}
    assert environment(gpus=0) == {"CUDA_VISIBLE_DEVICES": "", "HEADGATE_CPUS": "1"}


def test_gang_waits_until_all_members_fit_with_a_reason(headgate: Headgate, tmp_path: Path) -> None:
    gates = Gates(tmp_path / "gates")
    holder = headgate.submit(json.dumps({"name": "holder", "run": gates.command("true")}))
    headgate.running(holder, 1)
    job = headgate.submit(gang("true", members=2, gpus=2))
    reason = headgate.until(
        lambda: (
            reason
            if (reason := headgate.client.why(job)["reason"]) and reason["code"] == "GangShort"
            else None
        ),
        "the gang is too short",
    )
    assert reason["numbers"].pop("reserved")["after"] == [holder]
    assert reason["numbers"] == {
        "placeable_tasks": 1, "tasks": 2, "free_gpus": 3, "needed_gpus": 4, "lacking": "",
        "stopping_tasks": 0, "after_moves": None, "model": "",
    }  # fmt: skip
    assert not headgate.tasks_in(job, "running")
    gates.open(0)
    headgate.ends(holder)
    headgate.ends(job)


def test_topology_that_changes_leaves_a_running_gang_untouched(
    headgate: Headgate, tmp_path: Path
) -> None:
    gates, client = Gates(tmp_path / "gates"), headgate.client
    job = headgate.submit(gang(gates.command("true"), members=2, gpus=2))
    headgate.running(job, 2)
    with pytest.raises(HeadgateError, match="does not name the nodes n0 of the cluster"):
        client.set_topology("mesh: {shape: [2], bandwidth: 1e9, nodes: [n1, n2]}")
    client.set_topology("mesh: {shape: [2], bandwidth: 1e9, nodes: [n1, n0]}")
    view = client.topology()
    assert view["kind"] == "mesh"
    assert [(leaf["node"], leaf["jobs"]) for leaf in view["leaves"]] == [
        ("n1", [job]), ("n0", [job]),
    ]  # fmt: skip
    client.set_topology("")
    assert [leaf["jobs"] for leaf in client.topology()["leaves"]] == [[job]] * 4
    gates.open(0)
    gates.open(1)
    headgate.ends(job)
    assert [task["attempts"] for task in client.tasks(job)] == [1, 1]


def one_per_node(run: str, *, nodes: int, retries: int = 0, **options: object) -> str:
    tasks = {"run": run, "resources": {"gpus": 1}, "retries": retries}
    return json.dumps({"name": "nodes", "num_nodes": nodes, "tasks": tasks, **options})


def test_processes_of_num_nodes_run_on_a_node_each_with_the_variables_of_torchrun(
    headgate: Headgate,
) -> None:
    run = (
        "echo $RANK $NODE_RANK $LOCAL_RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES: $MASTER_ADDR "
        "$MASTER_PORT $HEADGATE_GANG_HOSTS > {output}"
    )
    job = headgate.submit(one_per_node(run, nodes=2))
    headgate.ends(job)
    assert sorted(task["node"] for task in headgate.client.tasks(job)) == ["n0", "n1"]
    first, second = (headgate.result(job, rank).decode().split(": ") for rank in (0, 1))
    assert (first[0], second[0]) == ("0 0 0 of 2 on 0", "1 1 0 of 2 on 0")
    assert first[1] == second[1]
    address, port, hosts = first[1].split()
    assert address == hosts.split(",")[0]
    assert port.isdigit()


def test_num_nodes_with_more_nodes_than_there_are_is_rejected_with_the_largest(
    headgate: Headgate,
) -> None:
    with pytest.raises(HeadgateError, match="at most 2 fit"):
        headgate.submit(one_per_node("true", nodes=3))


def test_next_attempt_of_num_nodes_has_another_port(headgate: Headgate, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    run = (
        f"echo $RANK $MASTER_PORT >> {trace}; "
        f"until [ $(grep -c . {trace}) -ge 2 ]; do sleep 0.1; done; "
        f"[ $RANK = 0 ] || [ $(grep -c . {trace}) -gt 2 ] || exit 1; "
        f"until [ $(grep -c . {trace}) = 4 ]; do sleep 0.1; done"
    )
    job = headgate.submit(one_per_node(run, nodes=2, retries=1))
    headgate.ends(job)
    lines = [line.split() for line in trace.read_text().splitlines()]
    assert [sorted(rank for rank, _ in lines[i : i + 2]) for i in (0, 2)] == [["0", "1"]] * 2
    ports = [{port for _, port in lines[i : i + 2]} for i in (0, 2)]
    assert [len(each) for each in ports] == [1, 1]
    assert ports[0] != ports[1]


def test_command_of_launch_first_starts_programs_on_the_other_node(headgate: Headgate) -> None:
    run = (
        "cat $HEADGATE_HOSTFILE; for host in $(cut -d' ' -f1 $HEADGATE_HOSTFILE); "
        "do $OMPI_MCA_plm_rsh_agent $host 'echo rank $HEADGATE_RANK'; done"
    )
    job = headgate.submit(one_per_node(f"({run}) > {{output}}", nodes=2, launch="first"))
    headgate.ends(job)
    lines = headgate.result(job, 0).decode().splitlines()
    assert [line.split()[1] for line in lines] == ["slots=1", "slots=1", "0", "1"]
    assert headgate.result(job, 1) == b""


def test_a_gang_that_loses_a_member_starts_again_whole(headgate: Headgate, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    run = (
        f"touch {marks}/$HEADGATE_RANK.$$; "
        f"if [ $HEADGATE_RANK = 1 ] && [ ! -e {marks}/failed ]; then "
        f"  until ls {marks}/0.*; do sleep 0.1; done; touch {marks}/failed; exit 1; fi; "
        # without the second start of rank 1, no member would ever end
        f"until [ $(ls {marks} | grep -c '^1[.]') = 2 ]; do sleep 0.1; done"
    )
    job = headgate.submit(gang(run, members=2, gpus=2))
    headgate.ends(job)
    starts = sorted(path.name.split(".")[0] for path in marks.glob("*.*"))
    assert starts == ["0", "0", "1", "1"]
    assert [task["attempts"] for task in headgate.client.tasks(job)] == [2, 2]
