"""Published trials and logs: job training, cash incentives, e-mails, items shown (section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.datasets.dataset import Dataset, Source, import_package
from gbpl.datasets.files import read_columns

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SOURCES"]

NSW_FEATURES = ["age", "educ", "black", "hisp", "marr", "nodegree", "re74", "re75"]
JTPA_FEATURES = ["prevearn", "edu"]
# Of the columns of the joined file, `training` (taken up after the offer) and `f2sms` (which survey gave the earnings)
# are not known when the offer is made, the dummies of age say less than age, and `site` is a code.
JTPA_COVARIATES = [
    *JTPA_FEATURES, "afdc", "sex", "class_tr", "ojt_jsa", "oth_serv", "age", "married", "pbhous", "hsorged", "black",
    "hispanic", "wkless13",
]  # fmt: skip
JTPA_COST = {0: 0.0, 1: 774.0}  # dollars per person, as in Kitagawa and Tetenov (2018)
HILLSTROM_FEATURES = ["recency", "history", "mens", "womens", "zip_code", "newbie", "channel"]
HILLSTROM_OUTCOMES = ("visit", "conversion", "spend")
BANDIT_FEATURES = ["position", *(f"user_feature_{i}" for i in range(4))]


def _causaldata(module: str, source: Source) -> Any:
    """The pandas frame that the package has under this name."""
    loader = import_package(f"causaldata.{module}", source.name, f"'gbpl[{source.extra}]'")
    return loader.load_pandas().data


def _wide(values: Any) -> np.ndarray:
    """A column as float64, or as int64 where all are whole numbers: the packages store them in a byte or in float32."""
    numbers = np.asarray(values, np.float64)
    return numbers.astype(np.int64) if (numbers == np.floor(numbers)).all() else numbers


def nsw(source: Source, as_frame: str) -> Dataset:
    """Men offered work in the NSW programme, and their earnings in 1978."""
    table = _causaldata("nsw_mixtape", source)
    columns = {name: _wide(table[name]) for name in [*NSW_FEATURES, "treat", "re78"]}
    for name in ("re74", "re75", "re78"):
        columns[name] = columns[name].astype(np.float64)
    share = float(columns["treat"].mean())
    return source.dataset(
        columns, as_frame, outcome="re78", action="treat", features=list(NSW_FEATURES), propensity=share,
        notes=(
            f"propensity: assignment was by lot, with chances that the file does not have; {share:.4f} is the share "
            f"assigned ({columns['treat'].sum()} of {len(table)})",
            "the men with earnings of 1974 on record, chosen by Dehejia and Wahba from LaLonde's 722 by what was known "
            "before assignment",
        ),
    )  # fmt: skip


def thornton_hiv(source: Source, as_frame: str) -> Dataset:
    """People tested for HIV in rural Malawi: who comes for the result, with an incentive drawn by lot or none."""
    table = _causaldata("thornton_hiv", source)
    names = ["distvct", "age", "villnum", "any", "got"]
    drawn = table.dropna(subset=["any", "got"])
    kept = drawn.dropna(subset=names)
    columns = {name: _wide(kept[name]) for name in names}
    return source.dataset(
        columns, as_frame, outcome="got", action="any", features=["distvct", "age"], controls=["villnum"],
        notes=(
            f"{len(kept):,} of {len(table):,} people: {len(table) - len(drawn):,} have no draw or no result to come "
            f"for, {len(drawn) - len(kept)} no age or no village",
            "propensity: None, to be estimated. Incentives were drawn from a bag, but nurses gave out fewer zeros than "
            "the rules had, and in two of three districts two draws were added up. The file has no district; 14 % have "
            "no incentive in villages numbered up to 100 and 37 % above, so the number of the village is a control",
            "the result of the test (hiv2004) is not a feature: the incentive is drawn when the sample is taken, "
            "before anybody knows it; the amount (tinc) is part of the action",
        ),
    )  # fmt: skip


def jtpa(source: Source, as_frame: str, *, path: Path) -> Dataset:
    """Adults offered training under JTPA, and their earnings in the 30 months after."""
    features = JTPA_COVARIATES if source.name == "jtpa_covariates" else JTPA_FEATURES
    columns = read_columns(path, [*features, "D", "earnings"])
    notes = ["propensity: by design, two of three were offered training"]
    notes.append("cost: 774 dollars per person offered training, as in Kitagawa and Tetenov (2018)")
    if features is JTPA_COVARIATES:
        notes.append(
            "left out: training taken up and the survey behind the earnings, not known before the offer; the site, a "
            "code; dummies of age; some covariates have fractions where an answer was missing"
        )
    return source.dataset(
        columns, as_frame, outcome="earnings", action="D", features=list(features), propensity=2 / 3,
        cost=dict(JTPA_COST), notes=tuple(notes),
    )  # fmt: skip


def hillstrom(source: Source, as_frame: str, *, path: Path, outcome: str) -> Dataset:
    """Customers sent one of two e-mails or none, and what they did in the two weeks after."""
    columns = read_columns(path, [*HILLSTROM_FEATURES, "segment", outcome])
    return source.dataset(
        columns, as_frame, outcome=outcome, action="segment", features=list(HILLSTROM_FEATURES), propensity=1 / 3,
        notes=(
            "propensity: by design, a third of the customers each",
            "left out: history_segment, which is history in bands, and the outcomes not asked for",
        ),
    )  # fmt: skip


def open_bandit(source: Source, as_frame: str, *, path: Path) -> Dataset:
    """Items shown at random in a fashion shop, and clicks."""
    columns = read_columns(path, [*BANDIT_FEATURES, "item_id", "click", "propensity_score"])
    return source.dataset(
        columns, as_frame, outcome="click", action="item_id", features=list(BANDIT_FEATURES),
        propensity="propensity_score",
        notes=(
            "propensity: by design, the column of the log, 1/34 for every item and position",
            "46 clicks in 10,000 rounds of the small file: what is estimated from it is very noisy",
            "left out: the time, and the affinities of users to items",
        ),
    )  # fmt: skip


KITAGAWA = (
    "T. Kitagawa and A. Tetenov (2018), Who should be treated? Empirical welfare maximization methods for treatment "
    "choice, Econometrica 86(2), 591-616"
)
BLOOM = (
    "H. S. Bloom, L. L. Orr, S. H. Bell, G. Cave, F. Doolittle, W. Lin and J. M. Bos (1997), The benefits and costs of "
    "JTPA Title II-A programs, Journal of Human Resources 32(3), 549-576"
)
SOURCES = (
    Source(
        name="nsw", kind="trial", rows=445, actions=2, read=nsw, package="causaldata",
        description="job training for men out of work, by lot; earnings in 1978, in dollars",
        reference=(
            "R. J. LaLonde (1986), Evaluating the econometric evaluations of training programs with experimental data, "
            "American Economic Review 76(4), 604-620; R. H. Dehejia and S. Wahba (1999), Causal effects in "
            "nonexperimental studies, Journal of the American Statistical Association 94(448), 1053-1062"
        ),
    ),
    Source(
        name="thornton_hiv", kind="trial", rows=2825, actions=2, read=thornton_hiv, package="causaldata",
        description="cash for coming to learn the result of an HIV test, by lot; who came",
        reference=(
            "R. L. Thornton (2008), The demand for, and impact of, learning HIV status, American Economic Review "
            "98(5), 1829-1863"
        ),
    ),
    Source(
        name="jtpa", kind="trial", rows=9223, actions=2, read=jtpa, file="jtpa_kt.csv",
        origin="the supplement of Kitagawa and Tetenov (2018), columns D, earnings, prevearn, edu",
        description="job training offered to two of three adults; earnings of 30 months, in dollars",
        reference=f"{BLOOM}; {KITAGAWA}",
    ),
    Source(
        name="jtpa_covariates", kind="trial", rows=9223, actions=2, read=jtpa, file="jtpa_kt_covariates.csv",
        origin="the file of jtpa joined by recid with the extract of Abadie, Angrist and Imbens (2002)",
        description="the people of jtpa with twelve more features",
        reference=(
            f"{BLOOM}; {KITAGAWA}; A. Abadie, J. Angrist and G. Imbens (2002), Instrumental variables estimates of the "
            "effect of subsidized training on the quantiles of trainee earnings, Econometrica 70(1), 91-117"
        ),
    ),
    Source(
        name="hillstrom", kind="trial", rows=64_000, actions=3, read=hillstrom, file="hillstrom.csv",
        choices=HILLSTROM_OUTCOMES, origin="the MineThatData e-mail challenge",
        description="an e-mail of men's or women's goods or none; visit, conversion or spend",
        reference="K. Hillstrom (2008), The MineThatData e-mail analytics and data mining challenge",
    ),
    Source(
        name="open_bandit", kind="logged", rows=10_000, actions=34, read=open_bandit, file="obd_random_men.csv",
        origin="the men's campaign of the Open Bandit Dataset under its random policy, in one table",
        description="one of 34 items shown at random in a fashion shop; click",
        reference=(
            "Y. Saito, S. Aihara, M. Matsutani and Y. Narita (2021), Open bandit dataset and pipeline: towards "
            "realistic and reproducible off-policy evaluation, NeurIPS Datasets and Benchmarks"
        ),
    ),
)  # fmt: skip
