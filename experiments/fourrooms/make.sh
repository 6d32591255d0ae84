# The numbers of docs/fourrooms.md, from the root of the repository: about two minutes on two cores.
# Tables and raw values go to results/fourrooms; the two figures without a sweep are docs/images/fourrooms.png and fourrooms-slippery.png.
set -e
sweep="--aw 0.01 0.1 1 5 --pf 0.01 0.1 0.2 0.5 --density 0.2 0.1 0.2 1 0.2 5 1 0.1 1 1 1 5 --dual 0.1 0.03 0.01 0.003"
winnow fourrooms --out results/fourrooms/deterministic
winnow fourrooms --out results/fourrooms/deterministic-sweep $sweep
winnow fourrooms --slip 0.1 --out results/fourrooms/slippery
winnow fourrooms --slip 0.1 --out results/fourrooms/slippery-sweep $sweep
