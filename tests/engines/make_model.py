"""A Llama of two layers as a folder that engines load without a download: `python make_model.py OUTDIR`.

Needs the package `tokenizers`, which every engine's environment has. The tokenizer is trained on the standard
library's source; weights are left to the engine (vLLM's `--load-format dummy`). With `--lora NAME` it also
writes a rank-8 adapter of zeros for that model, in the safetensors format, beside OUTDIR.
"""

from __future__ import annotations

import argparse
import json
import struct
import sysconfig
from pathlib import Path

VOCABULARY = 4096
WIDTH, LAYERS, HEADS, INNER = 128, 2, 4, 344
RANK = 8

_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:120]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<unk>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(source) for source in sources], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "</s>",
        "model_max_length": 2048,
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def write_config(folder: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": WIDTH,
        "initializer_range": 0.02,
        "intermediate_size": INNER,
        "max_position_embeddings": 2048,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": HEADS,
        "head_dim": WIDTH // HEADS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": VOCABULARY,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "attention_bias": False,
        "mlp_bias": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def write_adapter(folder: Path, base: Path) -> None:
    """PEFT's layout: `r`, `target_modules`, and one A and one B matrix (float32) per module and layer."""
    folder.mkdir(parents=True, exist_ok=True)
    modules = ("q_proj", "v_proj")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": RANK,
        "lora_alpha": RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(modules),
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1))
    header: dict[str, object] = {}
    offset = 0
    for layer in range(LAYERS):
        for module in modules:
            for matrix, shape in (("A", [RANK, WIDTH]), ("B", [WIDTH, RANK])):
                size = 4 * shape[0] * shape[1]
                name = f"base_model.model.model.layers.{layer}.self_attn.{module}.lora_{matrix}.weight"
                header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
                offset += size
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes a small Llama model folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lora", action="append", default=[], metavar="NAME")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_config(arguments.folder)
    write_tokenizer(arguments.folder)
    for name in arguments.lora:
        write_adapter(arguments.folder.parent / name, arguments.folder)


if __name__ == "__main__":
    main()
