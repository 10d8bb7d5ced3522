#!/usr/bin/env python3
"""Write tests/reference/{gpt2,llama,llama3,qwen2,qwen3,mixtral,olmoe,qwen2_moe,qwen3_moe,mistral,olmo2}: tiny random models as
Hugging Face's transformers saves them, and what they compute. llama3 and qwen3 have tied embeddings, llama3 the rotary
scaling of Llama 3.1, and qwen3_moe a block without experts.

    python3 tests/reference/make_hugging_face.py       (needs torch, transformers and safetensors)

Each directory has config.json and the weights, Llama's in several files with an index, and reference.safetensors:
ids [2, 12] and the logits [24, vocab] of them, computed in float64 and stored as float32; of llama3 also
logits_linear, with linear rotary scaling by 2.5. The tokenizer's files of gpt2 are only copied by tests: nothing
reads them.
"""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig,
                          MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM, OlmoeConfig, OlmoeForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen2MoeConfig,
                          Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

HERE = Path(__file__).resolve().parent


def randomize(model) -> None:
    """So large that attention is far from uniform, and no bias or gain hides."""
    for name, p in model.named_parameters():
        mean = 1.0 if p.ndim == 1 and ("norm" in name or ".ln_" in name) and name.endswith("weight") else 0.0
        p.data = torch.randn_like(p) * (0.2 if p.ndim >= 2 else 0.1) + mean


def logits_of(model, ids):
    if hasattr(model.config, "num_experts_per_tok"):
        model.set_experts_implementation("eager")  # the others have no float64
    with torch.no_grad():
        return model.double()(ids).logits.flatten(0, 1).float().contiguous()


def write(name: str, model, variants: dict = {}, **save) -> None:
    """variants: further logits by name, of a model that takes the weights."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    randomize(model.eval())
    model.save_pretrained(folder, **save)
    ids = torch.randint(model.config.vocab_size, (2, 12))
    reference = {"ids": ids, "logits": logits_of(model, ids)}
    for key, other in variants.items():
        other.load_state_dict(model.state_dict())
        reference[key] = logits_of(other.eval(), ids)
    save_file(reference, folder / "reference.safetensors")
    (folder / "generation_config.json").unlink(missing_ok=True)
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{folder}: {sum(f.stat().st_size for f in folder.iterdir()):,} bytes")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(20263)
    gpt2 = GPT2Config(n_layer=2, n_head=4, n_embd=24, n_positions=16, vocab_size=96, resid_pdrop=0.0,
                      embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    write("gpt2", GPT2LMHeadModel(gpt2))
    (HERE / "gpt2/vocab.json").write_text(json.dumps({"a": 0, "b": 1}) + "\n")
    (HERE / "gpt2/merges.txt").write_text("#version: 0.2\n")
    llama = LlamaConfig(num_hidden_layers=2, hidden_size=24, num_attention_heads=4, num_key_value_heads=2,
                        intermediate_size=40, max_position_embeddings=16, vocab_size=96, rms_norm_eps=1e-6,
                        rope_theta=500.0, bos_token_id=0, eos_token_id=0)
    write("llama", LlamaForCausalLM(llama), max_shard_size="24KB")

    torch.manual_seed(20264)
    # The three frequencies turn 10.2, 1.3 and 0.2 times in the original context.
    rope = dict(rope_theta=500.0, rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=64)
    linear = dict(rope_theta=500.0, rope_type="linear", factor=2.5)
    models = [LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=2, hidden_size=24, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
        max_position_embeddings=256, vocab_size=96, rms_norm_eps=1e-5, rope_parameters=parameters,
        tie_word_embeddings=True, bos_token_id=0, eos_token_id=0)) for parameters in (rope, linear)]
    write("llama3", models[0], {"logits_linear": models[1]})

    torch.manual_seed(20265)
    shape = dict(num_hidden_layers=2, hidden_size=24, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=16, vocab_size=96, rope_theta=500.0, bos_token_id=0, eos_token_id=0,
                 pad_token_id=0)
    dense = dict(shape, intermediate_size=40)
    shape["num_experts_per_tok"] = 2
    write("mixtral", MixtralForCausalLM(MixtralConfig(**shape, intermediate_size=16, num_local_experts=4)))
    write("olmoe", OlmoeForCausalLM(OlmoeConfig(**shape, intermediate_size=16, num_experts=4)))
    write("qwen2_moe", Qwen2MoeForCausalLM(Qwen2MoeConfig(
        **shape, intermediate_size=40, moe_intermediate_size=12, shared_expert_intermediate_size=24, num_experts=4)))
    write("qwen3_moe", Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **shape, head_dim=8, intermediate_size=40, moe_intermediate_size=12, num_experts=6, norm_topk_prob=True,
        mlp_only_layers=[0])))
    write("qwen2", Qwen2ForCausalLM(Qwen2Config(**dense)))
    write("qwen3", Qwen3ForCausalLM(Qwen3Config(**dense, head_dim=8, tie_word_embeddings=True)))

    torch.manual_seed(20266)
    write("mistral", MistralForCausalLM(MistralConfig(**dense, sliding_window=5)))
    write("olmo2", Olmo2ForCausalLM(Olmo2Config(**dense)))


if __name__ == "__main__":
    main()
