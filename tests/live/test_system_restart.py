"""The controller may die at any moment: runs continue, and finished tasks stay finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.system import Gates, Headgate

from headgate.base.errors import WorldError

pytestmark = pytest.mark.live
LETTERS = (b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h")


SYSTEM = {"nodes": 4, "gpus": 1}


@pytest.fixture(autouse=True)
def _history(headgate: Headgate) -> Iterator[None]:
    """End jobs that a failed test has left, and restart what it has killed."""
    yield
    headgate.up()
    for job in headgate.client.jobs()["jobs"]:
        if job["state"] in ("queued", "active"):
            headgate.client.cancel(job["id"])


def _job(gates: Gates, tasks: int) -> str:
    return f"""
name: work
tasks: {{count: {tasks}, run: "{gates.command()}", retries: 0}}
reduce: {{run: "cat {{shards}} > {{output}}"}}
"""


def _holding(headgate: Headgate, prefix: str) -> list[str]:
    """Return the nodes that keep shards with such names."""
    return [
        node.id
        for node in headgate.nodes
        if any(shard.id.startswith(prefix) for shard in headgate.store(node.id).list())
    ]


def _put_four(headgate: Headgate, dataset: str) -> None:
    for index in range(4):  # on four nodes one after the other
        headgate.client.put_shard(dataset, index, [b"a shard"], replicas=2)


def test_a_killed_controller_loses_nothing(headgate: Headgate, gates: Gates) -> None:
    job = headgate.submit(_job(gates, 6), key="once")
    gates.open(0, 1)
    headgate.until(lambda: len(headgate.tasks_in(job, "finished")) == 2, "two have finished")
    headgate.running(job, 4)
    for index in range(2):
        headgate.client.put_shard("half", index, [b"half"], replicas=2)
    pid = headgate.client.info()["pid"]

    headgate.kill_controller()
    gates.open(2)
    headgate.until(lambda: "2" in gates.seen("end"), "one ends while the controller is down")
    assert headgate.up()["pid"] != pid

    assert headgate.client.info()["replayed_events"] > 0
    assert headgate.submit(_job(gates, 6), key="once") == job, "the same key, the same job"
    headgate.until(lambda: len(headgate.tasks_in(job, "finished")) == 3, "its end is reported")
    assert sorted(gates.seen("start")) == ["0", "1", "2", "3", "4", "5"]
    assert sorted(gates.seen("end")) == ["0", "1", "2"]
    gates.open(3, 4, 5)
    headgate.ends(job)
    assert headgate.result(job) == b"0\n1\n2\n3\n4\n5\n"
    assert (
        sorted(gates.seen("start")) == sorted(gates.seen("end")) == ["0", "1", "2", "3", "4", "5"]
    )
    assert [task["attempts"] for task in headgate.client.tasks(job)] == [1] * 7
    headgate.until(lambda: not _holding(headgate, "half:"), "what was put half-way is swept")
    assert headgate.client.datasets() == []


def test_terminated_controller_ends_without_an_error_in_the_log(
    headgate: Headgate, gates: Gates
) -> None:
    before = len(headgate.logged())
    jobs = [headgate.submit(_job(gates, 6)) for _ in range(3)]
    headgate.until(lambda: len(gates.seen("start")) >= 4, "some run")
    headgate.kill_controller(signal.SIGTERM)
    gates.open(0, 1, 2, 3, 4, 5)
    headgate.up()
    for job in jobs:
        headgate.ends(job)
        assert headgate.result(job) == b"0\n1\n2\n3\n4\n5\n"
    assert "ERROR" not in headgate.logged()[before:]


def test_one_key_is_one_job_for_repeated_and_concurrent_submissions(headgate: Headgate) -> None:
    ids: list[str] = []

    def submit(key: str) -> None:
        ids.append(headgate.submit("{name: same, run: 'true'}", key=key))

    threads = [threading.Thread(target=submit, args=(key,)) for key in ["a", "b"] * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(ids) == 8
    assert len(set(ids)) == 2
    for job in set(ids):
        headgate.ends(job)


def test_nothing_is_lost_when_the_controller_is_killed_repeatedly(
    headgate: Headgate, gates: Gates
) -> None:
    job = headgate.submit(_job(gates, 12), key="storm")
    for first in (0, 4, 8):
        headgate.until(lambda first=first: len(gates.seen("start")) >= first + 4, "four started")
        gates.open(*range(first, first + 4))
        headgate.kill_controller()  # while ends, starts and decisions are on their way
        headgate.up()
    headgate.ends(job)
    assert headgate.result(job) == b"".join(b"%d\n" % i for i in range(12))
    numbers = sorted(str(i) for i in range(12))
    assert sorted(gates.seen("start")) == sorted(gates.seen("end")) == numbers


def test_cancelled_run_is_ended_even_if_its_stop_is_lost(headgate: Headgate, gates: Gates) -> None:
    job = headgate.submit(f"{{name: hang, run: '{gates.command()}'}}")
    headgate.running(job, 1)
    (master,) = headgate.actors("Master")
    master.send_signal(signal.SIGSTOP)  # the stop does not arrive
    headgate.client.cancel(job)
    headgate.kill_controller()
    master.send_signal(signal.SIGKILL)
    headgate.up()
    headgate.ends(job, "cancelled")
    headgate.until(lambda: gates.alive() == [], "the run's process is gone")


def test_nodes_die_and_return_while_the_controller_is_down(
    headgate: Headgate, gates: Gates
) -> None:
    job = headgate.submit(_job(gates, 6))
    gates.open(0, 1)
    headgate.until(lambda: len(headgate.tasks_in(job, "finished")) == 2, "two have finished")
    before = {task["ordinal"]: task["node"] for task in headgate.running(job, 4)}
    headgate.kill_controller()
    headgate.kill_node("n1")
    headgate.kill_node("n3")
    headgate.restart_node("n3")
    gates.open(2, 3, 4, 5)
    headgate.up()
    headgate.until(lambda: headgate.up_nodes() == {"n0", "n2", "n3"}, "who is there is known")
    headgate.ends(job)
    assert headgate.result(job) == b"0\n1\n2\n3\n4\n5\n"
    attempts = {task["ordinal"]: task["attempts"] for task in headgate.client.tasks(job)}
    lost = {ordinal for ordinal, node in before.items() if node in ("n1", "n3")}
    assert all(attempts[ordinal] == (2 if ordinal in lost else 1) for ordinal in before), attempts
    headgate.restart_node("n1")
    headgate.until(lambda: len(headgate.up_nodes()) == 4, "the last one is back")


def test_second_up_finds_the_first_and_a_file_at_the_socket_path_is_rejected(
    headgate: Headgate,
) -> None:
    facts = headgate.client.info()
    again = headgate.up()
    assert (again["already_running"], again["pid"]) == (True, facts["pid"])
    headgate.kill_controller()
    socket = headgate.state / "headgate.sock"
    assert socket.exists(), "a dead controller leaves its socket behind"
    error = headgate.call("jobs", code=1)
    assert error["code"] == "unreachable"
    socket.unlink()
    socket.write_text("a user's notes")
    error = headgate.call("up", code=1)
    assert "not a socket" in error["problems"][0]["hint"]
    assert socket.read_text() == "a user's notes"
    socket.unlink()
    assert headgate.up()["already_running"] is False


def test_job_finishes_correctly_after_deaths_of_masters_and_executors(
    headgate: Headgate, gates: Gates
) -> None:
    job = headgate.submit(_job(gates, 6))
    gates.open(0, 1)
    headgate.until(lambda: len(headgate.tasks_in(job, "finished")) == 2, "two have finished")
    before = {task["node"]: task["ordinal"] for task in headgate.running(job, 4)}
    (master,) = headgate.actors("Master")
    master.send_signal(signal.SIGKILL)
    gates.open(before["n0"])
    headgate.until(lambda: len(headgate.tasks_in(job, "finished")) == 3, "the new master reports")
    (executor,) = headgate.actors("TaskExecutor", "n1")
    executor.send_signal(signal.SIGKILL)
    headgate.until(
        lambda: gates.seen("start").count(str(before["n1"])) == 2, "what it ran runs again"
    )
    headgate.until(lambda: len(gates.alive()) == 3, "its own processes went with it")
    gates.open(2, 3, 4, 5)
    headgate.ends(job)
    assert headgate.result(job) == b"0\n1\n2\n3\n4\n5\n"
    starts = {i: gates.seen("start").count(str(i)) for i in range(6)}
    assert starts == {i: 2 if i == before["n1"] else 1 for i in range(6)}


def test_runs_and_needed_results_of_a_lost_node_are_repeated(
    headgate: Headgate, gates: Gates, tmp_path: Path
) -> None:
    data = tmp_path / "letters"
    data.write_bytes(b"".join(letter * 1000 for letter in LETTERS))
    headgate.put("letters", data, len(LETTERS), replicas=2)
    job = headgate.submit(f"""
