"""Learning in passes: what is read, who learns from what, and that the result is that of all rows."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from support.samples import drawn_actions

from gbpl import (
    MLP,
    Binary,
    BoostedScore,
    CrossFit,
    Encoder,
    EstimatedPropensityWarning,
    FitConfig,
    FullFeedback,
    FullVector,
    Linear,
    LoggedFeedback,
    Member,
    Surrogate,
    TableError,
    Value,
    regret,
)
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import combined_deviation, member_outputs, member_policies, policy_of_deviation
from gbpl.fitting.chunks import ChunkFit, ChunkTable, Held, batch_plan
from gbpl.passes.chunks import Passes, planned_passes
from gbpl.passes.fit import SCORE_VISITS, LargeFit, fit_large
from gbpl.passes.fold_outputs import FoldOutputs
from gbpl.passes.parquet import MIX, ParquetRows
from gbpl.passes.rows import ArrayRows, Chunk, RowSource, even_rows, folds_of, sample_numbers
from gbpl.passes.scores import rehearse_scores
from gbpl.passes.statistics import Moments, read_statistics
from gbpl.path.plan import PathSettings
from gbpl.posterior.curvature import gauss_newton
from gbpl.posterior.last_layer import LastLayer
from gbpl.runtime.devices import resolve_devices
from gbpl.tables.roles import Roles
from gbpl.value.welfare import deterministic

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SMALL = MLP(hidden=(16,))


def settings(surrogate: Surrogate, *, zetas: list[float] | None = None, passes: int = 3, seed: int = 0) -> PathSettings:
    return PathSettings(
        surrogate=surrogate, model=SMALL, zetas=zetas, eta=None, prior_sd=1.0, committee=True, seed=seed,
        config=FitConfig(learning_rate=1e-2, batch_size=256, max_epochs=passes), device="auto", progress=False,
    )  # fmt: skip


def mean_of(x: np.ndarray) -> np.ndarray:
    """Mean outcomes of three actions: the best is the one whose feature is largest."""
    return x[:, :3] + x[:, [3]]


def logged_sample(n: int, seed: int = 0, weights: bool = False) -> LoggedFeedback:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4))
    chance = np.exp(0.3 * x[:, :3])
    chance /= chance.sum(axis=1, keepdims=True)
    action = drawn_actions(rng, chance)
    outcome = mean_of(x)[np.arange(n), action] + 0.5 * rng.standard_normal(n)
    weight = rng.uniform(0.5, 2.0, n) if weights else None
    return LoggedFeedback.of(x, outcome, action, propensity=chance, sample_weight=weight)


def full_sample(n: int, seed: int = 0) -> FullFeedback:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4))
    return FullFeedback.of(x, np.column_stack([np.zeros(n), x[:, 0] + x[:, 1]]) + rng.standard_normal((n, 2)))


# -- rows ------------------------------------------------------------------------------------------------------


def test_moments_of_parts_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    values, weight = 1e6 + rng.standard_normal((1000, 3)) * [1.0, 0.01, 0.0], rng.uniform(0.0, 2.0, 1000)
    for given in (None, weight):
        moments = Moments()
        for part in np.split(np.arange(1000), [1, 10, 700]):
            moments.add(values[part], None if given is None else given[part])
        mean = np.average(values, axis=0, weights=given)
        np.testing.assert_allclose(moments.mean, mean, rtol=1e-14)
        np.testing.assert_allclose(moments.sd**2, np.average((values - mean) ** 2, axis=0, weights=given), atol=1e-12)


def test_folds_follow_from_row_numbers_and_are_even() -> None:
    numbers = np.arange(50_000)
    fold = folds_of(numbers, 5, seed=3)
    assert (folds_of(numbers[::-7], 5, seed=3) == fold[::-7]).all()
    assert (folds_of(numbers, 5, seed=4) != fold).mean() > 0.75
    assert np.abs(np.bincount(fold) - 10_000).max() < 5 * np.sqrt(50_000 * 0.16)
    kept = sample_numbers(50_000, 10_000, seed=3)  # the sample says nothing of the fold
    assert np.abs(np.bincount(fold[kept]) - 2_000).max() < 5 * np.sqrt(10_000 * 0.16)


def test_the_sample_is_even_and_without_repeats() -> None:
    kept = sample_numbers(3_000_000, 5_000, seed=1)  # more than are hashed at a time
    assert len(np.unique(kept)) == 5_000
    assert np.abs(np.histogram(kept, 10, (0, 3_000_000))[0] - 500).max() < 5 * np.sqrt(500)
    assert (sample_numbers(100, 100, seed=1) == np.arange(100)).all()
    few, more = sample_numbers(1000, 10, seed=1), sample_numbers(1000, 20, seed=1)
    assert set(few) < set(more)


def test_chunks_of_a_pass_are_even() -> None:
    for n, most in ((1_000_000, 131_072), (131_073, 131_072), (10**8, 131_072), (7, 10)):
        rows = even_rows(n, most)
        chunks = -(-n // rows)
        assert rows <= most
        assert 0 <= chunks * rows - n < chunks


def test_arrays_give_every_row_once_in_a_shuffled_order() -> None:
    log = logged_sample(1000, weights=True)
    seen = list(ArrayRows(log).chunks(300, 5))
    assert [len(chunk) for chunk in seen] == [300, 300, 300, 100]
    whole = Chunk.join(seen)
    assert (np.sort(whole.number) == np.arange(1000)).all()
    assert np.abs(np.corrcoef(whole.number, np.arange(1000))[0, 1]) < 0.15
    for name in ("x", "outcome", "action", "propensity"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(log, name)[whole.number])
    np.testing.assert_array_equal(whole.weight, log.weights[whole.number])
    again = Chunk.join(list(ArrayRows(log).chunks(300, 6)))
    assert (again.number != whole.number).mean() > 0.9
    assert (Chunk.join(list(ArrayRows(log).chunks(300, None))).number == np.arange(1000)).all()


def test_statistics_count_the_actions_of_each_fold() -> None:
    log = logged_sample(3000, weights=True)
    known = read_statistics(ArrayRows(log), rows=700, sample=500, folds=5, seed=0)
    fold = folds_of(np.arange(3000), 5, seed=0)
    expected = [np.bincount(log.action[fold == number], minlength=3) for number in range(5)]
    np.testing.assert_array_equal(known.taken, expected)
    assert known.weight == pytest.approx(log.weights.sum())
    assert (known.sample.number == sample_numbers(3000, 500, seed=0)).all()
    both = np.sort(np.concatenate([known.sample.number, known.grown.number]))
    assert (both == sample_numbers(3000, 1000, seed=0)).all()  # none of them twice


# -- files -----------------------------------------------------------------------------------------------------

ROLES = Roles(outcome="y", action="a", propensity="e")


def table_of(log: LoggedFeedback, **changed):
    rows = np.arange(len(log))
    columns = {f"x{number}": log.x[:, number] for number in range(log.x.shape[1])}
    labels = np.array(["call", "mail", "wait"])[log.action]
    columns |= {"a": labels, "y": log.outcome, "e": log.propensity[rows, log.action]}
    return pa.table(columns | changed)


def parquet_parts(folder, table, cuts: list[int], group: int) -> list:
    paths = []
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, table.num_rows], strict=True)):
        paths.append(folder / f"part{number}.parquet")
        pq.write_table(table.slice(start, stop - start), paths[-1], row_group_size=group)
    return paths


def test_files_give_every_row_once_whatever_their_layout(tmp_path) -> None:
    log = logged_sample(3000)
    table = table_of(log)
    (tmp_path / "b").mkdir()
    for paths in (parquet_parts(tmp_path, table, [700, 1999], 230), parquet_parts(tmp_path / "b", table, [], 10_000)):
        source = ParquetRows(paths, ROLES)
        assert (source.n_rows, source.n_features, source.logged) == (3000, 4, True)
        assert source.actions.tolist() == ["call", "mail", "wait"]
        for seed in (None, 4):
            chunks = list(source.chunks(400, seed))
            assert [len(chunk) for chunk in chunks] == [400] * 7 + [200]
            whole = Chunk.join(chunks)
            assert (np.sort(whole.number) == np.arange(3000)).all()
            for name in ("x", "outcome", "action"):
                np.testing.assert_array_equal(getattr(whole, name), getattr(log, name)[whole.number])
            np.testing.assert_array_equal(whole.propensity, table["e"].to_numpy()[whole.number])
            assert (np.corrcoef(whole.number, np.arange(3000))[0, 1] == pytest.approx(1.0)) == (seed is None)
        first = Chunk.join(list(source.chunks(400, 4)))
        assert (Chunk.join(list(source.chunks(400, 4))).number == first.number).all()


def test_row_groups_far_apart_meet_in_a_chunk(tmp_path) -> None:
    table = table_of(logged_sample(3000))
    source = ParquetRows(parquet_parts(tmp_path, table, [], 100), ROLES)
    first = next(source.chunks(500, 0))
    assert len(np.unique(first.number // 100)) >= 10


@pytest.mark.parametrize("seed", [None, 0])
def test_no_more_is_read_than_a_chunk_needs(tmp_path, monkeypatch, seed) -> None:
    """Chunks smaller than what is read at a time: the buffer must not grow from one to the next."""
    source = ParquetRows(parquet_parts(tmp_path, table_of(logged_sample(3000)), [], 500), ROLES)
    read = [0]
    decoded = source._decoded

    def counted(part):
        for piece in decoded(part):
            read[0] += len(piece)
            yield piece

    monkeypatch.setattr(source, "_decoded", counted)
    given = 0
    for chunk in source.chunks(60, seed):
        assert read[0] - given < MIX * 60 + 500
        given += len(chunk)
    assert given == 3000


def test_files_with_text_two_actions_costs_and_weights(tmp_path) -> None:
    rng = np.random.default_rng(0)
    n = 600
    treated = rng.integers(0, 2, n)
    columns = {
        "age": rng.normal(40, 10, n),
        "town": rng.choice(["A", "B", "C"], n),
        "treated": treated,
        "chance": np.where(treated == 1, 0.7, 0.3),
        "y": rng.normal(size=n),
        "w": rng.uniform(0.5, 1.0, n),
    }
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=77)
    roles = Roles(outcome="y", action="treated", propensity="chance", weight="w")
    source = ParquetRows(path, roles, cost={1: 2.5})
    assert source.encoder.names == ["age", "town=A", "town=B", "town=C"]
    chunk = next(source.chunks(600, 1))
    np.testing.assert_allclose(chunk.propensity, np.tile([0.3, 0.7], (n, 1)))
    np.testing.assert_array_equal(chunk.cost, np.tile([0.0, 2.5], (n, 1)))
    np.testing.assert_array_equal(chunk.weight, columns["w"][chunk.number])
    np.testing.assert_array_equal(chunk.x, Encoder.fit(pa.table(columns), ["age", "town"])[0].apply(
        pa.table(columns))[0][chunk.number])  # fmt: skip
    fixed = ParquetRows(path, replace(roles, propensity={"0": 0.4, "1": 0.6}, features=["age"]))
    np.testing.assert_array_equal(next(fixed.chunks(600, 1)).propensity, np.tile([0.4, 0.6], (n, 1)))
    full = ParquetRows(path, Roles(outcomes=["y", "w"], features=["age"]), cost={"w": 1.0})
    chunk = next(full.chunks(600, 1))
    assert not full.logged
    np.testing.assert_allclose(chunk.outcomes[:, 1], columns["w"][chunk.number] - 1.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": "nan"}, r"part1\.parquet, row 61: outcome 'y' is missing"),
        ({"y": "inf"}, r"part1\.parquet, row 61: outcome 'y' is infinite"),
        ({"e": "zero"}, r"part1\.parquet: propensity 'e' is 0 in row 61"),
        ({"a": "none"}, r"part1\.parquet, row 61: action 'a' is missing"),
    ],
)
def test_faults_of_rows_are_found_when_a_source_is_made(tmp_path, changed, message) -> None:
    table = table_of(logged_sample(300))
    ((name, what),) = changed.items()
    values = table[name].to_pylist()
    values[161] = {"nan": None, "inf": np.inf, "zero": 0.0, "none": None}[what]
    table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    with pytest.raises(TableError, match=message):
        ParquetRows(parquet_parts(tmp_path, table, [100], 40), ROLES)


def test_faults_of_columns_and_labels_are_found_when_a_source_is_made(tmp_path) -> None:
    paths = parquet_parts(tmp_path, table_of(logged_sample(300)), [], 100)
    with pytest.raises(TableError, match="no column 'earnings'"):
        ParquetRows(paths, replace(ROLES, outcome="earnings"))
    with pytest.raises(TableError, match="visit"):
        ParquetRows(paths, ROLES, actions=["call", "mail", "wait", "visit"])
    with pytest.raises(TableError, match="names the action 'call'"):
        ParquetRows(paths, ROLES, actions=["mail", "wait"])
    with pytest.raises(TableError, match=r"there are 300 groups, and learning in passes .* needs 1000"):
        ParquetRows(paths, replace(ROLES, group="x0"))
    with pytest.raises(TableError, match="controls have no use"):
        ParquetRows(paths, replace(ROLES, controls=["x0"]))
    with pytest.raises(TableError, match="does not exist"):
        ParquetRows(tmp_path / "gone.parquet", ROLES)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TableError, match="is not a Parquet file"):
        ParquetRows(tmp_path / "t.csv", ROLES)
    other = parquet_parts(tmp_path, table_of(logged_sample(300)).drop_columns(["x0"]), [], 100)
    (tmp_path / "c").mkdir()
    with pytest.raises(TableError, match="no column 'x0'"):
        ParquetRows([*parquet_parts(tmp_path / "c", table_of(logged_sample(300)), [], 100), *other], ROLES)


# -- training --------------------------------------------------------------------------------------------------


def chunk_fit(rows: int, chunks: int, held: Held, members: list[Member] | None = None) -> ChunkFit:
    made = members or [Member(np.arange(3), seed=fold, fold=fold) for fold in range(5)]
    config = FitConfig(learning_rate=1e-2, batch_size=64)
    return ChunkFit(
        made, held, Binary(), SMALL, config, resolve_devices("auto"), chunk_rows=rows, chunks=chunks,
        n_train=0.8 * rows, n_features=4,
    )  # fmt: skip


def test_batches_have_every_row_outside_the_fold_once_and_none_inside() -> None:
    rng = np.random.default_rng(0)
    fitting = chunk_fit(1000, 1, Held(np.repeat(np.arange(5), 4), None))
    for count in (1000, 990):
        fold, weight = rng.integers(0, 5, count), rng.uniform(0.5, 2.0, count)
        for given in (None, weight):
            rows, share = fitting.deal(fold, given)
            assert rows.shape == share.shape == (batch_plan(1000, 5, 64)[0], 5, batch_plan(1000, 5, 64)[1])
            for number in range(5):
                counted = share[:, number] > 0
                assert (np.sort(rows[:, number][counted]) == 20 + np.flatnonzero(fold != number)).all()
                if given is None:
                    np.testing.assert_allclose(share[:, number].sum(axis=1), 1.0, rtol=1e-6)
                else:
                    expected = weight[rows[:, number][counted] - 20]
                    np.testing.assert_allclose(
                        share[:, number][counted] * np.repeat(counted.sum(axis=1), counted.sum(axis=1)), expected,
                        rtol=1e-5,
                    )  # fmt: skip


def test_the_learning_rate_comes_down_to_zero() -> None:
    optimizer = FitConfig(learning_rate=0.1, decay_steps=10).optimizer()
    step = jax.jit(optimizer.update)
    state, sizes = jax.jit(optimizer.init)(np.ones(1, np.float32)), []
    for _ in range(11):
        update, state = step(np.ones(1, np.float32), state)
        sizes.append(float(-update[0]))
    np.testing.assert_allclose(sizes, 0.05 * (1 + np.cos(np.pi * np.arange(11) / 10)), atol=1e-6)
    with pytest.raises(ValueError, match="decay_steps must be a whole number"):
        FitConfig(decay_steps=0)


def test_a_member_never_learns_from_its_fold() -> None:
    rng = np.random.default_rng(1)
    held = Held(np.repeat(np.arange(5), 10), None)
    x, target = rng.standard_normal((2, 650, 4)).astype("f"), rng.standard_normal((2, 650, 1)).astype("f")
    fold = rng.integers(0, 5, (2, 600))
    learned = []
    for poison in (False, True):
        wanted = target.copy()
        for part in range(2):
            if poison:
                wanted[part, 50:][fold[part] == 2] = 1e3
        stack = chunk_fit(600, 2, held).fit([ChunkTable(x[part], wanted[part], fold[part], None) for part in range(2)])
        learned.append(stack.params[-1]["weight"])
        assert all(len(losses) == 2 for losses in stack.validation_loss)
    np.testing.assert_array_equal(learned[0][2], learned[1][2])
    for other in (0, 1, 3, 4):
        assert np.abs(learned[0][other] - learned[1][other]).max() > 1e-3


def test_members_in_groups_are_what_they_are_alone() -> None:
    """More members than one group takes, in two tables: each as if it had been trained by itself."""
    rng = np.random.default_rng(2)
    held = Held(np.repeat(np.arange(5), 10), None)
    x, target = rng.standard_normal((650, 4)).astype("f"), rng.standard_normal((1300, 1)).astype("f")
    fold = rng.integers(0, 5, 600)
    members = [Member(np.arange(3), seed=n, zeta=0.5 + n, table=n % 2, fold=n % 5, entry=n // 5) for n in range(15)]
    both = []
    for taken in (members, members[10:]):
        both.append(chunk_fit(600, 1, held, taken).fit([ChunkTable(x, target, fold, None)]))
    for leaf, alone in zip(jax.tree.leaves(both[0].params), jax.tree.leaves(both[1].params), strict=True):
        np.testing.assert_allclose(leaf[10:], alone, rtol=2e-5, atol=2e-6)


def test_rows_are_answered_by_the_members_of_their_fold() -> None:
    rng = np.random.default_rng(3)
    x, fold = rng.standard_normal((5000, 4)).astype("f"), rng.choice(5, 5000, p=[0.9, 0.05, 0.03, 0.02, 0.0])
    keys = jax.random.split(jax.random.key(0), 15)
    params = jax.tree.map(np.asarray, jax.vmap(lambda key: SMALL.init(key, 4, 3))(keys))
    pairs = jax.tree.map(lambda leaf: leaf.reshape(5, 3, *leaf.shape[1:]), params)
    raw = member_outputs(SMALL, params, x).reshape(5, 3, 5000, 3)
    expected = raw[fold, :, np.arange(5000)].transpose(1, 0, 2)
    np.testing.assert_allclose(FoldOutputs(pairs, SMALL, resolve_devices("auto")).of(x, fold), expected, atol=1e-5)


# -- the fit ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> tuple[LoggedFeedback, LargeFit]:
    log = logged_sample(30_000, weights=True)
    nuisance = CrossFit(outcome_model=SMALL)
    return log, fit_large(ArrayRows(log), settings(FullVector(3)), nuisance=nuisance, sample=6_000, chunk_rows=10_000)


def own_value(result: LargeFit) -> Value:
    """Of the sample, each row by the members that have not learned from it."""
    gained = result.feedback.outcomes[np.arange(len(result.feedback)), deterministic(result.fit.deviation)]
    return Value(gained, "mean", result.feedback.weights)


def test_the_policy_is_nearly_the_best(large) -> None:
    _, result = large
    x = np.random.default_rng(9).standard_normal((20_000, 4))
    fit = result.fit
    policy = policy_of_deviation(
        combined_deviation(SMALL, FullVector(3), fit.params, fit.policy_weights, fit.standardizer.apply(x))
    )
    mean = mean_of(x)
    assert regret(np.eye(3)[deterministic(policy)], mean) < 0.01  # of 0.85 that the best rule gains
    value, best = own_value(result), mean.max(axis=1).mean()
    assert abs(value.estimate - best) < 4 * value.se + 0.02
    assert 0.002 < value.se < 0.05


def test_statistics_and_sample_are_those_of_the_rows(large) -> None:
    log, result = large
    fit = result.fit
    expected = Standardizer.fit(log.x, np.arange(len(log)), log.weights)
    np.testing.assert_allclose(fit.standardizer.mean, expected.mean, atol=1e-12)
    np.testing.assert_allclose(fit.standardizer.scale, expected.scale, rtol=1e-12)
    assert result.fit.thinning == 4.0  # 24,000 rows that were learned from for 6,000 that were not
    assert (result.numbers == sample_numbers(30_000, 6_000, seed=0)).all()
    np.testing.assert_array_equal(result.feedback.x, log.x[result.numbers])
    np.testing.assert_array_equal(result.nuisances.feedback.outcome, log.outcome[result.numbers])
    np.testing.assert_array_equal(result.feedback.outcomes, result.nuisances.pseudo_outcomes("dr"))
    fold = folds_of(result.numbers, 5, seed=0)
    for member in fit.every:
        assert (fold[member.validation] == member.fold).all()
        assert (fold[member.train] != member.fold).all()
        assert len(member.train) + len(member.validation) == 6_000


def test_outcome_models_are_near_the_means(large) -> None:
    log, result = large
    error = result.nuisances.outcome_mean - mean_of(log.x[result.numbers])
    assert np.sqrt(np.mean(error**2)) < 0.25  # where outcomes have a standard deviation of 1.5


def test_what_comes_out_is_a_path_fit_as_any_other(large) -> None:
    _, result = large
    fit = result.fit
    assert fit.path.correction.tolist() == [1.0] * 5 + [0.0] * 2
    assert fit.path.weight.sum() == pytest.approx(1.0)
    assert fit.out_of_fold.shape == (6_000, 3)
    assert len(fit.history) == 35
    assert all(len(entry["train_loss"]) == 9 for entry in fit.history)  # three passes of three chunks
    problem = fit.problems()[0]
    rows = fit.members[0].train
    np.testing.assert_array_equal(problem.x, fit.standardizer.apply(result.feedback.x[rows]))
    table = result.nuisances.pseudo_outcomes("dr", correction=float(fit.path.correction[fit.members[0].entry]))
    centred = (table - table.mean(axis=1, keepdims=True))[rows] / fit.scale
    np.testing.assert_allclose(problem.target, centred, rtol=1e-4, atol=1e-5)


def fit_in_passes(source: RowSource, **options) -> LargeFit:
    """Fits of one shape, so that one program serves all of them."""
    nuisance = CrossFit(outcome_model=SMALL)
    chosen = settings(FullVector(3), zetas=[1.0])
    return fit_large(source, chosen, nuisance=nuisance, sample=1200, chunk_rows=3000, **options)


def test_files_and_arrays_agree_where_it_is_promised(tmp_path) -> None:
    """Statistics, folds and sample do not depend on where rows come from; the order they are learned in does."""
    log = logged_sample(6000)
    paths = parquet_parts(tmp_path, table_of(log), [1234], 321)
    known = replace(log, propensity=log.propensity[np.arange(6000), log.action])
    one, again, two = (
        fit_in_passes(ParquetRows(paths, ROLES)),
        fit_in_passes(ParquetRows(paths, ROLES)),
        fit_in_passes(ArrayRows(known)),
    )
    np.testing.assert_allclose(one.fit.standardizer.mean, two.fit.standardizer.mean, atol=1e-14)
    assert (one.numbers == two.numbers).all()
    np.testing.assert_array_equal(one.feedback.x, two.feedback.x)
    assert own_value(one).estimate == pytest.approx(own_value(two).estimate, abs=4 * own_value(one).se)
    assert one.feedback.actions.tolist() == ["call", "mail", "wait"]
    for first, second in zip(jax.tree.leaves(one.fit.params), jax.tree.leaves(again.fit.params), strict=True):
        np.testing.assert_array_equal(first, second)


def test_files_have_groups_and_need_no_propensities(tmp_path) -> None:
    """Groups by number and by label: rows of one stay together, wherever they lie."""
    log, place = logged_sample(6000), np.arange(6000) % 1500
    labels = np.array([f"g{number}" for number in place])
    for column in (place, place / 2.0, labels):
        roles = replace(ROLES, propensity=None, group="g", features=["x0", "x1", "x2", "x3"])
        source = ParquetRows(parquet_parts(tmp_path, table_of(log, g=column), [1234], 321), roles)
        chunk = Chunk.join(list(source.chunks(700, 3)))
        assert chunk.propensity is None
        assert len(np.unique(chunk.group)) == 1500
        order = np.argsort(chunk.number)
        assert (chunk.group[order][:1500] == chunk.group[order][1500:3000]).all()
    with pytest.warns(EstimatedPropensityWarning):
        result = fit_in_passes(source)
    assert result.nuisances.estimated
    assert (np.bincount(result.numbers % 1500)[np.unique(result.numbers % 1500)] == 4).all()
    value = own_value(result)
    assert value.estimate > 0.4  # as with known propensities, below


@pytest.mark.parametrize("construction", ["ipw", "centered_ipw", "dm"])
def test_other_constructions(construction) -> None:
    result = fit_in_passes(ArrayRows(logged_sample(6000)), construction=construction)
    np.testing.assert_array_equal(result.feedback.outcomes, result.nuisances.pseudo_outcomes(construction))
    assert (result.nuisances.means is None) == (construction == "ipw")
    assert (
        own_value(result).estimate > 0.4
    )  # the log's own policy is worth 0.08, one action for all 0, the best rule 0.85


def test_a_constant_outcome_and_costs() -> None:
    log = logged_sample(6000)
    costs = {0: 1.0, 1: 0.0, 2: 2.0}
    constant = LoggedFeedback.of(log.x, np.full(6000, 3.0), log.action, propensity=log.propensity, cost=costs)
    result = fit_in_passes(ArrayRows(constant))
    assert result.fit.scale == pytest.approx(np.sqrt(2.0 / 2.0 * (1.0 + 0.0 + 1.0)))  # of 2, 3, 1: mean 2
    np.testing.assert_allclose(result.feedback.outcomes, np.tile([2.0, 3.0, 1.0], (1200, 1)), atol=1e-12)
    assert own_value(result).estimate == pytest.approx(3.0)
    same = LoggedFeedback.of(log.x, np.full(6000, 3.0), log.action, propensity=log.propensity)
    with pytest.warns(UserWarning, match="never differ"):
        assert own_value(fit_in_passes(ArrayRows(same))).estimate == pytest.approx(3.0)


@pytest.fixture(scope="module")
def full() -> tuple[FullFeedback, LargeFit]:
    """With one zeta every member counts, so that its welfare can be computed from the result itself."""
    feedback = full_sample(6000)
    return feedback, fit_large(
        ArrayRows(feedback), settings(Binary(), zetas=[1.0]), sample=1000, chunk_rows=3000
    )  # fmt: skip


def test_welfare_in_chunks_is_that_of_all_rows(full) -> None:
    feedback, result = full
    fit, rows = result.fit, np.arange(6000)
    assert result.nuisances is None
    assert result.fit.thinning == 5.0
    policies = member_policies(SMALL, Binary(), fit.params, fit.standardizer.apply(feedback.x))
    own = policies[folds_of(rows, 5, seed=0), rows]
    gained = np.delete(feedback.outcomes[rows, deterministic(own)], result.numbers)  # none of those weighs
    assert fit.path.welfare[0] == pytest.approx(gained.mean(), abs=1e-4)  # a tie may fall to the other side
    assert fit.path.welfare_se[0] == pytest.approx(Value(gained, "mean").se, rel=1e-3)
    np.testing.assert_allclose(fit.out_of_fold, own[result.numbers], atol=1e-5)


@pytest.mark.parametrize("zetas", [None, [1.0]], ids=["path", "one zeta"])
def test_curvatures_are_sums_over_all_rows_that_were_learned_from(zetas) -> None:
    log = logged_sample(3000, weights=True)
    chosen, nuisance = settings(FullVector(3), zetas=zetas), CrossFit(outcome_model=SMALL)
    result = fit_large(ArrayRows(log), chosen, nuisance=nuisance, sample=600, chunk_rows=3000)
    fit = result.fit
    assert fit.thinning == 4.0
    x, learned = fit.standardizer.apply(log.x), ~np.isin(np.arange(3000), result.numbers)
    fold, mean = folds_of(np.arange(3000), 5, seed=0), np.zeros((3000, 3), np.float32)
    for problem, member in zip(fit.problems(), fit.members, strict=True):
        own = learned & (fold != member.fold)
        weights = log.weights[own] / log.weights[own].mean()
        rows = replace(problem, x=x[own], target=mean[own], weights=weights, curvature=None)  # no threshold: no target
        expected = gauss_newton(rows) / 4.0
        np.testing.assert_allclose(gauss_newton(problem), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        precision = problem.eta * expected + np.eye(len(expected)) / problem.prior_sd**2
        np.testing.assert_allclose(LastLayer(problem).covariance @ precision, np.eye(len(expected)), atol=1e-2)


def test_large_curvatures_are_left_to_the_sample(monkeypatch) -> None:
    monkeypatch.setattr("gbpl.passes.curvature.MOST_CURVATURE", 50)
    result = fit_in_passes(ArrayRows(logged_sample(3000)))
    assert result.fit.curvatures is None
    assert gauss_newton(result.fit.problems()[0]).shape == (51, 51)


def test_what_is_compiled_ahead_is_what_scores_need(caplog, monkeypatch) -> None:
    """Another shape than any before: the rehearsal compiles it, and learning finds it compiled."""

    def compiled(work) -> list[str]:
        caplog.clear()
        jax.config.update("jax_log_compiles", True)  # in all threads, unlike `jax.log_compiles`
        try:
            work()
        finally:
            jax.config.update("jax_log_compiles", False)
        lines = [record.getMessage().split("jit(")[-1] for record in caplog.records if "Compiling" in record.message]
        return [line.split(". Argument mapping")[0] for line in lines]

    rows, chosen = ArrayRows(logged_sample(1777)), replace(settings(FullVector(3)), model=MLP(hidden=(7,)))
    passes = Passes(rows, chosen, folds=5, sample=355, chunk_rows=1777)
    ahead = compiled(lambda: rehearse_scores(passes, (1.0, 0.0), passes.planned(SCORE_VISITS)))
    assert {line.split(")")[0] for line in ahead} == {"initial_state", "train_block", "_by_fold"}
    monkeypatch.setattr(Passes, "on_cpu", False)  # as with a GPU: programs of the outcome models beside each other, too
    nuisance = CrossFit(outcome_model=MLP(hidden=(5,)))
    later = compiled(lambda: fit_large(rows, chosen, nuisance=nuisance, sample=355, chunk_rows=1777))
    assert sum(line.startswith("train_block") for line in later) == 1  # that of the outcome models
    assert not set(ahead) & set(later) - {line for line in ahead if line.startswith("initial_state")}


def test_the_posterior_of_the_sample_is_that_of_all_rows(full) -> None:
    """Its precision is the sum over all rows; that of the sample, times `thinning`, is near it."""
    feedback, result = full
    fit, x = result.fit, np.random.default_rng(5).standard_normal((200, 4)).astype("f")
    problem = fit.problems()[0]
    eta = fit.members[0].eta
    assert problem.eta == pytest.approx(eta * fit.thinning)
    known, thinned = LastLayer(problem), LastLayer(replace(problem, curvature=None))
    rows = np.delete(np.arange(6000), result.numbers)
    rows = rows[folds_of(rows, 5, seed=0) != fit.members[0].fold]
    gap = (feedback.outcomes[rows, 1:] - feedback.outcomes[rows, :1]).astype("f") / fit.scale
    whole = LastLayer(replace(problem, x=fit.standardizer.apply(feedback.x[rows]), target=gap, eta=eta, curvature=None))
    basis = np.column_stack([np.asarray(SMALL.features(problem.params, x)), np.ones(200)])
    by_rows, *spreads = (
        np.sqrt(np.einsum("nb,bc,nc->n", basis, part.covariance, basis)) for part in (whole, known, thinned)
    )
    np.testing.assert_allclose(spreads[0] / by_rows, 1.0, atol=1e-3)
    assert np.sqrt(np.mean((spreads[1] / by_rows - 1.0) ** 2)) < 0.1  # 800 rows stand for 4,000


def test_passes_depend_on_the_number_of_rows_alone() -> None:
    assert planned_passes(10**8, 2_000_000) == 1
    assert planned_passes(1_000_000, 2_000_000) == 2
    assert planned_passes(1_000, 2_000_000) == 30


def test_what_cannot_be_learned_in_passes_is_refused_before_any_work() -> None:
    log = logged_sample(2000)
    rows, chosen = ArrayRows(log), settings(FullVector(3))
    with pytest.raises(ValueError, match="needs a committee"):
        fit_large(rows, replace(chosen, committee=False))
    with pytest.raises(ValueError, match="at least 1000 rows, got 500"):
        fit_large(ArrayRows(logged_sample(500)), chosen)
    with pytest.raises(ValueError, match="pseudo_outcome must be one of"):
        fit_large(rows, chosen, construction="magic")
    from sklearn.linear_model import Ridge

    with pytest.raises(ValueError, match="must be a network to learn in passes, got Ridge"):
        fit_large(rows, chosen, nuisance=CrossFit(outcome_model=Ridge()))
    with pytest.raises(ValueError, match="fits networks and ForestFeatures, got BoostedScore"):
        fit_large(rows, replace(chosen, beside=(BoostedScore(),)))
    for change, message in (
        ({"groups": np.arange(2000) // 4}, "there are 500 groups"),
        ({"controls": log.x}, "controls are given"),
    ):
        with pytest.raises(ValueError, match=message):
            ArrayRows(replace(log, **change))
    rare = log.action.copy()
    rare[rare == 2] = 0
    rare[7] = 2
    with pytest.raises(ValueError, match=r"has no row with action 2, which is taken in 1 of 2000 rows"):
        fit_large(ArrayRows(replace(log, action=rare)), chosen)


def test_a_linear_model_finds_the_regression() -> None:
    """Squared loss without squashing: the passes end at the least-squares fit, which is known."""
    feedback = full_sample(20_000)
    chosen = replace(
        settings(Binary(squash=False), zetas=[1.0], passes=10), model=Linear(),
        config=FitConfig(learning_rate=0.02, batch_size=256, max_epochs=10),
    )  # fmt: skip
    result = fit_large(ArrayRows(feedback), chosen, sample=2_000, chunk_rows=10_000)
    fit, fold = result.fit, folds_of(np.arange(20_000), 5, seed=0)
    fold[result.numbers] = -1
    x = np.column_stack([fit.standardizer.apply(feedback.x), np.ones(20_000)])
    gap = (feedback.outcomes[:, 1] - feedback.outcomes[:, 0]) / fit.scale
    for number, member in enumerate(fit.members):
        train = (fold >= 0) & (fold != member.fold)
        own = x[train] * member.zeta
        solved = np.linalg.lstsq(own, gap[train], rcond=None)[0]
        coefficients = np.append(fit.params[-1]["weight"][number, :, 0], fit.params[-1]["bias"][number, 0])
        excess = np.mean((own @ (coefficients - solved)) ** 2)
        assert excess < 0.005  # of a variance of 1 in the outcomes; least squares itself errs by 5 / 16,000
