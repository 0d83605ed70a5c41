"""ForestFeatures: the leaves that a row falls into, as features of a linear score (section 6).

A network smooths over a step; a tree follows it. Here trees are grown on the targets, and the score is linear in values
of their leaves, so that everything that holds for a linear score holds for it: the posterior over the last layer is all
there is, and it is exact when the score is not squashed.

Two things make it work. A training row's features come from the trees that did not see it: leaves fit the noise of the
rows they were grown on, and weights learned on such leaves would trust them too far. And the leaves' indicators, more
of them than rows, are brought to their leading components (the eigenvectors of the forest's kernel, which counts the
trees that two rows share a leaf of), so that a forest has as many features as a network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from gbpl.fitting.members import Member
from gbpl.fitting.stack import FitConfig, Objective, StackFit, StackProblem, fit_stacks
from gbpl.models.base import check_whole
from gbpl.models.basis import leaf_numbers
from gbpl.models.networks import Linear
from gbpl.models.numpy_form import Forests, layer_matrix
from gbpl.runtime.devices import DeviceName, aligned_empty
from gbpl.runtime.progress import Progress
from gbpl.runtime.threads import in_threads, one_thread
from gbpl.trees.grow import Binned, grow_trees, leaves_of

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int

__all__ = ["ForestFeatures"]

SIZE = 4.0  # root mean square of the features of a row: weights of order one make scores of order one
BAG_ROWS = 20_000  # rows a tree sees at most: its few leaves need no more
COMPONENT_ROWS = 4_000  # rows whose leaves say which components lead
ROWS = 8_192
OVERSAMPLED, ROUNDS = 16, 2  # directions beyond those asked for, and products, of the leading components
FASTER = 2.0  # steps of the last layers, whose objective is nearly quadratic, than those of networks


@dataclass(frozen=True, slots=True)
class ForestFeatures:
    """Linear in the leading components of the leaf indicators of a forest, grown on the member's own training rows.

    trees, depth : how many, and how deep: at most 2^depth leaves each
    components : features that are made of the leaves
    min_leaf : fewest training rows of a leaf
    max_features : share of the features looked at for a split
    bag : share of the rows that a tree is grown on; the others learn from it

    With phi(x) = sum over trees t of value[t, leaf_t(x)], the raw output is phi(x)'w + b, and

        phi(x)'phi(x') is about SIZE^2 times the share of trees in which x and x' fall into one leaf, centred.

    Its parameters are a list as a network's: the trees (`feature`, `threshold`, `value`), which are fixed once grown,
    and the last layer.
    """

    trees: int = 50
    depth: int = 5
    components: int = 64
    min_leaf: int = 5
    max_features: float = 0.5
    bag: float = 0.5

    def __post_init__(self) -> None:
        for name, least in (("trees", 4), ("depth", 1), ("components", 1), ("min_leaf", 1)):
            check_whole(name, getattr(self, name), least)
        if self.depth > 10:
            raise ValueError(f"depth must be at most 10 (1,024 leaves per tree), got {self.depth}; try 5")
        if not 0.0 < self.max_features <= 1.0:
            raise ValueError(f"max_features must be a share in (0, 1], got {self.max_features}; try 0.5")
        if not 0.0 < self.bag < 1.0:
            raise ValueError(f"bag must be a share in (0, 1), got {self.bag}; try 0.5")

    def init(self, key: Array, n_features: int, n_raw: int) -> list[dict[str, Array]]:
        """Trees that send every row the same way, and a last layer of zeros: the shapes of a fitted member."""
        nodes, leaves = 2**self.depth - 1, 2**self.depth
        return [
            {
                "feature": jnp.zeros((self.trees, nodes)),
                "threshold": jnp.full((self.trees, nodes), jnp.inf),
                "value": jnp.zeros((self.trees, leaves, self.components)),
            },
            *Linear().init(key, self.components, n_raw),
        ]

    def features(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row hidden"]:
        grown = params[0]
        chosen = grown["feature"].astype(jnp.int32)

        def add(total: Array, tree: tuple[Array, Array, Array]) -> tuple[Array, None]:
            feature, threshold, value = tree
            node = jnp.zeros(x.shape[0], jnp.int32)
            for _ in range(self.depth):
                right = jnp.take_along_axis(x, feature[node][:, None], axis=1)[:, 0] > threshold[node]
                node = 2 * node + 1 + right
            return total + value[node - (2**self.depth - 1)], None

        start = jnp.zeros((x.shape[0], self.components), x.dtype)
        return jax.lax.scan(add, start, (chosen, grown["threshold"], grown["value"]))[0]

    def apply(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.features(params, x) @ params[-1]["weight"] + params[-1]["bias"]

    def fit_stacks(
        self,
        problems: Sequence[StackProblem],
        objective: Objective,
        *,
        config: FitConfig | None,
        device: DeviceName | Sequence[jax.Device],
        progress: bool | None,
    ) -> list[StackFit]:
        """Grow a forest for each set of training rows, then fit the last layers of all members as one stack."""
        if any(isinstance(problem.target, tuple) for problem in problems):
            raise TypeError(
                "ForestFeatures is a score model; for a forest of the outcomes use "
                "outcome_model=PerAction(RandomForestRegressor(min_samples_leaf=5))"
            )
        together = [_of_one_forest(problem.members) for problem in problems]
        bar = Progress("growing forests", sum(map(len, together)), show=progress)
        flat: list[StackProblem] = []
        places: list[list[tuple[int, list[int], dict[str, np.ndarray]]]] = []
        for problem, forests in zip(problems, together, strict=True):
            places.append([])
            grow = partial(self.grow, problem, Binned.of(problem.x))
            firsts = [problem.members[numbers[0]] for numbers in forests]
            for numbers, (grown, phi) in zip(forests, in_threads(grow, firsts), strict=True):
                places[-1].append((len(flat), numbers, grown))
                flat.append(_renumbered(problem, [problem.members[i] for i in numbers], phi))
                bar.update(len(flat))
        bar.close()
        steps = config or FitConfig()
        steps = replace(steps, learning_rate=FASTER * steps.learning_rate)
        stacks = fit_stacks(flat, objective, Linear(), config=steps, device=device, progress=progress)
        return [_joined(problem, stacks, own) for problem, own in zip(problems, places, strict=True)]

    def grow(
        self, problem: StackProblem, binned: Binned, member: Member
    ) -> tuple[dict[str, np.ndarray], Float[np.ndarray, "row component"]]:
        """The forest of a member's training rows and table, and its features of every row.

        Those of training rows are by the trees that did not see the row.
        """
        n, rows = len(problem.x), member.train
        offset, bags = member.table * n, self.bags(member.seed, len(rows))
        weights = None
        if member.weights is not None:
            weights = np.zeros(n)
            weights[rows] = member.weights
        seen = np.zeros((self.trees, n), bool)
        seen[:, rows] = bags
        feature, cut = grow_trees(
            binned, problem.target[offset : offset + n], seen, depth=self.depth, min_leaf=self.min_leaf,
            max_features=self.max_features, seed=member.seed, weights=weights,
        )  # fmt: skip
        threshold = binned.thresholds(feature, cut)
        leaf = leaves_of(binned, feature, cut)
        used = np.ones((n, self.trees), np.float32)
        used[rows] = _share(bags)
        some = np.random.default_rng([member.seed, 12]).permutation(rows)[:COMPONENT_ROWS]
        value = self._components(leaf[some], used[some])
        return {"feature": feature.astype(np.float32), "threshold": threshold, "value": value}, _sums(leaf, used, value)

    def training_features(
        self, params: list[dict[str, np.ndarray]], x: Float[np.ndarray, "row feature"], seed: int
    ) -> Float[np.ndarray, "row component"]:
        """Features of a member's training rows as its last layer learned from them: by trees that did not see them."""
        return self.unseen_features(params[0], x, self.bags(seed, len(x)))

    def unseen_features(
        self, grown: Mapping[str, np.ndarray], x: Float[np.ndarray, "row feature"], bags: Bool[np.ndarray, "tree row"]
    ) -> Float[np.ndarray, "row component"]:
        """Features of rows by the trees in whose bags they are not."""
        leaf = leaf_numbers(np.asarray(grown["feature"]).astype(np.int32), np.asarray(grown["threshold"]), x)
        return _sums(leaf, _share(bags), np.asarray(grown["value"]))

    def frozen(self, params: list[dict[str, np.ndarray]], n_features: int) -> Forests:
        """Every forest once: members that learned from the same rows have the same one."""
        kinds = {"feature": np.int32, "threshold": np.float32, "value": np.float32}
        arrays = {name: np.asarray(params[0][name], kind) for name, kind in kinds.items()}
        last = np.asarray(layer_matrix(params[-1]), np.float32)
        distinct: dict[bytes, int] = {}  # and the first member that has it
        forest = []
        for member in range(len(last)):
            digest = hashlib.sha256(b"".join(array[member].tobytes() for array in arrays.values())).digest()
            forest.append(distinct.setdefault(digest, member))
        first = np.array(list(distinct.values()))
        return Forests(
            **{name: array[first] for name, array in arrays.items()},
            forest=np.searchsorted(first, forest).astype(np.int32),
            last=last,
        )

    def bags(self, seed: int, count: int) -> Bool[np.ndarray, "tree row"]:
        """Which of the training rows each tree sees."""
        return np.random.default_rng([seed, 11]).random((self.trees, count)) < min(self.bag, BAG_ROWS / count)

    def _components(
        self, leaf: Int[np.ndarray, "row tree"], used: Float[np.ndarray, "row tree"]
    ) -> Float[np.ndarray, "tree leaf component"]:
        """Values of the leaves: leading eigenvectors of the covariance of their indicators, each tree's mean zero."""
        count, leaves = self.trees * 2**self.depth, 2**self.depth
        columns = (leaf + leaves * np.arange(self.trees)).ravel()
        starts = np.arange(0, leaf.size + 1, self.trees)
        indicators = scipy.sparse.csr_matrix((used.ravel(), columns, starts), (len(leaf), count))
        mean = np.asarray(indicators.mean(axis=0), np.float32).ravel()
        made = np.zeros((self.trees, leaves, self.components), np.float32)
        total = indicators.multiply(indicators).sum() / len(leaf) - float(mean @ mean)
        if total < 1e-9:  # no tree has a split
            return made
        kept, across = min(self.components, count - 1), indicators.T.tocsr()

        def times(block: np.ndarray) -> np.ndarray:
            """The covariance times a block, without forming it: rows have one leaf per tree."""
            return across @ (indicators @ block) / len(leaf) - np.outer(mean, mean @ block)

        with one_thread():  # blocks are small: more threads wait for each other
            values, vectors = _leading(times, count, kept)
        vectors = vectors * np.sign(vectors.sum(axis=0) + 1e-30)
        size = SIZE / np.sqrt(max(float(np.sum(values)), 1e-12))
        made[:, :, :kept] = (size * vectors).reshape(self.trees, leaves, kept)
        made[:, :, :kept] -= size * (mean @ vectors) / self.trees
        return made


