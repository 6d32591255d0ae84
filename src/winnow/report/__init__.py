"""What a folder of results says: its runs (`runs`), their statistics (`numbers`), what the paper published
(`published`), how they were made (`origin`), and all of it as a page (`page`) or as tables (`tables`)."""
