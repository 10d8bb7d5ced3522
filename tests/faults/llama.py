"""Faults of grouped-query attention and rotary positions, which the parity of llama finds: minigpt has
one key-value head for each query head, and a table of positions; and of what Llama's blocks make again."""

from fault import Fault, Run, Unseen

HEADS, NORM = "core/cpu/attention/attention.h", "parallel/tensor/norm.h"

FAULTS = [
    # Right where a rank has one key-value head: with 2 of them on 2 ranks, wrong on one rank.
    Fault("key_value_head_of_another_group", HEADS,
          [("k(a.in.k, key_token, head / a.group()),", "k(a.in.k, key_token, head % a.kv_heads()),"),
           ("v(a.in.v, key_token, head / a.group()),", "v(a.in.v, key_token, head % a.kv_heads()),")],
          [Run("--mesh 1x1x2", "step 1: activation of block0", program="llama")]),
    # Queries and keys turned by one position too many have the same scores: they must differ in distance.
    Fault("second_shard_turns_by_other_angles", "examples/llama/llama.h",
          [("head_dim_, c.rope),", "head_dim_, {.base = c.rope.base, .scale = 1. + tp.rank()}),")],
          [Run("--mesh 1x1x2", "step 1: activation of block0", program="llama"),
           Run("--mesh 1x1x2 --sequence-parallel", "step 1: activation of block0", program="llama")]),
    Fault("gamma_of_heads_is_outside", NORM,
          [("tp.whole_always_summed()", "tp.whole()")],
          [Run("--mesh 1x1x2 --qk-norm head", r"step 1: gradient on replicas of block\d\.[qk]_norm\.gamma", program="llama")]),
    Fault("norm_of_this_ranks_heads", NORM,
          [("tp_.enter(tp_.leave(sum(row * row, {1}, Keep::yes)))", "sum(row * row, {1}, Keep::yes) * double(tp_.size())")],
          [Run("--mesh 1x1x2 --qk-norm all", "step 1: activation of block0", program="llama")]),
    Fault("squares_of_heads_not_summed_in_backward", NORM,
          [("tp_.enter(tp_.leave(sum(row", "tp_.gather_rows(tp_.leave(sum(row")],
          [Run("--mesh 1x1x2 --qk-norm all", r"step 1: gradient of block\d\.qkv\.weight", program="llama"),
           Run("--mesh 1x1x2 --qk-norm all --sequence-parallel", r"step 1: gradient of block\d\.qkv\.weight",
               program="llama")]),
    Fault("heads_turned_again_of_something_else", "examples/llama/llama.h",
          [("return turn(heads, norm);", "return turn(heads * 0.5, norm);")],
          [Run("--mesh 1x1x1 --recompute selective", "step 1: gradient of block1.out.weight", program="llama")]),
    Fault("swiglu_made_again_of_something_else", "parallel/experts/mixture.cpp",
          [("{ return of(h); }", "{ return of(h * 0.5); }")],
          [Run("--mesh 1x1x1 --recompute selective", "step 1: gradient of block1.down.weight", program="llama"),
           Run("--mesh 1x1x1 --recompute selective --experts 4", "step 1: gradient of block1.experts.down", program="llama")]),
]

UNSEEN = [
    Unseen("rotary_positions_off_by_one", "core/cpu/rotary.cpp",
           [("table + t % time * width,", "table + (t + 1) % time * width,")],
           "minigpt has no rotary embedding, and one rank does it too",
           "--mesh 1x1x2", "test_core", "*RotaryKernel*"),
]