def _leading(times: Callable[[np.ndarray], np.ndarray], size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvalues and vectors of a symmetric matrix from its products, by block iteration (Halko et al. 2011).

    A few products of whole blocks take a tenth of the time of Lanczos steps, which are products with single vectors.
    """
    shape = size, min(count + OVERSAMPLED, size)
    block = np.random.default_rng(0).standard_normal(shape, np.float32)
    for _ in range(ROUNDS):
        block = _orthonormal(times(block))
    values, turn = np.linalg.eigh(block.T @ times(block))
    return values[-count:], block @ turn[:, -count:]


def _orthonormal(block: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
    """A basis of the columns, by Cholesky's root of their products: a third of the time of Householder's reflections.

    Products are in float64, whose digits cover the range of the eigenvalues twice. Directions that are hardly there get
    a length below one instead of noise of length one.
    """
    products = block.T.astype(np.float64) @ block
    products[np.diag_indices(len(products))] += max(1e-9 * float(np.trace(products)) / len(products), 1e-30)
    return block @ np.linalg.inv(np.linalg.cholesky(products)).T.astype(np.float32)


def _share(bags: np.ndarray) -> Float[np.ndarray, "row tree"]:
    """Weight of each tree for a training row: zero if it saw the row, and the others make up for it."""
    used = (~bags.T).astype(np.float32)
    return used * (bags.shape[0] / np.maximum(used.sum(axis=1, keepdims=True), 1.0))


def _sums(
    leaf: Int[np.ndarray, "row tree"], used: Float[np.ndarray, "row tree"], value: Float[np.ndarray, "tree leaf part"]
) -> Float[np.ndarray, "row part"]:
    """sum_t used_t value[t, leaf_t] of every row."""
    phi = aligned_empty((len(leaf), value.shape[2]))
    for start in range(0, len(leaf), ROWS):
        rows = slice(start, start + ROWS)
        phi[rows] = 0.0
        for t in range(leaf.shape[1]):
            phi[rows] += used[rows, t, None] * value[t, leaf[rows, t]]
    return phi


def _of_one_forest(members: Sequence[Member]) -> list[list[int]]:
    """Members that differ in nothing a forest is grown from."""
    together: dict[tuple, list[int]] = {}
    for number, member in enumerate(members):
        weights = None if member.weights is None else member.weights.tobytes()
        key = hash((member.train.tobytes(), weights)), member.table, member.seed
        together.setdefault(key, []).append(number)
    return list(together.values())


def _renumbered(problem: StackProblem, members: Sequence[Member], phi: np.ndarray) -> StackProblem:
    """The members on the features of their forest, with their table alone."""
    n = len(problem.x)
    table = members[0].table
    return StackProblem(phi, problem.target[table * n : (table + 1) * n], [replace(m, table=0) for m in members])


def _joined(
    problem: StackProblem, stacks: Sequence[StackFit], own: list[tuple[int, list[int], dict[str, np.ndarray]]]
) -> StackFit:
    """Fitted members in the order of the problem, each with its trees."""
    where = {number: (stack, place, grown) for stack, numbers, grown in own for place, number in enumerate(numbers)}
    order = [where[number] for number in range(len(problem.members))]
    last = [jax.tree.map(lambda leaf: leaf[0], stacks[stack].select([place]))[0] for stack, place, _ in order]
    trees = {name: np.stack([grown[name] for _, _, grown in order]) for name in ("feature", "threshold", "value")}
    layer = {name: np.stack([part[name] for part in last]) for name in ("weight", "bias")}

    def each(name: str) -> list[Any]:
        return [getattr(stacks[stack], name)[place] for stack, place, _ in order]

    return StackFit(
        members=tuple(problem.members),
        params=[trees, layer],
        validation_loss=tuple(each("validation_loss")),
        train_loss=tuple(each("train_loss")),
        best_epoch=np.array(each("best_epoch")),
        best_loss=np.array(each("best_loss")),
    )
