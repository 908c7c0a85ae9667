"""Doubles its input: a model of tensors, without text."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "values").as_numpy()
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("doubled", values * 2)])
