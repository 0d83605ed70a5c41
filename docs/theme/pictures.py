"""Pictures of the documentation, made while it is built: each plot of the API page, from one small simulated trial."""

from __future__ import annotations

from functools import cache
from io import StringIO
from typing import Any

from mkdocs.structure.files import File, Files

FOLDER = "figures/plots"


@cache
def _pictures() -> dict[str, str]:
    """SVG by name."""
    import matplotlib as mpl
    from sklearn.linear_model import LinearRegression

    from gbpl import FitConfig, GBPLNet, Linear, datasets, learn, plots

    mpl.rcParams["svg.hashsalt"] = "gbpl"  # the same picture has the same bytes
    trial = datasets.EmailDesign().frame(1500, seed=0, as_frame="arrow")
    quick = GBPLNet(  # in seconds: the pictures show what is drawn, not how well it learns
        model=Linear(), outcome_model=LinearRegression(), zeta=[10.0, 1.0, 0.1], eta=1.0, correction=1.0, committee=3,
        nuisance_folds=3, fit_config=FitConfig(max_epochs=20, learning_rate=0.03), random_state=0, progress=False,
    )  # fmt: skip
    study = learn(trial, outcome="visit", action="segment", propensity=1 / 3, default="No E-Mail", estimator=quick)
    drawn = {
        "plot_overlap": plots.plot_overlap(study)[0],
        "plot_gain": plots.plot_gain(study),
        "plot_rule": plots.plot_rule(study, "history", "recency"),
        "plot_zeta_path": plots.plot_zeta_path(study.fitted),
    }
    return {name: _svg(ax.figure) for name, ax in drawn.items()}


def _svg(figure: Any) -> str:
    out = StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def on_files(files: Files, *, config: Any, **_: Any) -> Files:
    for name, svg in _pictures().items():
        files.append(File.generated(config, f"{FOLDER}/{name}.svg", content=svg))
    return files
