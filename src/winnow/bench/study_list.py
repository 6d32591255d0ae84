"""The studies: the paper's ablations and comparisons beside its main grid, and some that the paper lacks.

Every study has a variant called `uniform`, the baseline of all gains.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from winnow.bench.study import PREFIX, Study, Variant
from winnow.bench.suites import ALGORITHMS
from winnow.errors import BadInput

HOPPER = tuple(f"hopper-random-{good}-diverse-{share}%" for good in ("expert", "medium") for share in (5, 10))
"""The four datasets of the paper's smaller tables."""
ENVIRONMENTS = ("hopper", "halfcheetah", "walker2d", "ant")
EXPERTS = tuple(f"{environment}-random-expert{kind}-5%" for kind in ("", "-diverse") for environment in ENVIRONMENTS)


# -------------------------------------------------------------------------------------------------- what is studied

UNIFORM = Variant("uniform", "uniform")
DW = Variant("DW-Uniform", "dw-uniform")
DW_AW = Variant("DW-AW", "dw-aw")
AW = Variant("AW", "aw")
PF = Variant("PF-10%", "pf")
LAMBDAS = [(strength, flow) for strength in ("0.2", "1.0") for flow in ("0.1", "1.0", "5.0")]


def _density(form: str = "") -> tuple[Variant, ...]:
    """The paper's grid of λK and λF."""
    of_form = (f"weighter.form={form}",) if form else ()
    return tuple(
        Variant(
            f"{form} λK={strength}, λF={flow}".strip(),
            "dw-uniform",
            (*of_form, f"weighter.lambda_k={strength}", f"weighter.lambda_f={flow}"),
            group=form,
        )
        for strength, flow in LAMBDAS
    )


def _dual(control: str, field: str, symbol: str, values: Iterable[float]) -> tuple[Variant, ...]:
    return tuple(
        Variant(
            f"dual {symbol}={value:g}",
            "dual-uniform",
            (f"weighter.control={control}", f"weighter.{field}={value}"),
            group=f"dual, {symbol}",
        )
        for value in values
    )


def _less(algorithm: str, field: str, symbol: str, values: Iterable[float]) -> tuple[Variant, ...]:
    return tuple(
        Variant(f"uniform {symbol}={value:g}", "uniform", (f"algorithm.{field}={value}",), (algorithm,), "less")
        for value in values
    )


def _choices(field: str, choices: Iterable[str], methods: Iterable[Variant]) -> tuple[Variant, ...]:
    return tuple(
        Variant(f"{variant.label}, {choice}", variant.method, (f"weighter.{field}={choice}",))
        for variant in methods
        for choice in choices
    )


