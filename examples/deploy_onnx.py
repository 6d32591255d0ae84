"""A policy that `winnow export RUN --onnx policy.onnx` wrote, used without winnow or JAX: python deploy_onnx.py"""

import numpy as np
import onnxruntime

policy = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
observation = np.zeros((1, policy.get_inputs()[0].shape[1]), np.float32)  # raw, as the environment gives it
print(policy.run(None, {"observation": observation})[0])  # the action, in the environment's units
