"""What is set before any test computes, whichever file comes first, and the order of the files."""

import mmap
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MAPS, MOST_MAPS = Path("/proc/self/maps"), 15_000
# The files that take longest begin before all others, so that both processes end together.
LONGEST = [
    "paper/test_paper_run.py", "docs/test_readme.py", "docs/test_examples.py", "report/test_report_browser.py",
    "runtime/test_engines.py", "posterior/test_posteriors.py", "estimators/test_gbpl.py", "posterior/test_chains.py",
    "frozen/test_file.py", "test_style.py", "estimators/test_logged_fit.py", "passes/test_passes.py",
    "cli/test_cli.py", "test_contracts.py", "test_surrogates.py", "estimators/test_sklearn.py", "study/test_study.py",
    "estimators/test_gbplnet.py", "docs/test_portfolio_example.py", "passes/test_by_sums.py", "frozen/test_onnx.py",
    "docs/test_docs_site.py", "path/test_out_of_fold.py", "nuisance/test_cross_fit.py", "fitting/test_stack.py",
]  # fmt: skip
# Nearly all of the time of the tests is compilation. With fewer passes of LLVM, XLA's other generator of loops and one
# part per program it is less: the last two flags took a fifth from three files of tests. The last digits of fits may
# differ. `XLA_FLAGS= pytest` compiles as users do.
QUICK = {
    "xla_backend_optimization_level": "1",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
    "xla_backend_extra_options": "xla_cpu_disable_loop_unrolling,xla_cpu_disable_slp_vectorizer",
}


def _known(flag: str) -> bool:
    """Whether the XLA that is installed has this flag: one that it does not have ends the process."""
    spec = find_spec("jaxlib")
    for path in Path(next(iter(spec.submodule_search_locations))).glob("*.so"):
        with path.open("rb") as library, mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(flag.encode()) >= 0:
                return True
    return False


os.environ["GBPL_CPU_DEVICES"] = "2"
os.environ.setdefault("XLA_FLAGS", " ".join(f"--{flag}={value}" for flag, value in QUICK.items() if _known(flag)))

import jax  # noqa: E402

import gbpl.runtime.devices  # noqa: E402, F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order of LONGEST, then the others as they were."""
    rank = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(autouse=True, scope="module")
def _release_compiled_functions() -> Iterator[None]:
    """Compiled functions stay for later files while there is room: each maps memory, a process may have 65,530 maps."""
    yield
    if not MAPS.exists() or MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