STUDIES = {
    study.name: study
    for study in (
        Study(
            "lambda",
            "How much do the strengths of the KL regulariser (λK) and of the flow penalty (λF) matter to DW?",
            "appendix A.5.4, table 2",
            HOPPER,
            ("cql", "iql"),
            (UNIFORM, *_density()),
            "The paper's table is of DW-Uniform; the text about it names λF twice. The main grid's DW is (0.2, "
            "0.1) with CQL and (1, 1) with IQL.",
            (("weighter.lambda_k", "λK"), ("weighter.lambda_f", "λF")),
        ),
        Study(
            "temperature",
            "Which temperature η does advantage weighting need, and does a better one catch up with DW?",
            "section 5 and appendix A.4.1, figures 3 and 4 (bars without numbers)",
            ("diverse", "small"),
            ("cql", "iql"),
            (
                UNIFORM,
                Variant("AW-L", "aw", ("sampler.temperature=0.01",)),
                Variant("AW-M", "aw", ("sampler.temperature=0.2",), ("cql",)),
                Variant("AW-M", "aw", ("sampler.temperature=0.1",), ("iql", "td3bc", "bc")),
                Variant("AW-H", "aw", ("sampler.temperature=1.0",)),
                Variant("AW-XH", "aw", ("sampler.temperature=5.0",)),
                DW_AW,
            ),
            "η is 0.01 (L), 0.2 with CQL and 0.1 with the others (M, as in the published code; the text has them the "
            "other way round), 1 (H), 5 (XH). Published numbers stand beside the temperature of the paper's tables: M, "
            "and XH on small sets.",
        ),
        Study(
            "filtering",
            "How many of the best trajectories should percentage filtering keep?",
            "section 5 and appendix A.4.1, figures 3 and 4 (bars without numbers)",
            ("diverse", "small"),
            ("cql", "iql"),
            (UNIFORM, *(Variant(f"PF-{share}%", "pf", (f"sampler.share={share / 100}",)) for share in (10, 20, 50))),
            "Published numbers stand beside 10 %, which the paper's tables are taken to be of.",
        ),
        Study(
            "reg-only",
            "Is it enough to weigh the regulariser, or must all terms of the loss be weighted?",
            "appendix A.5.5, table 3",
            ("hopper-random-expert-diverse-10%", "walker2d-random-expert-diverse-10%"),
            ("cql",),
            (
                UNIFORM,
                Variant("All", "dw-uniform", (), ("cql",)),
                Variant("Reg. only (literal)", "dw-uniform", ("algorithm.reg_only=literal",), ("cql",)),
                Variant("Reg. only (strict)", "dw-uniform", ("algorithm.reg_only=strict",), ("cql",)),
            ),
            "Literal is what the paper describes: weights on TD error and penalty, none on policy and entropy. Strict "
            "is what its name says: weights on the penalty alone. The paper does not say which sampling its table is "
            "of; DW-Uniform is taken here.",
        ),
        Study(
            "state-weight",
            "Should terms that judge the policy's own action be weighted with w(s), as the text has it, or with "
            "w(s,a), as the published code does?",
            "appendix A.3.1; not compared in the paper",
            HOPPER,
            ALGORITHMS,
            (
                UNIFORM,
                *_choices("state_weight", ("joint", "marginal"), (DW, Variant("dual-uniform", "dual-uniform"))),
            ),
        ),
        Study(
            "forms",
            "Which form of the weighter is best if each is tuned equally: the paper's equations, its code, or the "
            "exact dual with a fixed λ or with a budget?",
            "section 4.2; only the code's form was run for the paper",
            HOPPER,
            ("cql", "iql"),
            (
                UNIFORM,
                *_density("paper"),
                *_density("code"),
                *_dual("temperature", "temperature", "λ", (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)),
                *_dual("budget", "budget", "ε", (0.25, 0.5, 1.0, 2.0, 3.0, 4.0)),
            ),
            "Six settings for each form. The best of six is chosen by the scores it is then shown with, so it "
            "is too good, equally for all forms; the mean of the six is not.",
        ),
        Study(
            "terminal",
            "What should follow a terminal row in the flow: a random initial state, or nothing?",
            "not in the paper",
            HOPPER,
            ("cql", "iql"),
            (UNIFORM, *_choices("terminal", ("reset", "mask"), (DW, Variant("dual-uniform", "dual-uniform")))),
            "The published code leads a terminal to the first state of the next stored episode, by accident.",
        ),
        Study(
            "conservatism",
            "Would less conservatism do instead of weights: a smaller penalty (CQL's κ), more improvement (TD3+BC's "
            "α), a sharper policy (IQL's β)?",
            "appendix A.2, “Figure [small kl]”, which the paper refers to and does not contain",
            HOPPER,
            ALGORITHMS,
            (
                UNIFORM,
                *_less("cql", "penalty", "κ", (5.0, 2.0, 1.0, 0.5)),
                *_less("td3bc", "alpha", "α", (5.0, 10.0, 20.0, 40.0)),
                *_less("iql", "beta", "β", (6.0, 10.0, 20.0, 40.0)),
                AW,
                DW,
                DW_AW,
            ),
            "Uniform is κ = 10, α = 2.5 and β = 3.",
        ),
        Study(
            "optidice-w",
            "Do OptiDICE's weights help CQL as much as DW's?",
            "appendix A.5.3, table 1",
            HOPPER,
            ("cql",),
            (
                UNIFORM,
                DW,
                *(
                    Variant(f"OptiDICE-W α={alpha:g}", "optidice-w", (f"weighter.alpha={alpha}",))
                    for alpha in (0.1, 1.0, 5.0)
                ),
            ),
            "The paper's run with α = 0.1 on hopper-random-medium-diverse-5% ended in NaN: it has no number.",
        ),
        Study(
            "optidice",
            "Is cloning with OptiDICE's weights a match for weighted offline RL?",
            "appendix A.5.2, figure 7 (bars without numbers)",
            ("mixed",),
            ("bc", "cql", "iql"),
            (
                UNIFORM,
                Variant("OptiDICE", "optidice-w", (), ("bc",)),
                *(Variant(known.label, known.method, (), ALGORITHMS) for known in (AW, PF, DW_AW, DW)),
            ),
            "OptiDICE is behaviour cloning (bc) with its weights; bc with uniform is plain cloning.",
        ),
        Study(
            "baselines",
            "How do all re-weighting and resampling methods of the field compare on the same sets?",
            "not in the paper, which has uniform, AW and PF",
            EXPERTS,
            (*ALGORITHMS, "bc"),
            (
                UNIFORM,
                Variant("AW", "aw", (), ALGORITHMS),
                Variant("PF-10%", "pf", (), (*ALGORITHMS, "bc")),
                Variant("RW", "rw", (), ALGORITHMS),
                Variant("ReD, ODPR-R", "red", (), ALGORITHMS),
                Variant("ODPR-A", "odpr-a", (), ALGORITHMS),
                Variant("continued", "continued", (), ALGORITHMS),
                Variant("DW-Uniform", "dw-uniform", (), ALGORITHMS),
                Variant("DW-AW", "dw-aw", (), ALGORITHMS),
                Variant("dual-uniform", "dual-uniform", (), ALGORITHMS),
                Variant("dual-aw", "dual-aw", (), ALGORITHMS),
                Variant("OptiDICE-W", "optidice-w", (), (*ALGORITHMS, "bc")),
            ),
            "With bc, uniform is plain behaviour cloning, PF-10% is 10 %-BC and OptiDICE-W is OptiDICE. ReD and ODPR-R "
            "sample with the same probabilities.",
        ),
    )
}


def divided(names: Iterable[str]) -> tuple[list[Study], list[str]]:
    """The studies among the names on the command line, with or without `study:` before them, and the other names."""
    studies: dict[str, Study] = {}
    others = []
    for text in names:
        name = text.removeprefix(PREFIX)
        if text.startswith(PREFIX) or text in STUDIES:
            studies[name] = named(name)
        else:
            others.append(text)
    return list(studies.values()), others


def named(name: str) -> Study:
    if name not in STUDIES:
        near = difflib.get_close_matches(name, STUDIES, n=1)
        hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
        raise BadInput(f"there is no study {name!r}{hint} (choose from {', '.join(STUDIES)})")
    return STUDIES[name]