name: letters
data: {{letters: {{from: letters}}}}
tasks:
  for_each: letters
  run: "{gates.command("cp {shard} {output}")}"
reduce: {{run: "cat {{shards}} > {{output}}"}}
""")
    first = headgate.running(job, 4)
    gates.open(*(task["ordinal"] for task in first))
    finished = headgate.until(
        lambda: t if len(t := headgate.tasks_in(job, "finished")) == 4 else None, "four finish"
    )
    lost = [task["ordinal"] for task in finished if task["node"] == "n2"]
    lost += [task["ordinal"] for task in headgate.running(job, 4) if task["node"] == "n2"]
    assert len(lost) == 2, "one of n2 has finished, one runs there"
    headgate.kill_node("n2")
    with pytest.raises(WorldError, match="n2"):
        _put_four(headgate, "late")
    headgate.client.abandon_dataset("late")
    assert not _holding(headgate, "late:")
    headgate.until(lambda: "n2" not in headgate.up_nodes(), "the loss is seen")
    assert all("n2" not in nodes for nodes in headgate.holders("letters"))
    gates.open(*range(len(LETTERS)))
    headgate.ends(job)
    assert headgate.result(job) == data.read_bytes()
    again = [task["ordinal"] for task in headgate.client.tasks(job) if task["attempts"] == 2]
    assert sorted(again) == sorted(lost)

    headgate.restart_node("n2")
    headgate.until(lambda: "n2" in headgate.up_nodes(), "it is back")
    headgate.until(
        lambda: all(len(nodes) == 2 for nodes in headgate.holders("letters")),
        "its replicas count again",
    )
    job = headgate.submit("{name: all, tasks: {count: 4, run: 'sleep 0.5'}}")
    headgate.ends(job)
    assert {task["node"] for task in headgate.client.tasks(job)} == {n.id for n in headgate.nodes}
    headgate.client.remove_dataset("letters")


def test_runs_and_jobs_continue_after_a_power_failure(
    headgate: Headgate, gates: Gates, tmp_path: Path
) -> None:
    data = tmp_path / "kept"
    data.write_bytes(b"kept" * 1000)
    headgate.put("kept", data, 4, replicas=2)
    done = headgate.submit(
        "{name: done, data: {d: {from: kept}}, tasks: {for_each: d, run: 'cat {shard} > {output}'},"
        " reduce: {run: 'cat {shards} > {output}'}}"
    )
    headgate.ends(done)
    job = headgate.submit(_job(gates, 6))
    gates.open(0, 1)
    headgate.until(lambda: len(headgate.tasks_in(job, "finished")) == 2, "two have finished")
    headgate.running(job, 4)
    headgate.kill_controller()
    for node in ("head", *(node.id for node in headgate.nodes)):
        headgate.kill_node(node)
    gates.open(2, 3, 4, 5)
    assert headgate.up()["nodes"] == 4
    headgate.ends(job)
    assert headgate.result(job) == b"0\n1\n2\n3\n4\n5\n"
    assert [len(nodes) for nodes in headgate.holders("kept")] == [2] * 4
    assert headgate.result(done) == data.read_bytes(), "results are there again"


def test_run_whose_launch_is_missing_from_the_journal_is_ended_and_runs_again(
    headgate: Headgate, gates: Gates, tmp_path: Path
) -> None:
    first = headgate.submit(_job(gates, 4))
    headgate.running(first, 4)
    later = headgate.submit(f"{{name: later, run: '{gates.command(name='later')}'}}")
    headgate.kill_controller()
    journal = sorted(headgate.state.glob("journal.db*"))
    earlier = [(file, file.read_bytes()) for file in journal if file.suffix != ".last"]
    headgate.up()
    gates.open(0)
    headgate.until(lambda: "later0" in gates.seen("start"), "its run begins")
    headgate.running(later, 1)
    headgate.kill_controller()
    for file in headgate.state.glob("journal.db*"):
        if file.suffix != ".last":
            file.unlink()
    for file, content in earlier:
        file.write_bytes(content)
    headgate.up()
    assert headgate.client.info()["journal_missing_events"] > 0
    headgate.until(lambda: gates.seen("start").count("later0") == 2, "it is launched again")
    old, new = (int(s.split()[2]) for s in gates.lines() if s.startswith("start later0 "))
    headgate.until(lambda: old not in gates.alive(), "the unknown run is ended")
    assert new in gates.alive()
    gates.open(0, name="later")
    gates.open(1, 2, 3)
    headgate.ends(later)
    headgate.ends(first)
