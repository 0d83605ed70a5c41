"""Score models: shapes, initial values and outputs, against forward passes written here in numpy (section 6)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gbpl import MLP, Linear, RandomFeatures, ScoreModel
from gbpl.models.adapters import EquinoxModel, FlaxModel, FunctionModel, as_model

N_FEATURES, N_RAW = 4, 3
KEY = jax.random.key(7)
X = np.random.default_rng(0).normal(size=(6, N_FEATURES)).astype(np.float32)

ACTIVATION = {
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "silu": lambda z: z / (1 + np.exp(-z)),
}


def draw_affine(key: jax.Array, n_features: int, n_raw: int) -> dict[str, jax.Array]:
    return {"slope": jax.random.normal(key, (n_features, n_raw)), "level": jnp.ones(n_raw)}


def apply_affine(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ params["slope"] + params["level"]


def build_equinox(key: jax.Array) -> Any:
    equinox = pytest.importorskip("equinox")
    return equinox.nn.MLP(N_FEATURES, N_RAW, width_size=5, depth=1, activation=jax.nn.tanh, key=key)


def flax_module() -> Any:
    linen = pytest.importorskip("flax.linen")

    class Net(linen.Module):
        width: int = 5

        @linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return linen.Dense(N_RAW, name="last")(jnp.tanh(linen.Dense(self.width, name="first")(x)))

    return Net()


def equinox_builder() -> Any:
    pytest.importorskip("equinox")
    return build_equinox


# What a user may bring, made when a test asks, so that a missing library skips its own tests only.
BROUGHT: dict[str, Callable[[], Any]] = {
    "mlp": lambda: MLP(hidden=(8, 5)),
    "mlp-relu": lambda: MLP(hidden=(8,), activation="relu"),
    "linear": Linear,
    "random-features": lambda: RandomFeatures(n_features=16),
    "pair": lambda: (draw_affine, apply_affine),
    "flax": flax_module,
    "equinox": equinox_builder,
}
every_model = pytest.mark.parametrize("bring", BROUGHT.values(), ids=BROUGHT.keys())


def random_parameters(model: ScoreModel, seed: int = 0) -> Any:
    """Parameters of the model's tree, none of them zero: Linear and RandomFeatures start at zero."""
    leaves, shape = jax.tree.flatten(model.init(KEY, N_FEATURES, N_RAW))
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(shape, [jnp.asarray(rng.normal(size=leaf.shape), jnp.float32) for leaf in leaves])


