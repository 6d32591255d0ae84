"""Whole grids of runs: which datasets (`suites`), which runs and packs (`plan`), what is missing of them (`todo`),
where they are trained (`local`, `ray`), and what is left of each (`outcome`, `results`).

`studies` are the grids that have names (`study` says what one is), `settings` what a sweep or a study changes. `shelf`
holds the datasets of packs, `costs` measures what packs take.
"""
