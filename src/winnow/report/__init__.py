"""The report on a folder of results: its runs (`runs`), their statistics (`statistics`), the studies among them
(`studies`), the published scores (`published`), gain against imbalance (`gain_vs_imbalance`), the commands that made
them (`provenance`), warnings (`doubts`), and all of it as a page (`page`, made of `page_parts`, `study_page` and
`heatmap`) or as tables (`tables`)."""
