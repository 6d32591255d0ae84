"""What a folder of results says: its runs (`runs`), their statistics (`numbers`), studies among them (`studies`), what
the paper published (`published`), what imbalance has to do with it (`gains`), how they were made (`origin`), and all of
it as a page (`page`, of `blocks`, `study_page` and `heat`) or as tables (`tables`)."""
