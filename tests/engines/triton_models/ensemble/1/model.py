"""Answers `text_input` with `max_tokens` words, one every 10 ms; with `stream`, each in its own response.

The interface (names, types, decoupled responses) is that of the `ensemble` of TensorRT-LLM's Triton backend.
"""

import time

import numpy as np
import triton_python_backend_utils as pb_utils

SECONDS_PER_TOKEN = 0.01


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self._answer(request)

    def _answer(self, request):
        sender = request.get_response_sender()
        count = int(pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy().reshape(-1)[0])
        stream = pb_utils.get_input_tensor_by_name(request, "stream")
        in_parts = stream is not None and bool(stream.as_numpy().reshape(-1)[0])
        words = []
        for index in range(count):
            time.sleep(SECONDS_PER_TOKEN)
            words.append(f"tok{index} ")
            if in_parts:
                sender.send(_response(words[-1]))
        if not in_parts:
            sender.send(_response("".join(words)))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _response(text):
    tensor = pb_utils.Tensor("text_output", np.array([text.encode()], dtype=object))
    return pb_utils.InferenceResponse(output_tensors=[tensor])
