"""Job files and the jobs that they expand to."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import SpecError
from headgate.model import (
    KEEP_ALL,
    SLOT,
    Demand,
    Job,
    KeepFiles,
    Launch,
    Program,
    ProgramType,
    Shard,
    Stage,
    Task,
)
from headgate.spec import JobFile, expand, job_schema, load_job, warnings_for

INTS = tuple(Shard(id=f"my-ints/{i}", size_bytes=100 + i) for i in range(3))
WORDS = tuple(Shard(id=f"words/{i}", size_bytes=7) for i in range(2))
DATASETS = {"my-ints": INTS, "words": WORDS}


def expanded(text: str, files: dict[str, int] | None = None) -> Job:
    return expand(
        load_job(text), job_id="j7", user="ada", datasets=DATASETS, file_sizes=files or {}
    )


def test_one_task_per_shard_then_a_reduce_that_reads_their_results() -> None:
    job = expanded(
        "name: count\nqueue: research\npriority: 3\n"
        "data: {ints: {from: my-ints}}\n"
        "tasks:\n  for_each: ints\n  run: 'pkg.mod:count'\n  params: {base: 10}\n  retries: 5\n"
        "  resources: {gpu_memory: 2GiB}\n"
        "reduce: {run: 'sort {shards} > {output}', tasks: 2}\n"
        "envs: {B: '2', A: '1'}\n"
    )
    maps = tuple(
        Task(reads=(shard.id,), demand=Demand(gpus=1, gpu_memory_bytes=2 * 2**30)) for shard in INTS
    )
    merge = Task(reads=("j7/0", "j7/1", "j7/2"), after=(0, 1, 2), demand=Demand(cpus_milli=1000))
    assert job.tasks == (*maps, merge, merge)
    assert job.shards == INTS
    assert (job.id, job.name, job.user, job.queue) == ("j7", "count", "ada", "research")
    assert (job.priority, job.retries, job.gang) == (3, 5, False)
    assert job.program == Program(
        envs={"A": "1", "B": "2"},
        stages=(
            Stage(
                first=0,
                count=3,
                program_type=ProgramType.FUNCTION,
                run="pkg.mod:count",
                params={"base": 10},
            ),
            Stage(
                first=3, count=2, program_type=ProgramType.COMMAND, run="sort {shards} > {output}"
            ),
        ),
    )


def test_retention_and_replication_of_results_are_in_the_job() -> None:
    job = expanded("{run: ls, results: {replicas: 3, path: /shared/results}, keep: 36h}")
    assert (job.result_replicas, job.results_path) == (3, "/shared/results")
    assert job.keep_s == 36 * 3600
    plain = expanded("{run: ls, keep: forever}")
    assert (plain.result_replicas, plain.results_path, plain.keep_s) == (1, "", math.inf)
    assert expanded("run: ls").keep_s is None, "the cluster's default holds"


def test_tasks_with_checkpoints() -> None:
    job = expanded(
        "tasks: {count: 2, run: ./train, checkpoint: {every_s: 60, path: /shared/saved}}\n"
        "reduce: {run: 'cat {shards}'}\n"
    )
    assert [task.checkpoint_s for task in job.tasks] == [60, 60, 0]
    assert [stage.checkpoint for stage in job.program.stages] == ["/shared/saved", ""]


def test_num_nodes_is_a_gang_with_one_task_on_each_node() -> None:
    long = expanded(
        "num_nodes: 3\nlaunch: first\n"
        "tasks: {run: mpirun ./solve, resources: {gpus: 4}, retries: 1}\n"
    )
    assert long.tasks == (Task(demand=Demand(gpus=4)),) * 3
    assert (long.gang, long.distinct_nodes, long.retries) == (True, True, 1)
    assert [long.task_program(n).index for n in range(3)] == [0, 1, 2]
    assert long.task_program(2).per_node is Launch.FIRST
    short = expanded("num_nodes: 2\ngang: true\nrun: torchrun train.py\nresources: {gpus: 0}\n")
    assert short.tasks == (Task(demand=Demand(cpus_milli=1000)),) * 2
    assert short.task_program(0).per_node is Launch.ALL
    one = expanded("{num_nodes: 1, run: ls}")
    assert (len(one.tasks), one.gang, one.distinct_nodes) == (1, True, True)


def test_gang_of_a_count_of_tasks_may_share_nodes() -> None:
    job = expanded("gang: true\ntasks: {count: 2, run: ls}\n")
    assert (job.gang, job.distinct_nodes) == (True, False)
    assert job.task_program(0).per_node is None


def test_program_does_not_depend_on_the_order_of_keys_in_its_file() -> None:
    one = expanded("tasks: {count: 2, run: 'm:f', params: {b: 1, a: é}}\nenvs: {X: '1', A: '2'}\n")
    two = expanded("envs: {A: '2', X: '1'}\ntasks: {params: {a: é, b: 1}, run: 'm:f', count: 2}\n")
    assert one.program == two.program


def test_shards_of_several_data_are_paired_by_index() -> None:
    job = expanded(
        "data: {w: {from: words}, f: {files: [/s/a, /s/b]}}\n"
        "tasks: {for_each: [w, f], run: 'cat {shards}'}\n",
        {"/s/a": 11, "/s/b": 12, "/s/c": 13},
    )
    assert [task.reads for task in job.tasks] == [
        ("words/0", "file:/s/a"),
        ("words/1", "file:/s/b"),
    ]
    assert job.shards == (
        WORDS[0],
        Shard(id="file:/s/a", size_bytes=11),
        WORDS[1],
        Shard(id="file:/s/b", size_bytes=12),
    )


def test_the_short_form_is_one_task() -> None:
    job = expanded("run: echo {index}\nresources: {gpus: 0, cpus: 2}\n")
    assert job.tasks == (Task(demand=Demand(cpus_milli=2000)),)
    assert (job.name, job.queue, job.retries) == ("job", "default", 0)
    (stage,) = job.program.stages
    assert (stage.program_type, stage.run) == (ProgramType.COMMAND, "echo {index}")


def test_a_gang_is_a_number_of_tasks_that_start_together() -> None:
    job = expanded("gang: true\ntasks: {count: 4, run: ./train, resources: {gpus: 2}}\n")
    assert (job.gang, job.tasks) == (True, (Task(demand=Demand(gpus=2)),) * 4)


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        ("pkg.mod:function", "function"),
        ("mod:Class.method", "function"),
        ("echo a:b", "command"),
        ("./run.sh", "command"),
        ("http://x", "command"),
        ("nvidia-smi", "command"),
    ],
)
def test_functions_are_distinguished_from_commands(run: str, kind: str) -> None:
    (stage,) = expanded(f"run: '{run}'\n").program.stages
    assert (stage.program_type, stage.run) == (kind, run)


def test_run_times_are_durations() -> None:
    job = expanded("{run: ls, estimated_runtime: 90min, time_limit: 2h}")
    assert (job.estimated_s, job.time_limit_s) == (5400.0, 7200.0)
    plain = expanded("run: ls")
    assert (plain.estimated_s, plain.time_limit_s) == (None, None)


@pytest.mark.parametrize(
    ("text", "grace_s"),
    [("", 30.0), ("grace: 5min", 300.0), ("grace: 10min", 600.0), ("grace: 0s", 0.0)],
)
def test_grace_period_is_a_duration(text: str, grace_s: float) -> None:
    assert expanded(f"run: ls\n{text}\n").grace_s == grace_s


@pytest.mark.parametrize(("expected", "limit"), [("3h", "2h"), ("2h", "2h"), ("2h", None)])
def test_a_run_time_above_the_limit_is_a_warning(expected: str, limit: str | None) -> None:
    text = f"run: ls\nestimated_runtime: {expected}\n" + (f"time_limit: {limit}\n" if limit else "")
    found = [str(problem) for problem in warnings_for(load_job(text))]
    warning = (
        "estimated_runtime: runs of 3 h are stopped at the time limit of 2 h; raise time_limit"
    )
    assert found == ([warning] if expected == "3h" else [])


def test_a_job_file_is_read_from_a_path(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("run: ls\n")
    assert load_job(file) == load_job("run: ls\n")


def test_job_comes_after_one_job_or_several() -> None:
    assert expanded("run: x\nafter: a-1\n").after == ("a-1",)
    assert expanded("run: x\nafter: [a-1, b-2]\n").after == ("a-1", "b-2")
    assert expanded("run: x\n").after == ()


def test_running_limit_of_tasks_leaves_out_those_of_the_reduce() -> None:
    tasks = "tasks: {for_each: ints, run: 'x {shards}', max_running: 2%s}\n"
    data = "data: {ints: {from: my-ints}}\n"
    alone, reduced, repeated = (
        expanded(data + text)
        for text in (
            tasks % "",
            tasks % "" + "reduce: {run: 'x {shards}', tasks: 2}\n",
            tasks % ", iterations: 2"
            + "update: {run: 'x {shards}'}\nreduce: {run: 'x {shards}'}\n",
        )
    )
    assert (alone.max_running, alone.limited_tasks) == (2, None)
    assert (reduced.max_running, reduced.limited_tasks) == (2, 3)
    assert (repeated.max_running, repeated.limited_tasks) == (2, 8)
    assert expanded("run: x\n").max_running is None


# The schema says the same as the models.


def test_job_says_which_files_of_its_runs_are_kept() -> None:
    """By default all, up to a limit; the slots of a lease keep none."""
    keep = {
        text: expanded(f"{{run: {run}, resources: {{gpus: 0}}{text}}}").program.keep_files
        for run, text in (
            ("x", ""),
            ("x", ", keep_files: none"),
            ("x", ", keep_files: {include: ['*.pt'], limit: 4GiB}"),
            (SLOT, ", name: slots"),
        )
    }
    patterns = KeepFiles(include=("*.pt",), limit_bytes=4 << 30)
    assert list(keep.values()) == [KEEP_ALL, None, patterns, None]
    with pytest.raises(SpecError) as caught:
        load_job("{run: x, keep_files: {include: ['!'], limit: much, patterns: []}}")
    assert {problem.path for problem in caught.value.problems} == {
        "keep_files.include",
        "keep_files.limit",
        "keep_files.patterns",
    }


def test_schema_has_every_key_and_rejects_others() -> None:
    schema = job_schema()
    assert set(schema["properties"]) == set(JobFile.model_fields)
    objects = [schema, *schema["$defs"].values()]
    assert all(part["additionalProperties"] is False for part in objects)
    assert "null" not in json.dumps(schema)
    assert schema["$defs"]["Data"]["properties"].keys() == {"from", "files"}
    assert schema["$defs"]["Tasks"]["required"] == ["run"]


@given(
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 3),
    st.booleans(),
)
def test_expansion_counts_and_wiring(shards: int, columns: int, reduces: int, gang: bool) -> None:
    """Tasks of the first stage read every shard once; those of the second all results."""
    names = [f"d{c}" for c in range(columns)]
    datasets = {
        name: tuple(Shard(id=f"{name}/{i}", size_bytes=i) for i in range(shards)) for name in names
    }
    text = (
        "data: {" + ", ".join(f"{name}: {{from: {name}}}" for name in names) + "}\n"
        f"tasks: {{for_each: [{', '.join(names)}], run: 'm:f'}}\n"
        + (f"reduce: {{run: 'm:g', tasks: {reduces}}}\n" if reduces else f"gang: {gang}\n".lower())
    )
    job = expand(load_job(text), job_id="j", user="u", datasets=datasets, file_sizes={})
    first, second = job.tasks[:shards], job.tasks[shards:]
    reads = [read for task in first for read in task.reads]
    assert sorted(reads) == sorted(shard.id for column in datasets.values() for shard in column)
    assert {shard.id for shard in job.shards} == set(reads)
    assert len(second) == reduces
    for task in second:
        assert task.after == tuple(range(shards))
        assert task.reads == tuple(f"j/{i}" for i in range(shards))
    stages = job.program.stages
    assert [stage.first for stage in stages] == [0, shards][: len(stages)]
    assert sum(stage.count for stage in stages) == len(job.tasks)


def test_stdin_is_text_for_commands() -> None:
    problems = {
        "{run: cat, stdin: 3}": "must be text: quote it, or write it behind '|'",
        f"{{run: cat, stdin: {'x' * (256 * 1024 + 1)}}}": "has more than 256 KiB",
        "{run: 'a:b', stdin: x}": "is for commands; a function gets 'params'",
        "{ray: {script: /a.py}, stdin: x}": "does not go with 'ray', whose programs have no stdin",
    }
    for text, problem in problems.items():
        with pytest.raises(SpecError) as error:
            load_job(text)
        assert [(each.path, each.problem) for each in error.value.problems] == [("stdin", problem)]
