"""One module a command. A command reads its options, calls the library and shows what came of it."""
