"""Where independent tasks run: in this process, in others of this machine (joblib), or on a Ray cluster.

The result of a task does not depend on where it runs. A fit's last digits depend on how many JAX devices share its
members, so a worker gets as many CPU devices as this process has, and as many threads. With `GBPL_CPU_DEVICES=1` a task
has one core.

On Ray these are plain tasks, not joblib's backend for Ray: that one deals work to a pool of actors, and an actor that
is killed ends the run with `ActorDiedError`, while a task is run again on another worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gbpl.runtime.progress import Progress

if TYPE_CHECKING:
    import jax

    from gbpl.runtime.devices import DeviceName

__all__ = ["check_engine", "in_chunks", "run_tasks", "task_needs"]

LOCAL, RAY = "local", "ray"
RETRIES = 3  # of a task whose worker died: a killed one is run again, one that crashes its worker ends the run
ENDING = 30.0  # seconds in which cancelled tasks end
WAITING = 2  # tasks handed out for each that can run: no worker waits for its next, and the queue stays short


def check_engine(engine: str) -> str:
    """Refuse an engine that is not available, before any work."""
    if engine == LOCAL:
        return engine
    if engine == RAY:
        try:
            import ray  # noqa: F401
        except ModuleNotFoundError as error:
            raise ValueError("engine='ray' needs Ray: pip install 'gbpl[ray]', or use engine='local'") from error
        return engine
    from joblib.parallel import BACKENDS

    known = sorted(set(BACKENDS) - {"multiprocessing"})  # that one forks, and JAX does not survive a fork
    if engine not in known:
        raise ValueError(f"engine must be 'local', 'ray' or a joblib backend ({', '.join(known)}), got {engine!r}")
    return engine


def task_needs(device: DeviceName | Sequence[jax.Device] = "auto") -> dict[str, int]:
    """What `run_tasks` sets aside for a task that fits as this process would on `device`."""
    from gbpl.runtime.devices import resolve_devices

    devices = resolve_devices(device)
    return {"cpus": len(devices)} if devices[0].platform == "cpu" else {"cpus": 1, "gpus": 1}


def run_tasks(
    function: Callable[[Any], Any], items: Sequence[Any], *, engine: str = LOCAL, cpus: int = 1, gpus: int = 0
) -> Iterator[tuple[int, Any]]:
    """(number, function(item)) of every item, as they finish.

    `engine` is "local" (here, in order), "ray" (tasks of the cluster `ray.init` has connected to, of the one that
    `RAY_ADDRESS` names, or of one started on this machine), or a joblib backend such as "loky". A task has `cpus` cores
    and `gpus` GPUs to itself. What `function` raises is raised here, and the remaining tasks are cancelled.

    >>> sorted(run_tasks(abs, [-3, 2], engine="local"))
    [(0, 3), (1, 2)]
    """
    check_engine(engine)
    if engine == LOCAL:
        return ((number, function(item)) for number, item in enumerate(items))
    if engine == RAY:
        return _by_ray(function, items, cpus, gpus)
    from joblib import cpu_count

    return _by_joblib(function, items, engine, 1 if gpus else max(1, cpu_count() // cpus))


def in_chunks(
    function: Callable[[list[Any]], Sequence[Any]],
    items: Sequence[Any],
    *,
    engine: str,
    size: int,
    device: DeviceName | Sequence[jax.Device] = "auto",
    progress: bool | None = False,
) -> list[Any]:
    """Results in the items' order, of a function that takes a list of items and gives one result for each.

    Items go in lists of `size`, whatever the number of workers, so that the results do not depend on it.

    >>> in_chunks(lambda some: [i * i for i in some], [1, 2, 3], engine="local", size=2)
    [1, 4, 9]
    """
    chunks = [list(items[start : start + size]) for start in range(0, len(items), size)]
    results: list[Sequence[Any]] = [()] * len(chunks)
    bar = Progress("fitting", len(chunks), show=progress)
    try:
        for done, (number, part) in enumerate(run_tasks(function, chunks, engine=engine, **task_needs(device)), 1):
            results[number] = part
            bar.update(done, "tasks")
    finally:
        bar.close()
    return [result for part in results for result in part]


# -- joblib -----------------------------------------------------------------------------------------------------------


def _numbered(function: Callable[[Any], Any], number: int, item: Any) -> tuple[int, Any]:
    return number, function(item)


def _by_joblib(
    function: Callable[[Any], Any], items: Sequence[Any], backend: str, workers: int
) -> Iterator[tuple[int, Any]]:
    """Processes of this machine, which have the cores and the `GBPL_CPU_DEVICES` of this one."""
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=workers, backend=backend, return_as="generator_unordered", max_nbytes=None)
    yield from parallel(delayed(_numbered)(function, number, item) for number, item in enumerate(items))


# -- Ray --------------------------------------------------------------------------------------------------------------


def _environment(cpus: int, gpus: int) -> dict[str, str]:
    """Variables of a worker: its JAX devices and the threads of XLA and BLAS, none of which look at Ray's limits."""
    count = str(cpus)
    variables = {"JAX_NUM_CPU_DEVICES": count, "PJRT_NPROC": count, "OMP_NUM_THREADS": count}
    return variables | ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if gpus else {"JAX_PLATFORMS": "cpu"})


@contextmanager
def _cluster(cpus: int, gpus: int) -> Iterator[Any]:
    """Ray with a node that is large enough, started for the duration of the block if it was not running."""
    import ray

    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    try:
        for kind, wanted in (("CPU", cpus), ("GPU", gpus)):
            most = max((node["Resources"].get(kind, 0) for node in ray.nodes() if node["Alive"]), default=0)
            if most < wanted:
                remedy = f"set GBPL_CPU_DEVICES={most:.0f}" if kind == "CPU" and most >= 1 else f"add a {kind} node"
                raise ValueError(
                    f"a task takes {wanted} {kind}(s), as many as a fit uses here, and the largest node of the Ray "
                    f"cluster has {most:.0f}; {remedy}, or use engine='local'"
                )
        yield ray
    finally:
        if started:
            ray.shutdown()


def _by_ray(function: Callable[[Any], Any], items: Sequence[Any], cpus: int, gpus: int) -> Iterator[tuple[int, Any]]:
    with _cluster(cpus, gpus) as ray:
        task = ray.remote(
            num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, runtime_env={"env_vars": _environment(cpus, gpus)}
        )(_numbered)
        shared = ray.put(function)  # its data travel once
        left = iter(enumerate(items))
        running: dict[Any, int] = {}
        try:
            while True:
                total = ray.cluster_resources()
                room = total.get("GPU", 0) // gpus if gpus else total.get("CPU", 0) // cpus
                while len(running) < WAITING * max(1, int(room)) and (following := next(left, None)) is not None:
                    running[task.remote(shared, *following)] = following[0]
                if not running:
                    return
                (finished,), _ = ray.wait(list(running), num_returns=1)
                number = running.pop(finished)
                yield _result(ray, finished, number)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            if running:  # the caller clears up what they wrote
                ray.wait(list(running), num_returns=len(running), timeout=ENDING)


def _result(ray: Any, reference: Any, number: int) -> tuple[int, Any]:
    """The result of a task; what it raised is raised as if it had run here."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise RuntimeError(
            f"task {number} was lost with its worker {RETRIES + 1} times ({type(error).__name__}); look for a lack of "
            "memory on the nodes, and give each task more cores, so that fewer run side by side"
        ) from error
