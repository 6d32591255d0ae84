"""Whole grids of runs: which datasets (`suites`), which runs and packs (`plan`), what is missing of them (`remaining`),
where they are trained (`run_local`, `run_ray`), and what is kept of each run (`make_result`, `results`, `packed`).

`study_list` has the grids with names (`study` says what one is), `overrides` what a sweep or a study changes.
`datasets` opens the datasets of packs, `costs` measures memory and time of packs.
"""
