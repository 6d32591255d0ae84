"""One thread for PyTorch: on small networks a second one costs more than it brings, the more so on a busy machine."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
