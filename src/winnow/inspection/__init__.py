"""The page of a dataset: what is in it, how imbalanced it is, and where different weights would put the stress.

`weightings` holds the weights and what they amount to, `coverage` the map of states, `episodes` the strips and single
transitions, `words` what is said of it all, and `page` puts them together.
"""