def assert_close(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


# --- One contract for every model ----------------------------------------------------------------------------------


@every_model
def test_parameters_are_float_arrays_and_outputs_one_row_each(bring):
    model = as_model(bring())
    assert isinstance(model, ScoreModel)
    params = model.init(KEY, N_FEATURES, N_RAW)
    assert jax.tree.leaves(params)
    for leaf in jax.tree.leaves(params):
        assert isinstance(leaf, jax.Array)
        assert leaf.dtype == jnp.float32
        assert np.all(np.isfinite(leaf))
    assert model.apply(params, X).shape == (len(X), N_RAW)


@every_model
def test_initial_values_follow_from_the_key(bring):
    model = as_model(bring())
    first, again = model.init(KEY, N_FEATURES, N_RAW), model.init(KEY, N_FEATURES, N_RAW)
    assert jax.tree.structure(first) == jax.tree.structure(again)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


@every_model
def test_models_are_hashable_values_that_hold_no_parameters(bring):
    # A compiled fit is kept by its model, so the same description must find it again.
    thing = bring()
    assert as_model(thing) == as_model(thing)
    assert hash(as_model(thing)) == hash(as_model(thing))


@every_model
def test_one_model_serves_every_member_of_a_stack(bring):
    # Stacked parameters under jit(vmap) give what each member gives alone.
    model = as_model(bring())
    members = [random_parameters(model, seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    together = jax.jit(jax.vmap(model.apply, in_axes=(0, None)))(stacked, X)
    for output, params in zip(together, members, strict=True):
        assert_close(output, model.apply(params, X))
    assert not np.allclose(together[0], together[1])  # the outputs do come from the parameters


@every_model
def test_a_row_does_not_see_its_neighbours(bring):
    model = as_model(bring())
    params = random_parameters(model)
    assert_close(model.apply(params, X)[2:3], model.apply(params, X[2:3]))


@pytest.mark.parametrize("model", [MLP(hidden=(8, 5)), Linear(), RandomFeatures(n_features=16)], ids=lambda m: repr(m))
def test_output_is_linear_in_the_features(model):
    # What the exact and last-layer posteriors rest on.
    params = random_parameters(model)
    last = params[-1]
    assert last["weight"].shape[-1] == N_RAW
    features = np.asarray(model.features(params, X), np.float64)
    assert features.shape == (len(X), last["weight"].shape[0])
    assert_close(model.apply(params, X), features @ np.asarray(last["weight"], np.float64) + np.asarray(last["bias"]))


# --- MLP and Linear ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", sorted(ACTIVATION))
@pytest.mark.parametrize("hidden", [(7,), (8, 5), (4, 4, 4)])
def test_mlp_is_the_hand_written_forward_pass(hidden, activation):
    model = MLP(hidden=hidden, activation=activation)
    params = random_parameters(model)
    values = X.astype(np.float64)
    for layer in params[:-1]:
        values = ACTIVATION[activation](values @ np.asarray(layer["weight"]) + np.asarray(layer["bias"]))
    assert_close(model.features(params, X), values)
    expected = values @ np.asarray(params[-1]["weight"]) + np.asarray(params[-1]["bias"])
    assert_close(model.apply(params, X), expected, rtol=1e-4)


def test_mlp_starts_uniform_within_one_over_the_root_of_the_inputs():
    # The initialisation of the paper's listing (PyTorch's nn.Linear).
    params = MLP(hidden=(400, 300)).init(KEY, 100, 2)
    shapes = [(100, 400), (400, 300), (300, 2)]
    assert [layer["weight"].shape for layer in params] == shapes
    assert [layer["bias"].shape for layer in params] == [(n_out,) for _, n_out in shapes]
    for layer, (n_in, _) in zip(params, shapes, strict=True):
        bound = 1 / np.sqrt(n_in)
        values = np.concatenate([np.ravel(layer["weight"]), layer["bias"]]) / bound
        assert np.abs(values).max() <= 1 + 1e-6
        # Five standard errors of the mean (1/sqrt(3 m)) and of the mean square (sqrt(4/45 m)) of a uniform.
        assert abs(values.mean()) < 5 / np.sqrt(3 * values.size)
        assert abs(np.mean(values**2) - 1 / 3) < 5 * np.sqrt(4 / 45 / values.size)


def test_mlp_layers_and_keys_are_drawn_apart():
    # Layers of one shape would be equal if they shared a key.
    params = MLP(hidden=(4, 4)).init(KEY, 4, 4)
    assert not np.allclose(params[0]["weight"], params[1]["weight"])
    other = MLP(hidden=(4, 4)).init(jax.random.key(8), 4, 4)
    assert not np.allclose(params[0]["weight"], other[0]["weight"])


def test_mlp_describes_itself_by_value():
    assert MLP(hidden=[8, 5]) == MLP(hidden=(8, 5))
    assert hash(MLP(hidden=[8, 5])) == hash(MLP(hidden=(8, 5)))
    assert MLP(hidden=(8,)) != MLP(hidden=(8,), activation="silu")


def test_mlp_errors_name_the_value():
    with pytest.raises(ValueError, match=r"hidden.*\(8, 0\)"):
        MLP(hidden=(8, 0))
    with pytest.raises(ValueError, match=r"relu.*'swoosh'"):
        MLP(activation="swoosh")


def test_linear_is_affine_and_starts_at_zero():
    # Raw zero is the uniform policy (test_surrogates).
    start = Linear().init(KEY, N_FEATURES, N_RAW)
    np.testing.assert_array_equal(Linear().apply(start, X), np.zeros((len(X), N_RAW)))
    params = random_parameters(Linear())
    expected = X.astype(np.float64) @ np.asarray(params[0]["weight"]) + np.asarray(params[0]["bias"])
    assert_close(Linear().apply(params, X), expected)


# --- Random features -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length_scale", [0.7, 2.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_random_features_approximate_the_squared_exponential_kernel(length_scale, seed):
    # Rahimi and Recht 2007: features(x)' features(y) is near exp(-|x - y|^2 / (2 l^2)).
    n_features = 20_000
    model = RandomFeatures(n_features=n_features, length_scale=length_scale, seed=seed)
    features = np.asarray(model.features([], X), np.float64)
    distance = np.sum((X[:, None, :] - X[None, :, :]).astype(np.float64) ** 2, axis=-1)
    kernel = np.exp(-distance / (2 * length_scale**2))
    # Each term 2 cos cos lies in [-2, 2] and has a variance of at most 1; five standard errors.
    np.testing.assert_allclose(features @ features.T, kernel, atol=5 / np.sqrt(n_features))


def test_random_features_have_the_scale_of_their_number():
    # sqrt(2 / D) cos(.): a row of D features has a squared length near 1 and entries within sqrt(2 / D).
    for n_features in (64, 4096):
        features = np.asarray(RandomFeatures(n_features=n_features).features([], X))
        assert features.shape == (len(X), n_features)
        assert np.abs(features).max() <= np.sqrt(2 / n_features) * (1 + 1e-6)
        assert np.abs(np.sum(features**2, axis=-1) - 1).max() < 5 / np.sqrt(2 * n_features)


def test_random_features_follow_from_the_seed():
    # They are part of the model: the same in every call, compiled or not, whatever the parameters and the key.
    model = RandomFeatures(n_features=32, seed=3)
    features = model.features(model.init(KEY, N_FEATURES, 1), X)
    np.testing.assert_array_equal(features, RandomFeatures(n_features=32, seed=3).features([], X))
    assert_close(features, jax.jit(model.features)([], X))
    assert not np.allclose(features, RandomFeatures(n_features=32, seed=4).features([], X))


def test_random_features_start_at_zero():
    model = RandomFeatures(n_features=32)
    np.testing.assert_array_equal(model.apply(model.init(KEY, N_FEATURES, N_RAW), X), np.zeros((len(X), N_RAW)))


@pytest.mark.parametrize("bad", [{"n_features": 0}, {"length_scale": 0.0}, {"length_scale": float("nan")}])
def test_random_features_errors_name_the_value(bad):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        RandomFeatures(**bad)


# --- What a user brings ----------------------------------------------------------------------------------------------


def test_as_model_takes_a_score_model_as_it_is():
    model = MLP(hidden=(3,))
    assert as_model(model) is model


def test_as_model_takes_a_pair_of_functions():
    model = as_model((draw_affine, apply_affine))
    assert model == FunctionModel(draw_affine, apply_affine)
    params = model.init(KEY, N_FEATURES, N_RAW)
    assert_close(model.apply(params, X), X.astype(np.float64) @ np.asarray(params["slope"]) + 1)


def test_as_model_takes_a_flax_module():
    model = as_model(flax_module())
    assert isinstance(model, FlaxModel)
    variables = random_parameters(model)
    first, last = variables["params"]["first"], variables["params"]["last"]
    hidden = np.tanh(X.astype(np.float64) @ np.asarray(first["kernel"]) + np.asarray(first["bias"]))
    assert_close(model.apply(variables, X), hidden @ np.asarray(last["kernel"]) + np.asarray(last["bias"]))


def test_as_model_takes_an_equinox_builder():
    pytest.importorskip("equinox")
    model = as_model(build_equinox)
    assert model == EquinoxModel(build_equinox)
    # Equinox keeps a layer as weight (out, in) and bias, in the order of the layers.
    params = model.init(KEY, N_FEATURES, N_RAW)
    assert [leaf.shape for leaf in params] == [(5, N_FEATURES), (5,), (N_RAW, 5), (N_RAW,)]
    w1, b1, w2, b2 = (np.asarray(leaf) for leaf in random_parameters(model))
    hidden = np.tanh(X.astype(np.float64) @ w1.T + b1)
    assert_close(model.apply([w1, b1, w2, b2], X), hidden @ w2.T + b2)


def test_equinox_parameters_are_those_of_the_key():
    # `apply` builds the module once more for its shape; its outputs must still be those of the module of `key`.
    pytest.importorskip("equinox")
    model = as_model(build_equinox)
    assert_close(model.apply(model.init(KEY, N_FEATURES, N_RAW), X), jax.vmap(build_equinox(KEY))(X))


@pytest.mark.parametrize(
    "nonsense",
    [None, 3, "mlp", {}, X, [draw_affine, apply_affine], (draw_affine,), (draw_affine, 2), (len, len, len), MLP],
    ids=lambda value: type(value).__name__,
)
def test_as_model_says_what_it_takes(nonsense):
    with pytest.raises(TypeError, match="model must be"):
        as_model(nonsense)


def test_as_model_rejects_the_class_of_a_module():
    with pytest.raises(TypeError, match="model must be"):
        as_model(type(flax_module()))


def test_as_model_rejects_an_equinox_module_that_is_already_built():
    # Otherwise the mistake shows as a matmul error, or as an unhashable array, deep inside a fit.
    module = build_equinox(KEY)
    with pytest.raises(TypeError, match="model must be"):
        as_model(module)


def test_as_model_rejects_a_flax_nnx_module():
    # nnx modules hold their parameters and have neither init nor apply.
    nnx = pytest.importorskip("flax.nnx")
    with pytest.raises(TypeError, match="model must be"):
        as_model(nnx.Linear(N_FEATURES, N_RAW, rngs=nnx.Rngs(0)))
