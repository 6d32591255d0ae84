"""Whole grids of runs: which datasets (`suites`), which runs and packs (`plan`), what is missing of them (`todo`),
where they are trained (`local`), and what is left of each (`outcome`, `results`).

`shelf` holds the datasets of packs, `costs` measures what packs take, `locks` keeps processes apart.
"""
